"""Who waits, in which order, and who is let through: the lines of all keys under one lock.

    the line is empty, nothing objects ──> a permit
    something objects ──> a place in line ──its turn──> notified ──it runs, nothing objects──> a permit
                               │ no longer worth waiting
                               └──> a refusal

Any thread that holds the lock may serve a line. That is done when a timer fires, when an answer
comes in and when a permit is given back: everything that can bring a waiter's turn. The waiter takes its token
itself, when it runs: what it takes counts from the moment at which its call starts. Nothing
of the user's runs under the lock; what listeners are told is told after it.
"""

from __future__ import annotations

import logging
import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from .. import fork_safety
from ..clock import Clock, SystemClock
from ..config import RateLimitConfig
from ..core.asking import FIRST_CHECK
from ..core.decision import LONGEST_WAIT, UNKNOWN, Outcome, Refuse, Wait
from ..core.signal import SILENT, Signal
from ..errors import CircuitOpenError, Refused, TooManyKeysError, WaitTooLongError
from ..events import Event
from . import turns
from .checks import Cost, check_also, check_cost, check_wait, real_cost
from .key_gate import KeyGate
from .keys import TIDY_STEPS, Keys
from .line import Line, Waiter
from .permit import LongPermit, Permit
from .telling import Telling

if TYPE_CHECKING:
    from ..stores.contract import Store
    from .sharing import Sharing

log = logging.getLogger("headgate")

LONGEST_DECISION = 0.5
"""Nobody holds the lock for so many seconds, unless it is the one who asks for it."""
LOOK_AGAIN = 60.0
"""Seconds after which a waiter looks whether the limiter is still paused; resuming it serves everybody at once."""
AGAIN = (Outcome.RATE_LIMITED, Outcome.OVERLOADED, Outcome.TRANSIENT)
_OK = SILENT[Outcome.OK]
_PARTS = re.compile(r"[/:|\s]")


