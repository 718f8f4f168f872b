"""A program of the user's own for a monitor: its limiter, its credentials, and what it says of its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from ...clock import Clock, SystemClock
from ...core.decision import LONGEST_WAIT
from ...core.gate_config import FASTEST
from ...events import EventRecord
from ...formatting import for_display
from ...limiter import AdaptiveRateLimiter
from ...limiter.snapshot import KeySnapshot, ToldRates
from ...reason_text import credential_text, credential_why
from ..event_buffer import shortened
from ..hub import EventEmitter
from ..snapshot import (
    MOST_CREDENTIALS,
    MOST_KEYS,
    ActionRefusedError,
    CredentialLine,
    DeadLine,
    KeyLine,
    ProgressLine,
    WaitLine,
)
from . import States, Waits, cause_of, paced

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

    def example(self, event: EventRecord) -> tuple[str, str] | None:
        return None

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
    """A program may divide by nothing; JSON has no number for what comes of that."""
    eta = told.eta if told.eta is not None and isfinite(told.eta) else None
    return replace(
        told, eta=eta, rate=told.rate if isfinite(told.rate) else 0.0, cost=told.cost if isfinite(told.cost) else 0.0
    )


# ---------------------------------------------------------------------- keys
# The keys of a limiter as lines: what is learned of each, what its server says, and why a call would wait.


MOST_REMEMBERED = 4 * MOST_KEYS


class KeySource:
    """Reads a limiter again and again, and remembers what one snapshot cannot show."""

    def __init__(self, limiter: AdaptiveRateLimiter) -> None:
        self.limiter = limiter
        self.lines: list[KeyLine] = []
        """The busiest first, then those used last."""
        self.waits: list[WaitLine] = []
        """Callers that stand in queues."""
        self._shown: dict[str, str] = {}
        """Keys as people see them: a secret that a program has put into one is not shown."""
        self._hidden: dict[str, str] = {}
        """... and the other way round, where they differ."""
        self._told = ToldRates()

    def refresh(self) -> None:
        seen = self.limiter.key_statuses(self.limiter.recent_keys(MOST_KEYS))
        self.lines = sorted((self._line(one) for one in seen), key=lambda line: -(line.waiting + line.in_flight))
        self.waits = [self._wait(one) for one in seen if one.waiters]

    def key_of(self, shown: str) -> str:
        return self._hidden.get(shown, shown)

    def name_of(self, key: str) -> str:
        name = self._shown.get(key)
        if name is None:
            if len(self._shown) >= MOST_REMEMBERED:
                self._shown.clear()
                self._hidden.clear()
            name = self._shown[key] = for_display(key)
            if name != key:
                self._hidden[name] = key
        return name

    def _line(self, seen: KeySnapshot) -> KeyLine:
        return KeyLine(
            key=self.name_of(seen.key),
            rate=seen.rate if seen.rate < FASTEST else 0.0,
            said=self._told.of(seen),
            sent=seen.sent,
            done=max(0, seen.answers - seen.refused - seen.failed),
            refused=seen.refused,
            failed=seen.failed,
            in_flight=seen.in_flight,
            waiting=seen.waiters,
            latency=seen.average_latency,
            p95=seen.p95_latency,
            circuit=seen.state,
            not_before=_held(seen),
            returning=seen.returning,
            limit=seen.limit,
            known=seen.known,
            known_limits=seen.known_limits,
            shared_by=seen.shared_by,
            reason=shortened(seen.reason),
            waits_for=seen.waits_for,
        )

    def _wait(self, seen: KeySnapshot) -> WaitLine:
        name, cause = self.name_of(seen.key), cause_of(seen.explanation or paced(seen.rate))
        return WaitLine.about(
            name, shortened(cause.text), behind=seen.waiters, seconds=_held(seen) or None, code=cause.code
        )


def _held(seen: KeySnapshot) -> float:
    """Seconds for which nothing starts."""
    return min(seen.not_before_ms / 1000, LONGEST_WAIT)


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
        """Callers that stand in line for a credential."""
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
