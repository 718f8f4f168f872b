"""A program of the user's own for a monitor: its limiter, its credentials, and what it says of its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from ...clock import Clock, SystemClock
from ...events import EventRecord
from ...limiter import AdaptiveRateLimiter
from ...reason_text import credential_text, credential_why
from ..hub import EventEmitter
from ..snapshot import (
    MOST_CREDENTIALS,
    ActionRefusedError,
    CredentialLine,
    DeadLine,
    ProgressLine,
    WaitLine,
)
from . import States, Waits

if TYPE_CHECKING:
    from ...credentials import CredentialCoordinator
    from ...credentials.credential import CredentialState


class ProgramSource:
    kind = "program"
    title = ""

    def __init__(
        self,
        limiter: AdaptiveRateLimiter | None,
        coordinators: Mapping[str, CredentialCoordinator],
        progress: Callable[[], ProgressLine] | None,
        clock: Clock | None,
        emitters: Sequence[EventEmitter] = (),
    ) -> None:
        clocks = [limiter.clock] if limiter is not None else [one.clock for one in coordinators.values()]
        self.clock: Clock = clock or (clocks[0] if clocks else SystemClock())
        self.limiter, self.coordinators, self.emitters = limiter, coordinators, emitters
        self.on_event: Callable[[EventRecord], None] | None = None
        self._progress = progress

    def progress(self) -> ProgressLine:
        told = ProgressLine() if self._progress is None else _finite(self._progress())
        return replace(told, rate=0.0, eta=None) if self.state() == "paused" else told

    def waits(self, credentials: States) -> Waits:
        return Waits([], 0)

    def dead(self) -> list[DeadLine]:
        return []

    def counters(self) -> Mapping[str, float]:
        return {}

    def waited(self) -> Mapping[str, float]:
        return {}

    def state(self) -> str:
        return "paused" if self.limiter is not None and self.limiter.is_paused else "running"

    def pause(self) -> None:
        if self.limiter is None:
            raise ActionRefusedError("This run has no limiter, so it cannot be paused")
        self.limiter.pause_all()

    def resume(self) -> None:
        if self.limiter is not None:
            self.limiter.resume_all()

    def stop(self) -> None:
        raise ActionRefusedError("This program cannot be stopped from here; pause it, or end its process")


def _finite(told: ProgressLine) -> ProgressLine:
    """The same without infinite numbers and NaN, which JSON cannot hold."""
    eta = told.eta if told.eta is not None and isfinite(told.eta) else None
    return replace(
        told, eta=eta, rate=told.rate if isfinite(told.rate) else 0.0, cost=told.cost if isfinite(told.cost) else 0.0
    )


# ---------------------------------------------------------------------- credentials
# Credentials as lines: by label and six digits, what they rest for, and which one an operator means.


Coordinators = Mapping[str, "CredentialCoordinator"]


def status_text(state: CredentialState) -> str:
    """What follows its name in a sentence."""
    return credential_text(state.state, state.reason, state.back_in)


class CredentialSource:
    """Reads coordinators again and again."""

    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators
        self.lines: list[CredentialLine] = []
        self.states: dict[str, CredentialState] = {}
        """By label; of two with the same label, the one that is worse off."""

    def refresh(self) -> None:
        lines: list[CredentialLine] = []
        states: dict[str, CredentialState] = {}
        for name, coordinator in self._coordinators.items():
            for state in coordinator.states():
                if len(lines) >= MOST_CREDENTIALS:
                    break
                lines.append(_line(coordinator.provider or name, state))
                if state.label not in states or state.state in ("resting", "retired"):
                    states[state.label] = state
        self.lines, self.states = lines, states

    def waits(self) -> list[WaitLine]:
        """Callers that wait for a credential."""
        return [
            _wait(coordinator.provider or name or "credentials", coordinator.states(), behind)
            for name, coordinator in self._coordinators.items()
            if (behind := coordinator.waiting)
        ]

    def find(self, target: str) -> tuple[CredentialCoordinator, str]:
        """The one named ``label/mark``, or by a label alone where no other has it."""
        found = [
            (coordinator, state.label)
            for coordinator in self._coordinators.values()
            for state in coordinator.states()
            if target in (f"{state.label}/{state.shown}", state.label)
        ]
        if not found:
            raise ActionRefusedError("Unknown credential; name it as label/mark, with the six digits of its mark")
        if len(found) > 1:
            raise ActionRefusedError(
                f"{len(found)} credentials have this label; add the six digits of the mark: label/mark"
            )
        return found[0]


def _line(provider: str, state: CredentialState) -> CredentialLine:
    return CredentialLine(
        label=state.label,
        mark=state.shown,
        provider=provider,
        group=state.group or "",
        state=state.state,
        rests=max(0.0, state.back_in or 0.0),
        reason=credential_why(state.reason) if state.reason else "",
    )


def _wait(scope: str, states: list[CredentialState], behind: int) -> WaitLine:
    backs = [state for state in states if state.back_in is not None]
    first = min(backs, key=lambda state: state.back_in or 0.0, default=None)
    if all(state.state == "retired" for state in states):
        return WaitLine.about(scope, "every credential is disabled", behind=behind, code="retired")
    if first is None or any(state.state == "held" for state in states):
        return WaitLine.about(scope, "every credential is in use", behind=behind, code="held")
    sentence = f"{first.label} of {scope} {status_text(first)}"
    return WaitLine(scope=scope, sentence=sentence, behind=behind, seconds=first.back_in, code="resting")