class Serving:
    """The inside of an ``AdaptiveRateLimiter``."""

    def __init__(
        self,
        config: RateLimitConfig | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        on_event: Callable[[Event], None] | None = None,
        for_key: Callable[[str], RateLimitConfig] | None = None,
        store: Store | str | None = None,
    ) -> None:
        """``store`` shares all keys with whoever uses the same one: "machine", "redis://...", or an object.

        ``for_key`` finds the settings of a key whose owner is not known yet; by default ``config`` does.
        It is asked under the lock and must give the very same object each time.
        """
        self.config = RateLimitConfig() if config is None else config
        self.clock: Clock = SystemClock() if clock is None else clock
        self._rng = random.Random() if rng is None else rng
        self.tell = Telling(on_event)
        self.lock = self._lock = fork_safety.lock()
        self._take_lock, self._free_lock = self._lock.acquire, self._lock.release
        self._left_to_do: deque[Callable[[], None]] = deque()
        self._now = self.clock.now
        self.draw = self._rng.random
        self._sharing = None if store is None else _share(store, self)
        self._keys = Keys(self.config, self, for_key or self.config.for_key, self._sharing)
        self._gates = self._keys.gates
        self._find: Callable[[str], KeyGate | None] = self._gates.get
        self._waited = self._denied = self._again = 0
        self._spent = {"requests"}
        """Dimensions of known limits that some call has spent, or that were warned of."""
        self.is_paused = False
        """Whether an operator lets nothing start, whatever the key."""
        self.warns_of_silence = True
        """Whether to say, once, that nothing can be learned because nothing is reported."""
        self._reseeds = rng is None
        fork_safety.start_over_in_child(self._start_over_in_child)

    def _start_over_in_child(self) -> None:
        """The callers, and the calls in flight, are the parent's; what was learned stays."""
        if self._reseeds:
            self._rng.seed()
        self._left_to_do.clear()
        self.tell.news.clear()
        if self._sharing is not None:
            self._sharing.start_over()
        now = self._now()
        for gate in self._gates.values():
            gate.start_over(now)

    def tick(self, waiter: Waiter) -> None:
        """A waiter runs: it takes its turn if that has come, serves its lines, and gives up when its time is over."""
        with self._lock:
            now = self._now()
            waiter.is_up()
            for gate in waiter.gates:
                if gate.line is not None:
                    gate.line.put_back(waiter)
            for gate in waiter.gates:
                self.serve(gate, now, waiter)
            if not waiter.settled and now >= waiter.give_up_at:
                decider, decision = self._forecast(waiter, waiter.gates, now)
                retry_after = decision.until - now if isinstance(decision, Wait) and decision.is_forecast else None
                reason = "not let through within the time allowed"
                refusal: Refused = WaitTooLongError(decider.key, reason, retry_after)
                if isinstance(decision, Wait) and decision.is_circuit:
                    refusal = CircuitOpenError(decider.key, decider.reason(decision, now), retry_after)
                self._settle(waiter, None, refusal, now)
                for gate in waiter.gates:
                    self.serve(gate, now)
            if not waiter.settled:
                waiter.watch_time()
        self._look_after_all(waiter.gates, now)
        self.tell.flush()

    def _line_up(
        self, waiter: Waiter, key: str, max_wait: float | None, deadline_at: float | None, also: Iterable[str]
    ) -> None:
        """Settle the waiter if the answer is known at once, else give it a place in line."""
        check_wait("max_wait", max_wait)
        check_wait("deadline_at", deadline_at, "-inf")
        check_cost(waiter.cost)
        keys = check_also(also)
        with self._lock:
            now = self._now()
            waiter.asked_at = now
            if deadline_at is not None:
                waiter.give_up_at = deadline_at
            if max_wait is not None:
                waiter.give_up_at = min(waiter.give_up_at, now + max_wait)
            give_up_at = waiter.wake_at = waiter.give_up_at
            gates = self._open(key, keys, waiter.cost, now)
            line_free = not any(gate.waited_for for gate in gates)
            decider, decision = (
                self._admit(gates, now, now, waiter.cost)
                if line_free and now <= give_up_at
                else self._forecast(waiter, gates, now)
            )
            if isinstance(decision, Permit):
                waiter.settle(decision, None)
            elif (refusal := turns.turned_away(decider, waiter.takes(decision), now, give_up_at)) is not None:
                waiter.settle(None, refusal)
                self._note_refusal(decider, refusal, now)
            else:
                waiter.gates = gates
                for gate in gates:
                    self._join(gate, waiter, now)
                waiter.watch_time()
                self._look_at_line(gates[0], waiter, now)
        self._look_after_all(gates, now)
        self.tell.flush()

    def _join(self, gate: KeyGate, waiter: Waiter, now: float) -> None:
        if gate.line is None:
            gate.line = Line()
            gate.waited_for = True
            gate.follow(now)
        gate.line.join(waiter)

    def _look_at_line(self, gate: KeyGate, joined: Waiter, now: float) -> None:
        """A waiter has joined: serve the line, unless that would only find what it found the last time."""
        line = gate.line
        if line is not None and line.is_arranged(gate.rate, now):
            gate.note_wait(line.forecast, now)
        else:
            self.serve(gate, now, joined)

    def _forecast(self, waiter: Waiter, gates: list[KeyGate], now: float) -> turns.Decision:
        """When the turn of a waiter would come that lines up now, and which key decides that."""
        decider, decision = turns.forecast(gates, waiter.cost, now)
        decision = waiter.takes(decision)
        if self.is_paused and isinstance(decision, Wait) and decision.until <= now + LOOK_AGAIN:
            return gates[0], Wait(now + LOOK_AGAIN, "paused")
        return decider, decision

    def serve(self, first: KeyGate, now: float, runs: Waiter | None = None) -> None:
        """Notify the waiters whose turn has come, and set the timer of the next one.

        The waiter that ``runs``, if it is one that calls this, takes its token at once.
        """
        to_serve = [first]
        while to_serve:
            gate = to_serve.pop()
            line = gate.line
            if line is None:
                continue
            while (dead := line.dead()) is not None:
                self._settle(dead, None, None, now)
                to_serve.extend(other for other in dead.gates if other is not gate)
            line.in_charge = None
            until = UNKNOWN
            while (head := line.next(now)) is not None:
                if head.is_dead():
                    self._settle(head, None, None, now)
                elif len(head.gates) > 1 and any(
                    other.line is None or other.line.next(now) is not head for other in head.gates
                ):
                    break
                else:
                    decision = self._offer_turn(head, now, takes=head is runs)
                    if isinstance(decision, Wait):
                        if line.take_forecast(head, decision, gate.rate, gate.opens_at):
                            to_serve.extend(self._keep_promises(gate, line, now))
                        if not head.settled:
                            until = decision.until
                            break
                to_serve.extend(other for other in head.gates if other is not gate)
            if len(line):
                line.arm(head, until, now)
                gate.is_served_late(bool(line.notified), now)
            else:
                gate.line = None
                gate.end_of_line(now)

    def _offer_turn(self, head: Waiter, now: float, *, takes: bool) -> Wait | None:
        """End the wait of the first in line, or notify it that its turn has come; returns what it has to wait for."""
        decision: Permit | Wait | Refuse | None
        try:
            if takes:
                decider, decision = self._admit(head.gates, now, head.asked_at, head.cost, head)
            else:
                decider, decision = self._objection(head.gates, now, head.cost, head) or (head.gates[0], None)
        except Exception as error:  # a strategy of the user's; it fails this call, not the ones behind it
            self._settle(head, None, error, now)
            return None
        if isinstance(decision, Wait | Refuse):
            decision = head.takes(decision)
        if isinstance(decision, Wait):
            return decision
        if isinstance(decision, Refuse):
            self._settle(head, None, turns.refused_by(decider, decision, now), now)
        elif decision is not None:
            self._settle(head, decision, None, now)
        else:
            for gate in head.gates:
                if gate.line is not None:
                    gate.line.notify(head, now)
            head.wake()
        return None

    def _keep_promises(self, gate: KeyGate, line: Line, now: float) -> list[KeyGate]:
        """The forecast has worsened: tell those who would now wait too long, at once. Returns what lines they leave."""
        left: list[KeyGate] = []
        for waiter, refusal in turns.cannot_wait(gate, line, now):
            self._settle(waiter, None, refusal, now)
            left.extend(other for other in waiter.gates if other is not gate)
        return left

    def _objection(
        self, gates: list[KeyGate], now: float, cost: Cost, waiter: Waiter | None = None
    ) -> turns.Decision | None:
        """What speaks against a call under all of its keys now: the longest wait, or a refusal."""
        if self.is_paused:
            return gates[0], Wait(now + LOOK_AGAIN, "paused")
        objection = turns.objection(gates, cost, now, waiter)
        if objection is not None:
            decider, decision = objection
            if isinstance(decision, Wait):
                decider.note_wait(decision, now)
        return objection

    def _admit(
        self, gates: list[KeyGate], now: float, asked_at: float, cost: Cost, waiter: Waiter | None = None
    ) -> tuple[KeyGate, Permit | Wait | Refuse]:
        """Let a call through under all of its keys, or say which of them objects most."""
        objection = self._objection(gates, now, cost, waiter)
        if objection is not None:
            return objection
        looks = [gate.look() for gate in gates] if self.tell.is_heard else []
        permit, *others = [gate.admit(now, cost, asked_at) for gate in gates]
        for gate, before in zip(gates, looks, strict=False):  # an open circuit lets its probe through
            self.tell.note_changes(gate, before, gate.look(), now)
        if others:
            permit = LongPermit(permit.gate, permit.seq, now, permit.depth, cost, now - asked_at)
            permit.others = tuple(others)
        return gates[0], permit

    def _settle(self, waiter: Waiter, permit: Permit | None, refusal: Exception | None, now: float) -> None:
        """End a wait."""
        waiter.settle(permit, refusal)
        if isinstance(refusal, Refused):
            self._note_refusal(waiter.gates[0], refusal, now)
        for gate in waiter.gates:
            if gate.line is not None:
                gate.line.leave(waiter)
        self._waited += permit is not None and permit.waited > 0

    def _step_out(self, waiter: Waiter) -> None:
        """The caller was cancelled or interrupted: nothing stays taken, and nobody behind it is held up."""

        def leave() -> None:
            now = self._now()
            if waiter.permit is not None:
                self._give_back(waiter.permit, False, now)
            if not waiter.settled:
                waiter.settle(None, None)
            for gate in waiter.gates:
                if gate.line is not None:
                    gate.line.leave(waiter)  # which it has, unless it was interrupted before that
                self.serve(gate, now)

        self._when_free(leave)

    def _open(self, key: str, also: tuple[str, ...], cost: Cost, now: float) -> list[KeyGate]:
        """The gates of a call, its own first and the others in sorted order, if the cost can ever fit."""
        gate = self._keys.open(key, now)
        more = {other.key: other for other in (self._keys.open(name, now) for name in also) if other is not gate}
        gates = [gate, *(more[name] for name in sorted(more))]
        if any(one.key not in self._gates for one in gates):  # the last to be opened took the place of the first
            raise TooManyKeysError(gate.key, f"max_keys={self.config.max_keys} is too small for so many keys at once")
        turns.check_fits(gates, cost)
        if not isinstance(cost, int | float) and not cost.keys() <= self._spent:
            self._spent.update(*(gate.policy.dimensions & cost.keys() for gate in gates))
        return gates

    def _note_refusal(self, gate: KeyGate, refusal: Refused, now: float) -> None:
        self._denied += 1
        self.tell.note("refused", gate, now, refusal.reason)

    def end(
        self,
        permit: Permit,
        signal: Signal,
        latency: float | None,
        cost: Cost | None,
        answer: object = None,
        is_call: bool = True,
    ) -> None:
        """Take an answer. Called by ``permit.report``.

        For those who watch calls: ``answer`` is what the signal was read from, and of two permits for one call only
        one ``is_call``.
        """
        real = None if cost is None else real_cost(cost)
        draw = 0.0 if signal.retry_after is None else self._rng.random()
        with self._lock:
            now = self._now()  # read under the lock, so that no two decisions see time go back
            if latency is None or not 0.0 <= latency <= LONGEST_WAIT:
                latency = now - permit.sent_at
            asked, ended = permit, False
            if permit.others:
                permit = self._named_by(signal, permit, real, now)
            gate = permit.gate
            before = gate.look() if self.tell.is_heard else None
            if gate.report(permit, signal, latency, now, draw):
                gate.used_at = now
                self._gates.move_to_end(gate.key)
                if signal is not _OK:
                    self._again += signal.outcome in AGAIN
                    gate.note(signal)
                    if signal.outcome is not Outcome.OK:
                        self.tell.note_state(gate, now)
                if real is not None:
                    self._spent.update(gate.policy.dimensions & real.keys())
                    gate.settle(permit, real)
                ended = is_call
                if before is not None and (after := gate.look()) != before:
                    self.tell.note_changes(gate, before, after, now)
            if gate.waited_for:
                self.serve(gate, now)
            if now >= self._keys.tidy_at:
                self._tidy(now)
        if self.tell.is_watched:
            if ended and self.tell.watchers:
                self.tell.called(asked, gate.key, signal, latency, now, answer, draw)
            if self.tell.news or self.tell.states:
                self.tell.flush()

    def drop(self, permit: Permit, *, sent: bool) -> None:
        """Take a permit back without an outcome. Called by ``permit.release`` and ``permit.abandon``."""
        is_watched = self.tell.watchers and permit.seq in permit.gate.flight.out
        self._when_free(lambda: self._give_back(permit, sent, self._now()))
        if is_watched:
            self.tell.dropped(permit, sent)

    def _when_free(self, act: Callable[[], None]) -> None:
        """Act under the lock, or leave it to the next who tidies up.

        Garbage collection can end a permit's block at any moment, also in the middle of a decision of this very
        thread; waiting for the lock would then be for ever.
        """
        if not self._lock.acquire(timeout=LONGEST_DECISION):
            self._left_to_do.append(act)
            return
        try:
            act()
        finally:
            self._lock.release()
        self.tell.flush()

    def _tidy(self, now: float, steps: int = TIDY_STEPS) -> None:
        while self._left_to_do:
            self._left_to_do.popleft()()
        self._keys.tidy(now, steps)

    def _give_back(self, permit: Permit, sent: bool, now: float) -> None:
        for one in (permit, *permit.others):
            if one.gate.release(one) if sent else one.gate.abandon(one):
                one.gate.released += sent
                self._keys.touch(one.gate, now)
            self.serve(one.gate, now)

    def _named_by(self, signal: Signal, permit: Permit, real: Mapping[str, float] | None, now: float) -> Permit:
        """The permit of the key that the answer speaks of, else the first; the others are released."""
        permits = (permit, *permit.others)
        named = next((one for one in permits if signal.scope in _PARTS.split(one.gate.key)), permit)
        for one in permits:
            if one is not named and one.gate.release(one):
                if real is not None:
                    one.gate.settle(one, real)
                self._keys.touch(one.gate, now)
                self.serve(one.gate, now)
        return named

    def _look_after_all(self, gates: list[KeyGate], now: float) -> None:
        for gate in gates:
            if gate.seq >= gate.check_at:
                self._look_after(gate, now)

    def _look_after(self, gate: KeyGate, now: float) -> None:
        """Every so many calls: count off permits that were never ended, and say so if nothing is ever reported."""
        with self._lock:
            gate.look_after(now)
            unspent = gate.policy.dimensions - self._spent if gate.learns else ()
            self._spent.update(unspent)
            silent = gate.learns and gate.answers == 0 and self.warns_of_silence
            if silent and gate.unreported(now) < FIRST_CHECK - 1:  # the last was given just now
                silent, gate.check_at = False, gate.seq + FIRST_CHECK
            if silent:
                self.warns_of_silence = False
                self.tell.note("cannot_learn", gate, now, f"{gate.seq} permits and no report")
        for dimension in sorted(unspent):
            log.warning(
                "%s: the limit on %r holds nothing back: of %d calls none had a cost with that name; "
                "write acquire(key, cost={%r: ...}), or correct the name in limits",
                gate.key,
                dimension,
                gate.seq,
                dimension,
                extra={"event": "limit_unspent"},
            )
        if silent:
            log.warning(
                "%s: %d permits were given and none was reported, so nothing can be learned; "
                "call permit.report(response) after each call",
                gate.key,
                gate.seq,
            )
            self.tell.flush()


def _share(store: Store | str, limiter: Serving) -> Sharing:
    from ..stores import open_store  # here, because most programs share nothing
    from .sharing import Sharing

    refuses = limiter.config.without_store == "refuse"
    return Sharing(open_store(store), limiter, refuses=refuses, owns_store=isinstance(store, str))
