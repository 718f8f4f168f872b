"""Many keys, many threads, many loops: the gates of ``core``, and the waiting in front of them.

One lock guards all keys and is held only while deciding, about a microsecond, never over
user code or a wait. Whoever must wait stands in the line of its key (``line.py``); keys come and
go in ``keys.py``; what is learned and decided is ``core.gate``.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from types import TracebackType
from typing import Any, TypeVar

from ..clock import Clock, SystemClock
from ..config import RateLimitConfig
from ..core.decision import UNKNOWN, CircuitState, Outcome, Refuse, Wait
from ..core.gate import INSTANT
from ..core.signal import SILENT, Signal
from ..errors import CircuitOpenError, ConfigError, CostTooLargeError, Refused, WaitTooLongError
from ..events import Event
from .keys import KeyGate, Keys
from .line import MOST_WAITING, Line, TaskWaiter, ThreadWaiter, Waiter
from .permit import Feedback, LongPermit, Permit, signal_of
from .snapshot import LimiterSnapshot, key_snapshot

log = logging.getLogger("headgate")

Cost = float | Mapping[str, float]
CANNOT_LEARN_AFTER = 20
"""Permits without a single report after which it is worth a warning."""
MOST_DIMENSIONS = 32
MOST_ALSO = 16
NOT_LET_THROUGH = "not let through within the time allowed"
_AGAIN = (Outcome.RATE_LIMITED, Outcome.OVERLOADED, Outcome.TRANSIENT)
_OK = SILENT[Outcome.OK]
_W = TypeVar("_W", ThreadWaiter, TaskWaiter)


class AdaptiveRateLimiter:
    """Lets calls through as fast as each key's server will really take them.

    Safe for threads and for asyncio at once, bound to no event loop, without a thread of its own.

        limiter = AdaptiveRateLimiter()
        with limiter.permit("api.example.com") as permit:
            permit.report(requests.get(...))
    """

    def __init__(
        self,
        config: RateLimitConfig | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.config = RateLimitConfig() if config is None else config
        self.clock: Clock = SystemClock() if clock is None else clock
        self._rng = random.Random() if rng is None else rng
        self._on_event = on_event
        self._events: list[Event] = []
        self._lock = threading.Lock()
        self._take_lock, self._free_lock = self._lock.acquire, self._lock.release
        self._now = self.clock.now
        self._keys = Keys(self.config, self)
        self._gates = self._keys.gates
        self._find = self._gates.get
        self._waited = self._denied = self._again = 0
        self._warned = False

    # ------------------------------------------------------------------ getting a permit

    def acquire(
        self,
        key: str,
        cost: Cost = 1,
        max_wait: float | None = None,
        deadline_at: float | None = None,
        also: Iterable[str] = (),
    ) -> Permit:
        """Wait, in this thread, until the call may start.

        ``max_wait`` and ``deadline_at`` (an instant on the limiter's clock) are promises: if they
        cannot be kept, ``WaitTooLongError`` is raised at once. ``cost`` is a number of requests or what
        the call takes of each known limit. With ``also``, the call is let through under all keys or none.
        """
        if cost == 1 and deadline_at is None and not also:  # nearly every call; written out, since a call costs
            self._take_lock()
            try:
                gate = self._find(key)
                permit = None if gate is None else gate.ask_plainly(self._now())
            finally:
                self._free_lock()
            if permit is not None:
                return permit
        waiter = self._line_up(ThreadWaiter, key, cost, max_wait, deadline_at, also)
        if isinstance(waiter, Permit):
            return waiter
        try:
            while not waiter.settled:
                waiter.sleep()
                self.tick(waiter)
        except BaseException:
            self._step_out(waiter)
            raise
        return waiter.outcome()

    async def acquire_async(
        self,
        key: str,
        cost: Cost = 1,
        max_wait: float | None = None,
        deadline_at: float | None = None,
        also: Iterable[str] = (),
    ) -> Permit:
        """Wait, in this task, until the call may start. Cancelling the wait takes nothing."""
        if cost == 1 and deadline_at is None and not also:  # as in acquire
            self._take_lock()
            try:
                gate = self._find(key)
                permit = None if gate is None else gate.ask_plainly(self._now())
            finally:
                self._free_lock()
            if permit is not None:
                return permit
        return await self._wait_async(self._line_up(TaskWaiter, key, cost, max_wait, deadline_at, also))

    async def _wait_async(self, waiter: TaskWaiter | Permit) -> Permit:
        if isinstance(waiter, Permit):
            return waiter
        try:
            if not waiter.settled:
                await waiter.future
        except BaseException:
            self._step_out(waiter)
            raise
        finally:
            waiter.disarm()
        return waiter.outcome()

    def try_acquire(self, key: str, cost: Cost = 1, also: Iterable[str] = ()) -> Permit | None:
        """A permit if the call may start this instant, else None. Never waits, never overtakes anyone."""
        with self._lock:
            now = self._now()
            gates = self._open(key, also, cost, now)
            if any(gate.waited_for for gate in gates):
                return None
            _, decision = self._admit(gates, now, now, cost)
        self._flush()
        return decision if isinstance(decision, Permit) else None

    def permit(
        self,
        key: str,
        cost: Cost = 1,
        max_wait: float | None = None,
        deadline_at: float | None = None,
        also: Iterable[str] = (),
    ) -> PermitContext:
        """For ``with`` and ``async with``: acquires on entering, ends the permit on leaving."""
        return PermitContext(self, key, {"cost": cost, "max_wait": max_wait, "deadline_at": deadline_at, "also": also})

    # ------------------------------------------------------------------ ending a permit

    def end(self, permit: Permit, signal: Signal, latency: float | None, cost: Cost | None) -> None:
        """Take an answer. Called by ``permit.report``."""
        draw = 0.0 if signal.retry_after is None else self._rng.random()
        self._take_lock()
        try:
            now = self._now()  # read under the lock, so that no two decisions see time go back
            if latency is None or not latency >= 0.0:
                latency = now - permit.sent_at
            if permit.others:
                permit = self._named_by(signal, permit, now)
            gate = permit.gate
            before = None if self._on_event is None else self._look(gate)
            if gate.report(permit, signal, latency, now, draw):
                gate.used_at = now
                self._gates.move_to_end(gate.key)
                if signal is not _OK:
                    self._again += signal.outcome in _AGAIN
                if cost is not None:
                    gate.settle(permit, cost if isinstance(cost, Mapping) else {"requests": cost})
                if before is not None:
                    self._note_changes(gate, before, now)
            if gate.waited_for:
                self._serve(gate, now)
            if now >= self._keys.tidy_at:
                self._keys.tidy(now)
        finally:
            self._free_lock()
        if self._events:
            self._flush()

    def drop(self, permit: Permit, *, sent: bool) -> None:
        """Take a permit back without an outcome. Called by ``permit.release`` and ``permit.abandon``."""
        with self._lock:
            now = self._now()
            self._give_back(permit, sent, now)
        self._flush()

    def feedback(self, key: str, feedback: Feedback) -> None:
        """Teach a key how a call ended: its oldest open permit if that fits, else a call we did not see."""
        wall = self.clock.wall()
        signal = signal_of(feedback.err, feedback.status_code, feedback.headers, None, feedback.retry_after, wall)
        latency = feedback.latency if feedback.latency >= 0 else 0.0
        draw = 0.0 if signal.retry_after is None else self._rng.random()
        with self._lock:
            now = self._now()
            gate = self._keys.open(key, now)
            before = self._look(gate)
            gate.teach(signal, latency, now, draw)
            self._again += signal.outcome in _AGAIN
            self._note_changes(gate, before, now)
            self._serve(gate, now)
        self._flush()

    def _give_back(self, permit: Permit, sent: bool, now: float) -> None:
        for one in (permit, *permit.others):
            if one.gate.release(one) if sent else one.gate.abandon(one):
                self._keys.touch(one.gate, now)
            self._serve(one.gate, now)

    def _named_by(self, signal: Signal, permit: Permit, now: float) -> Permit:
        """The permit of the key that the answer speaks of, else the first; the others are released."""
        permits = (permit, *permit.others)
        named = next((one for one in permits if signal.scope and signal.scope in one.gate.key), permit)
        for one in permits:
            if one is not named:
                one.gate.release(one)
                self._serve(one.gate, now)
        return named

    # ------------------------------------------------------------------ looking

    def snapshot(self, top: int = 100) -> LimiterSnapshot:
        """What is going on: totals, and the ``top`` keys that were used last."""
        if not top >= 0:
            raise ConfigError(f"top={top!r} must be 0 or more")
        with self._lock:
            now = self._now()
            self._keys.tidy(now)
            states = [gate.breaker.state_at(now) for gate in self._gates.values()]
            return LimiterSnapshot(
                total=self._keys.calls(),
                throttled=self._waited,
                denied=self._denied,
                retries=self._again,
                open_circuits=states.count(CircuitState.OPEN),
                half_open_circuits=states.count(CircuitState.HALF_OPEN),
                keys=[key_snapshot(gate, now) for gate in self._keys.newest(top, now)],
            )

    # ------------------------------------------------------------------ waiting

    def tick(self, waiter: Waiter) -> None:
        """A waiter woke up: serve its lines, and let it go if it can wait no longer."""
        with self._lock:
            now = self._now()
            waiter.is_up()
            for gate in waiter.gates:
                self._serve(gate, now)
            if not waiter.settled and now >= waiter.give_up_at:
                self._settle(waiter, None, WaitTooLongError(waiter.gates[0].key, NOT_LET_THROUGH))
                for gate in waiter.gates:
                    self._serve(gate, now)
        self._flush()

    def _line_up(
        self,
        kind: type[_W],
        key: str,
        cost: Cost,
        max_wait: float | None,
        deadline_at: float | None,
        also: Iterable[str],
    ) -> _W | Permit:
        """A permit if there is nobody to wait for and nothing to wait for, else a place in line."""
        if max_wait is not None and not max_wait >= 0:
            raise ConfigError(f"max_wait={max_wait!r} must be a number of seconds, 0 or more")
        if deadline_at is not None and deadline_at != deadline_at:
            raise ConfigError(f"deadline_at={deadline_at!r} must be an instant on the limiter's clock")
        with self._lock:
            now = self._now()
            give_up_at = min(
                UNKNOWN if deadline_at is None else deadline_at, UNKNOWN if max_wait is None else now + max_wait
            )
            gates = self._open(key, also, cost, now)
            decider: KeyGate
            decision: Permit | Wait | Refuse
            if any(gate.waited_for for gate in gates):
                decider, decision = self._forecast(gates, cost, now)
            elif now > give_up_at:
                decider, decision = gates[0], Wait(now, "", "its deadline has passed")
            else:
                decider, decision = self._admit(gates, now, now, cost)
            place: _W | Permit | Refused
            if isinstance(decision, Permit):
                place = decision
            elif isinstance(decision, Refuse):
                place = self._refusal(decider, decision, now)
            elif now > give_up_at or (decision.is_forecast and decision.until > give_up_at + INSTANT):
                wait = max(0.0, decision.until - now) if decision.is_forecast else None
                place = WaitTooLongError(decider.key, f"the wait would be too long: {decision.reason}", wait)
            else:
                place = kind(self, gates, cost, now, give_up_at)
                for gate in gates:
                    self._join(gate, place, now)
                if give_up_at != UNKNOWN:
                    place.arm(give_up_at)
                self._serve(gates[0], now)
            if isinstance(place, Refused):
                self._denied += 1
                self.note("refused", decider, now, place.reason)
        for gate in gates:
            if gate.seq >= gate.check_at:
                self._look_after(gate, now)
        self._flush()
        if isinstance(place, Refused):
            raise place
        return place

    def _join(self, gate: KeyGate, waiter: Waiter, now: float) -> None:
        if gate.line is None:
            gate.line = Line()
            gate.waited_for = True
            gate.follow(now)
        gate.line.join(waiter)

    def _forecast(self, gates: list[KeyGate], cost: Cost, now: float) -> tuple[KeyGate, Wait | Refuse]:
        """When the turn of somebody who lines up now would come, and which key decides that."""
        latest, decides = Wait(now, "", ""), gates[0]
        for gate in gates:
            line = gate.line
            if line is None:
                decision = gate.objection(now, cost)
            elif len(line) >= MOST_WAITING:
                return gate, Refuse("line_full", f"{MOST_WAITING} callers are waiting already")
            else:
                decision = gate.objection(now, cost, line.requests, line.costs)
            if isinstance(decision, Refuse):
                return gate, decision
            if decision is not None and decision.until > latest.until:
                latest, decides = decision, gate
        return decides, latest

    def _serve(self, first: KeyGate, now: float) -> None:
        """Let through whoever's turn has come, and set the timer of the one after."""
        to_serve = [first]
        while to_serve:
            gate = to_serve.pop()
            line = gate.line
            if line is None:
                continue
            while (head := line.head()) is not None:
                if len(head.gates) > 1 and any(
                    other.line is None or other.line.head() is not head for other in head.gates
                ):
                    break
                decider, decision = self._admit(head.gates, now, head.asked_at, head.cost)
                if isinstance(decision, Wait):
                    self._keep_promises(gate, line, now)
                    if not head.settled:
                        head.arm(decision.until)
                        break
                elif isinstance(decision, Refuse):
                    self._settle(head, None, self._refusal(decider, decision, now))
                else:
                    self._settle(head, decision, None)
                to_serve.extend(other for other in head.gates if other is not gate)
            if head is None:
                gate.line = None
                gate.end_of_line(now)

    def _keep_promises(self, gate: KeyGate, line: Line, now: float) -> None:
        """If the forecast has worsened, tell those who would now wait too long, at once."""
        if not line.has_worsened(gate.rate, gate.shut_until()):
            return
        ahead = Line()
        for waiter in list(line.waiters):
            if waiter.settled:
                continue
            if waiter.give_up_at != UNKNOWN:
                wait = gate.objection(now, waiter.cost, ahead.requests, ahead.costs)
                if isinstance(wait, Wait) and wait.is_forecast and wait.until > waiter.give_up_at + INSTANT:
                    reason = f"the wait has become too long: {wait.reason}"
                    self._settle(waiter, None, WaitTooLongError(gate.key, reason, wait.until - now))
                    continue
            ahead.join(waiter)

    def _admit(
        self, gates: list[KeyGate], now: float, asked_at: float, cost: Cost
    ) -> tuple[KeyGate, Permit | Wait | Refuse]:
        """Let a call through under all of its keys, or say which of them objects most."""
        longest: tuple[KeyGate, Wait] | None = None
        for gate in gates:
            objection = gate.objection(now, cost)
            if isinstance(objection, Refuse):
                return gate, objection
            if objection is not None and (longest is None or objection.until > longest[1].until):
                longest = gate, objection
        if longest is not None:
            longest[0].ask(now, cost)  # so that its controller knows that somebody waits
            return longest
        permit, *others = [gate.admit(now, cost, asked_at) for gate in gates]
        if others:
            permit = LongPermit(permit.gate, permit.seq, now, permit.depth, cost, now - asked_at)
            permit.others = tuple(others)
        return gates[0], permit

    def _settle(self, waiter: Waiter, permit: Permit | None, refusal: Refused | None) -> None:
        """End a wait."""
        waiter.settle(permit, refusal)
        for gate in waiter.gates:
            if gate.line is not None:
                gate.line.leave(waiter)
        self._waited += permit is not None and permit.waited > 0

    def _step_out(self, waiter: Waiter) -> None:
        """The caller was cancelled or interrupted: nothing stays taken, and nobody behind it is held up."""
        with self._lock:
            now = self._now()
            if waiter.permit is not None:
                self._give_back(waiter.permit, False, now)
            elif not waiter.settled:
                self._settle(waiter, None, None)
            for gate in waiter.gates:
                self._serve(gate, now)
        self._flush()

    def _open(self, key: str, also: Iterable[str], cost: Cost, now: float) -> list[KeyGate]:
        """The gates of a call, its own first and the others in sorted order, and a cost that can fit."""
        if isinstance(cost, Mapping):
            amounts = list(cost.values())
            fine = 0 < len(amounts) <= MOST_DIMENSIONS and all(isfinite(amount) and amount >= 0 for amount in amounts)
        else:
            fine = isfinite(cost) and cost > 0
        if not fine:
            raise ConfigError(f"cost={cost!r} must be a finite number above 0, or such numbers by dimension")
        gate = self._keys.open(key, now)
        more = {other.key: other for other in (self._keys.open(name, now) for name in also) if other is not gate}
        if len(more) > MOST_ALSO:
            raise ConfigError(f"also={len(more)} keys must be at most {MOST_ALSO}")
        gates = [gate, *(more[name] for name in sorted(more))]
        for one in gates:
            amounts_of = cost if isinstance(cost, Mapping) else {"requests": cost}
            dimension = None if one.buckets is None else one.buckets.never_fits(amounts_of)
            if dimension is not None:
                limit = one.policy.quotas[dimension].amount
                reason = f"cost[{dimension!r}]={amounts_of[dimension]:,.10g} is above the limit of {limit:,.10g}"
                raise CostTooLargeError(one.key, f"{reason} and would never fit")
        return gates

    def _refusal(self, gate: KeyGate, refusal: Refuse, now: float) -> Refused:
        retry_after = None if refusal.retry_at is None else max(0.0, refusal.retry_at - now)
        kind = WaitTooLongError if refusal.code == "line_full" else CircuitOpenError
        return kind(gate.key, refusal.reason, retry_after)

    # ------------------------------------------------------------------ telling

    @property
    def is_watched(self) -> bool:
        return self._on_event is not None

    def note(self, kind: str, gate: KeyGate, now: float, reason: str) -> None:
        """Remember a fact, to be told once the lock is free."""
        if self._on_event is not None:
            state = gate.breaker.state_at(now).value
            self._events.append(Event(at=now, kind=kind, key=gate.key, reason=reason, rate=gate.rate, state=state))

    def _look(self, gate: KeyGate) -> tuple[float, CircuitState, float]:
        return (gate.rate, gate.breaker.state, gate.shut_until())

    def _note_changes(self, gate: KeyGate, before: tuple[float, CircuitState, float], now: float) -> None:
        rate, state, shut_until = before
        if gate.breaker.state is not state:
            self.note("circuit_changed", gate, now, f"{state.value} to {gate.breaker.state.value}")
        if gate.rate != rate:
            self.note("rate_changed", gate, now, f"{rate:.4g} to {gate.rate:.4g} calls/s, {gate.controller.why()}")
        if gate.shut_until() > max(shut_until, now):
            self.note("held", gate, now, gate.why(now))

    def _flush(self) -> None:
        """Tell what happened, with no lock held: a listener may call the limiter."""
        while self._events and self._on_event is not None:
            self._on_event(self._events.pop(0))

    def _look_after(self, gate: KeyGate, now: float) -> None:
        """Every so many calls: count off permits that were never ended, and say so if nothing is ever reported."""
        with self._lock:
            gate.let_go(now)
            silent = gate.answers == 0 and gate.seq >= CANNOT_LEARN_AFTER and not self._warned
            if silent:
                self._warned = True
                self.note("cannot_learn", gate, now, f"{gate.seq} permits and no report")
        if silent:
            log.warning(
                "%s: %d permits were given and none was reported, so nothing can be learned; "
                "call permit.report(response) after each call",
                gate.key,
                gate.seq,
            )
            self._flush()


class PermitContext:
    """``with limiter.permit(key) as permit`` and ``async with``: one permit for one block."""

    __slots__ = ("_arguments", "_limiter", "_permit")

    def __init__(self, limiter: AdaptiveRateLimiter, key: str, arguments: dict[str, Any]) -> None:
        self._limiter = limiter
        self._arguments = {"key": key, **arguments}
        self._permit: Permit | None = None

    def __enter__(self) -> Permit:
        self._permit = self._limiter.acquire(**self._arguments)
        return self._permit

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._permit is not None
        self._permit.__exit__(kind, error, trace)

    async def __aenter__(self) -> Permit:
        self._permit = await self._limiter.acquire_async(**self._arguments)
        return self._permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)
