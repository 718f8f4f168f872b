"""Find out what a server allows, from nothing but its answers, and stay just inside it.

    a call leaves ----> an update, at most every fiftieth to tenth of a second: how far has the curve come?
    an answer ----+---> served: next to nothing
                  +---> refused, headers, a sample of the latency: limit_models.py, which knows the kinds of limit
                                     |
            rate, hold_until, cap <--+  published for the gate to enforce

A key that was never refused, got no headers and has sent little has no models at all: its pace
doubles as long as calls wait for it. Nothing is learned from an idle caller, and nothing
from failures: those are the breaker's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from ...core.controller import Controller
from ...core.decision import LONGEST_WAIT, NEVER, ControllerNote, Outcome, PaceReason
from ...core.policy import Cost, Ticket, requests_of
from ...core.signal import Signal
from .. import ControllerFactory, ControllerOptions, rate_bounds
from .limit_models import LimitModels
from .pace_curve import FASTEST, doubled, search_doubling
from .rate_search import RateSearch
from .state import STEADY, Phase
from .trace import TraceListener


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveSettings:
    """Calls a second: where to begin, and what the learned pace never leaves. Everything else it finds out."""

    initial: float = 2.0
    least: float = 0.01
    most: float = inf

    def __post_init__(self) -> None:
        if not 0.0 < self.least < inf:
            raise ValueError(f"least must be above 0 and finite, not {self.least!r}")
        if not self.most >= self.least:
            raise ValueError(f"most must be at least least={self.least!r}, not {self.most!r}")
        if not 0.0 < self.initial < inf:
            raise ValueError(f"initial must be above 0 and finite, not {self.initial!r}")


OK = Outcome.OK  # looked up once: in Python 3.11 a member of an enum takes longer to find than to compare
MODELS_FROM = 16
"""Calls below which a key that was never refused keeps no history."""

SEARCHING_UPDATE, CRUISING_UPDATE = 0.02, 0.1
"""Seconds between two updates of the pace: in between, a call that leaves costs next to nothing."""

LONGEST_STEP, SLOTS = 0.5, 1.2
"""Seconds, and slots of the pace, that one update may let the curves advance: longer gaps are idleness."""

RECENTLY = 0.25
"""Seconds (or three slots) within which a call must have waited for the pace, or it does not grow."""

IDLE = 1.0
"""Seconds (or three slots) without a wait after which what was sent says nothing about a quota."""

UNANSWERED, UNPROVEN = 10.0, 8.0
"""Without an answer for so many seconds the pace does not grow beyond so many times the initial one."""

DEPTH_MEMORY = 10.0
"""Seconds after which the greatest depth let in becomes the former one, and twice that until it is forgotten."""

DOWN = 5
"""Failures in a row after which what was sent says nothing about a quota."""


class Adaptive(Controller):
    __slots__ = (  # noqa: RUF023 (the order in which they are stored)
        "answered_at",
        "cap",
        "deepest",
        "deepest_before",
        "deepest_until",
        "done",
        "failed_after",
        "failures",
        "hold_until",
        "update_at",
        "updated_at",
        "opened_at",
        "settings",
        "rate",
        "models",
        "listener",
        "waited_at",
    )
    stored = tuple(name for name in __slots__ if name not in ("settings", "models", "listener"))

    watches_sends = True

    def __init__(self, settings: AdaptiveSettings) -> None:
        self.settings = settings
        self.rate = self._within(settings.initial)
        self.hold_until = NEVER
        self.cap = inf
        self.opened_at = NEVER
        """When the first call left."""
        self.updated_at = self.update_at = NEVER
        self.answered_at = NEVER
        """When the last answer came in."""
        self.waited_at = NEVER
        """When a call last had to wait for the pace."""
        self.done = 0
        """Calls served."""
        self.failed_after = -1
        """How many were done at the last failure: as long as that has not moved, nothing grows."""
        self.failures = 0
        """Failures in a row."""
        self.deepest = self.deepest_before = 0
        """The greatest depth at which a call was let in recently, and in the time before."""
        self.deepest_until = NEVER
        self.models: LimitModels | None = None
        self.listener: TraceListener | None = None

    # -- the contract -----------------------------------------------------------------------------

    @property
    def is_told(self) -> bool:
        return self.models is not None and self.models.told.steered

    @property
    def is_guess(self) -> bool:
        models = self.models
        return models is None or not (models.told.steered or models.search.measured)

    @property
    def learned(self) -> float:
        """Where the headers are followed, what they say: the pace itself is spread over what is left of a window.
        At a cap on calls in flight, what gets done: the pace is left free."""
        models = self.models
        if models is None:
            return self.rate
        if models.told.steered:
            return min(models.told.told_rate, self.settings.most)
        return min(self.rate, models.latency_model.throughput or self.rate) if models.concurrency.on else self.rate

    def on_send(self, ticket: Ticket, now: float) -> None:
        if self.updated_at <= now < self.update_at:
            return
        if self.models is not None and self.models.search.phase is Phase.BLOCK:
            self.models.search.send_blocked(ticket, now)
        self._advance(ticket.seq, ticket.depth + 1, now)
        if self.models is not None:
            self._publish(self.models, ticket.seq, ticket.depth + 1, now)

    def worth(self, cost: Cost) -> float:
        return requests_of(cost) if self.models is None else self.models.worth(cost)

    def take(self, cost: Cost) -> float:
        return requests_of(cost) if self.models is None else self.models.take(cost)

    def on_wait(self, now: float) -> None:
        self.waited_at = now

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        models = self.models
        self.answered_at = now
        if signal.limits:
            models = self.models or self._new_models(now)
            models.read_headers(ticket, signal.limits, now)
            self._publish(models, ticket.gate.seq, ticket.depth, now)
        if signal.outcome is not OK:
            return self._not_served(ticket, signal, latency, now)
        self.done += 1
        if ticket.depth > self.deepest and (models is None or ticket.seq > models.search.burst.volley):
            self.deepest = ticket.depth  # of the calls of a volley the last ones may have arrived first
        if models is None:
            return 0.0
        if not ticket.seq % models.latency_model.every and models.served(ticket, latency, self.done, now):
            self._publish(models, ticket.gate.seq, ticket.depth, now)
        probe = models.search.block.probe_seq
        if probe and probe <= ticket.seq:
            skip = models.search.resume(ticket.gate.seq, now)
            self._publish(models, ticket.gate.seq, ticket.depth, now)
            return skip
        return 0.0

    def listen(self, listener: TraceListener) -> None:
        self.listener = listener
        if self.models is not None:
            self.models.search.trace.listener = listener

    def why(self) -> ControllerNote:
        return ControllerNote(PaceReason.SEARCHING) if self.models is None else self.models.why(self.updated_at)

    def why_cap(self) -> ControllerNote | str:
        return super().why_cap() if self.models is None else self.models.why_cap()

    def rest(self) -> None:
        if self.models is not None:
            self.models.rest()

    def to_state(self) -> tuple[Any, ...]:
        own = tuple(getattr(self, name) for name in self.stored)
        return (*own, None if self.models is None else self.models.to_state())

    def load_state(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(self.stored, state[:-1], strict=True):
            setattr(self, name, value)
        self.models = None
        if state[-1] is not None:
            self._new_models(0.0).load_state(state[-1])

    # -- updates ----------------------------------------------------------------------------------

    def _advance(self, seq: int, depth: int, now: float) -> None:
        """Bring the pace up to now. ``seq`` is the last call sent, ``depth`` how many are in flight."""
        dt = min(now - self.updated_at, max(LONGEST_STEP, SLOTS / self.rate))
        self.updated_at, self.update_at = now, now + SEARCHING_UPDATE
        if self.opened_at == NEVER:
            self.opened_at = now
        if not 0.0 <= self.deepest_until - now <= DEPTH_MEMORY:
            self.deepest_before, self.deepest, self.deepest_until = self.deepest, 0, now + DEPTH_MEMORY
        models = self.models
        waited_at = max(self.waited_at, self.hold_until) if models and models.search.curve.log else self.waited_at
        waited = now - waited_at <= max(RECENTLY, 3.0 / self.rate)
        wanted = dt > 0.0 and waited and self.done != self.failed_after
        if now - self.answered_at > UNANSWERED and self.rate > UNPROVEN * self.settings.initial:
            wanted = False
        if models is None and seq >= MODELS_FROM:
            models = self._new_models(now)
            models.latency_model.begin(seq, self.done, now)
        if models is not None:
            if not waited and now - max(self.waited_at, self.hold_until) > max(IDLE, 3.0 / self.rate):
                models.idle(seq, now)
            models.advance(max(dt, 0.0), seq, depth, wanted, now)
        elif wanted:
            self.rate = self._within(doubled(self.rate, dt, search_doubling(self.rate), seq, self.settings.initial))

    def _publish(self, models: LimitModels, seq: int, depth: int, now: float) -> None:
        """Publish what the models say, and decide when to update again."""
        pace, hold, self.cap = models.verdict(seq, depth, now)
        self.rate = min(pace, self.settings.most) if models.told.steered else self._within(pace)
        self.hold_until = min(hold, now + LONGEST_WAIT)
        if models.search.phase is Phase.BLOCK:
            self.update_at = NEVER  # every call that leaves in a block matters
        elif models.search.phase in STEADY:
            self.update_at = self.updated_at + CRUISING_UPDATE

    def _within(self, pace: float) -> float:
        settings = self.settings
        return min(max(pace, settings.least), settings.most, max(FASTEST, settings.least))

    def _new_models(self, now: float) -> LimitModels:
        opened_at = self.opened_at if self.opened_at > NEVER else now
        search = RateSearch.start(self.settings.initial, self.rate, opened_at, self.settings.least)
        search.trace.listener = self.listener
        self.models = LimitModels(search=search)
        return self.models

    # -- answers that are not what was asked for --------------------------------------------------

    def _not_served(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        outcome, models = signal.outcome, self.models
        floor = min(max(0.0, signal.retry_after or 0.0), LONGEST_WAIT)
        if outcome is Outcome.RATE_LIMITED:
            models = models or self._new_models(now)
            self._advance(ticket.gate.seq, ticket.depth, now)
            skip = models.refused(ticket, latency, floor, max(self.deepest, self.deepest_before), now)
        else:
            skip = 0.0
            if outcome.counts_against_target:
                self.failures = self.failures + 1 if self.failed_after == self.done else 1
                self.failed_after = self.done
            if models is None:
                return 0.0
            if self.failures >= DOWN and self.failed_after == self.done:
                models.search.estimator.forget()
            if floor > 0.0:
                models.search.hold(now + floor, now)
        models.latency_model.drop(ticket.seq)
        self._publish(models, ticket.gate.seq, ticket.depth, now)
        return skip


def factory(options: ControllerOptions) -> ControllerFactory:
    settings = AdaptiveSettings(**rate_bounds(options))
    return lambda: Adaptive(settings)
