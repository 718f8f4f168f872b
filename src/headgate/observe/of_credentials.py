"""Credentials as lines: by label and six digits, what they rest for, and who is meant by an operator's words."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.words import span
from ..credentials import CredentialCoordinator
from ..credentials.credential import CredentialState
from .snapshot import MOST_CREDENTIALS, CredentialLine, WaitLine
from .source import ActionRefusedError

_REASONS = {
    "rate_limited": "it was rate limited",
    "quota_exhausted": "its quota is used up",
    "auth": "it is not accepted",
    "key_dead": "it is no longer valid",
}

Coordinators = Mapping[str, CredentialCoordinator]


def why(state: CredentialState) -> str:
    return _REASONS.get(state.reason, state.reason) or "it is not said why"


def standing(state: CredentialState) -> str:
    """What follows its name in a sentence."""
    if state.state == "retired":
        return f"is retired: {why(state)}"
    if state.back_in is not None:
        return f"rests {span(max(0.0, state.back_in))}: {why(state)}"
    return "is in the hands of others"


def line_of(provider: str, state: CredentialState) -> CredentialLine:
    return CredentialLine(
        label=state.label,
        mark=state.shown,
        provider=provider,
        group=state.group or "",
        state=state.state,
        rests=max(0.0, state.back_in or 0.0),
        reason=why(state) if state.reason else "",
    )


class CredentialsSeen:
    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators
        self.lines: list[CredentialLine] = []
        self.states: dict[str, CredentialState] = {}
        """By label; of two alike, the one that is worse off."""

    def look(self) -> None:
        lines: list[CredentialLine] = []
        states: dict[str, CredentialState] = {}
        for name, coordinator in self._coordinators.items():
            for state in coordinator.states():
                if len(lines) >= MOST_CREDENTIALS:
                    break
                lines.append(line_of(coordinator.provider or name, state))
                if state.label not in states or state.state in ("resting", "retired"):
                    states[state.label] = state
        self.lines, self.states = lines, states

    def waits(self) -> list[WaitLine]:
        """Where callers stand in line for a credential."""
        found = []
        for name, coordinator in self._coordinators.items():
            if not (behind := coordinator.waiting):
                continue
            scope = coordinator.provider or name or "credentials"
            states = coordinator.states()
            backs = [state for state in states if state.back_in is not None]
            first = min(backs, key=lambda state: state.back_in or 0.0, default=None)
            if all(state.state == "retired" for state in states):
                sentence, seconds = f"{scope}: every credential is retired", None
            elif first is None or any(state.state == "held" for state in states):
                sentence, seconds = f"{scope}: every credential is in use", None
            else:
                sentence, seconds = f"{first.label} of {scope} {standing(first)}", first.back_in
            found.append(WaitLine(scope=scope, sentence=sentence, behind=behind, seconds=seconds))
        return found

    def find(self, target: str) -> tuple[CredentialCoordinator, str]:
        """Who is meant by ``label/mark``, or by a label alone where no other has it."""
        found = [
            (coordinator, state.label)
            for coordinator in self._coordinators.values()
            for state in coordinator.states()
            if target in (f"{state.label}/{state.shown}", state.label)
        ]
        if not found:
            raise ActionRefusedError("there is no such credential here; it is named by its label and its six digits")
        if len(found) > 1:
            raise ActionRefusedError(f"{len(found)} credentials have this label; add the six digits: label/mark")
        return found[0]
