"""Record all that a limiter decides, and decide it once more: the same questions, the same answers, in virtual time.

    recording = Recording(Path("run.jsonl"), Heading(calls=1000, workers=8), limiter)
    ...                                       # the run
    recording.end()

    trace = read_trace(Path("run.jsonl"))
    differences(trace, replay(trace))         # none if every decision is the same

    recorded:  asked ──waited──> let through ──> answered       by the callers, and a server
    replayed:  asked at the same instant ──?──> let through     by the limiter as it is now
               answered the same at the same instant ──?──> what is learned

A recording has every call (when it asked, when it was let through, its answer and when that came), every learned pace
and every change of a circuit.

*The same decisions* means, for every call and every key:

1. it is let through at the same instant, having waited for as long;
2. after every answer the same pace is learned, to within a millionth;
3. the circuit changes at the same instants, to the same states.

That holds for recordings of virtual time to the last digit but rounding. A clock of the real world wakes its waiters
a little late, by which calls leave a little later than was decided; then so do replayed ones leave a little earlier
than recorded, and what is learned from them may differ by as much. What is not in a recording cannot be the same:
questions that were refused, and permits that were given back unused.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ...config import RateLimitConfig
from ...core.decision import Outcome
from ...core.signal import Signal
from ...errors import Refused
from ...events import CallEvent, Event
from ...limiter import AdaptiveRateLimiter, Permit
from ...limiter.events import CallObserver
from ..virtual_time import LoopClock, run
from .trace import EXACTLY, RELEASED, Call, Circuit, Heading, Learned, Told, Trace, TraceWriter, by_key

OUTCOMES = {outcome.value: outcome for outcome in Outcome}
ROUNDING = 2e-9
"""Seconds by which what is written may be off; so late, a question comes after the answer that made a caller ask."""
MOST_TOLD = 20
"""Differences that are told."""


class Recording(CallObserver):
    def __init__(self, path: Path, heading: Heading, limiter: AdaptiveRateLimiter) -> None:
        """Record from now on. Raises ``OSError`` if the file cannot be opened."""
        self._writer = TraceWriter(path, heading)
        self._lock = threading.Lock()
        self._limiter = limiter
        self._began_at = limiter.clock.now()
        self._listener = limiter.on_event
        limiter.watch(self)
        limiter.on_event = self.hear

    @property
    def trouble(self) -> OSError | None:
        """Why it is not whole, if it is not."""
        return self._writer.trouble

    def end(self) -> None:
        """Stop recording."""
        self._limiter.unwatch(self)
        self._limiter.on_event = self._listener
        with self._lock:
            self._writer.end(self._limiter.clock.now() - self._began_at)

    # ------------------------------------------------------------------ what happens

    def ended(self, permit: Permit, call: CallEvent) -> None:
        signal = call.signal
        status = call.status or (200 if signal.outcome is Outcome.OK else 0)
        told = Told(
            outcome=signal.outcome.value,
            at=call.at - self._began_at,
            number=permit.seq,
            draw=call.draw,
            limits=signal.limits,
            scope=signal.scope,
            cost=call.cost,
        )
        sent_at = call.sent_at - self._began_at
        with self._lock:
            self._writer.call(call.key, sent_at, call.latency, status, call.waited, signal.retry_after, told=told)

    def dropped(self, permit: Permit, sent: bool) -> None:
        """Of what was not sent after all nothing is left: it has taken nothing."""
        if sent:
            now = self._limiter.clock.now()
            told = Told(outcome=RELEASED, at=now - self._began_at, number=permit.seq, cost=permit.cost)
            sent_at = permit.sent_at - self._began_at
            with self._lock:
                self._writer.call(permit.key, sent_at, now - permit.sent_at, 0, permit.waited, None, told=told)

    def hear(self, event: Event) -> None:
        at = event.at - self._began_at
        with self._lock:
            if event.kind == "rate_changed":
                self._writer.learned(event.key, at, event.rate, EXACTLY)
            elif event.kind == "circuit_changed":
                self._writer.circuit(event.key, at, event.state)
        if self._listener is not None:
            self._listener(event)


# -- replaying


class NotReplayableError(ValueError):
    """The recording does not tell enough."""


@dataclass(slots=True)
class Replayed:
    """What was decided this time."""

    let_through_at: list[float | None]
    """For each call of the recording; None if it was refused."""
    learned: list[Learned] = field(default_factory=list)
    circuits: list[Circuit] = field(default_factory=list)


def replay(trace: Trace, config: RateLimitConfig | None = None) -> Replayed:
    """Ask and answer as recorded; ``config`` is what the recorded limiter had."""
    if any(call.told is None for call in trace.calls):
        raise NotReplayableError(
            "this recording has calls without their outcome; see headgate.lab.traces.replay.Recording"
        )
    settings = config or RateLimitConfig(open_state_duration=trace.heading.open_for)
    result: Replayed = run(lambda clock: _Stage(trace, settings, clock).play())
    return result


class _Question(NamedTuple):
    at: float
    number: int
    call: Call


class _Chance(random.Random):
    """Draws what was drawn."""

    drawn = 0.0

    def random(self) -> float:
        return self.drawn


class _Stage:
    def __init__(self, trace: Trace, config: RateLimitConfig, clock: LoopClock) -> None:
        self._trace, self._clock = trace, clock
        self._chance = _Chance()
        self._limiter = AdaptiveRateLimiter(config, clock=clock, rng=self._chance, on_event=self._hear)
        self._limiter.allow_unreported()
        self._result = Replayed([None] * len(trace.calls))
        self._left = len(trace.calls)
        self._asking: set[asyncio.Task[None]] = set()

    async def play(self) -> Replayed:
        loop = asyncio.get_running_loop()
        self._loop, self._done = loop, loop.create_future()
        questions = deque(_questions(self._trace.calls))
        if questions:
            self._next(questions)
            await self._done
        return self._result

    # ------------------------------------------------------------------ asking

    def _next(self, questions: deque[_Question]) -> None:
        """Ask when it was asked; of one instant, answers come first: mostly one of them made a caller ask."""
        if questions:
            at = max(questions[0].at, self._clock.now())
            self._loop.call_at(at, self._loop.call_soon, self._ask, questions)

    def _ask(self, questions: deque[_Question]) -> None:
        _, number, call = questions.popleft()
        task = self._loop.create_task(self._take(number, call))
        self._asking.add(task)
        task.add_done_callback(self._asked)
        self._next(questions)

    async def _take(self, number: int, call: Call) -> None:
        assert call.told is not None
        try:
            permit = await self._limiter.acquire_async(str(call.key), call.told.cost)
        except Refused:
            self._ended()
            return
        self._result.let_through_at[number] = permit.sent_at
        self._loop.call_at(max(call.told.at, self._clock.now()), self._answer, permit, call)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._done.done():
            self._done.set_exception(error)

    # ------------------------------------------------------------------ answering

    def _answer(self, permit: Permit, call: Call) -> None:
        told = call.told
        assert told is not None
        if told.outcome == RELEASED:
            permit.release()
        else:
            self._chance.drawn = told.draw
            signal = Signal(
                outcome=OUTCOMES[told.outcome], retry_after=call.retry_after, limits=told.limits, scope=told.scope
            )
            permit.report_signal(signal, latency=call.latency)
        self._ended()

    def _ended(self) -> None:
        self._left -= 1
        if not self._left and not self._done.done():
            self._done.set_result(None)

    def _hear(self, event: Event) -> None:
        if event.kind == "rate_changed":
            self._result.learned.append(Learned(event.at, event.rate, int(event.key)))
        elif event.kind == "circuit_changed":
            self._result.circuits.append(Circuit(event.at, event.state, int(event.key)))


def _questions(calls: list[Call]) -> list[_Question]:
    """In the order in which they were asked. Queues are first come, first served: of one key, the call that left first
    was asked for first, even where what is written of the instants is off by a rounding."""
    latest: dict[int, float] = {}
    questions = []
    for number, call in sorted(enumerate(calls), key=lambda one: one[1].told.number if one[1].told else 0):
        asked_at = max(call.sent_at - call.waited + ROUNDING, latest.get(call.key, 0.0))
        latest[call.key] = asked_at
        questions.append(_Question(asked_at, number, call))
    return sorted(questions, key=lambda one: one.at)


_Changes: TypeAlias = Mapping[int, Sequence[Learned | Circuit]]
"""Of each key, in the order of time."""


def differences(trace: Trace, replayed: Replayed, within: float = 1e-6) -> list[str]:
    """What was decided otherwise than recorded, the first few of it; none if every decision is the same.

    ``within``: by how many seconds instants may differ, and by which share of them paces may.
    """
    found: list[str] = []
    for number, (call, at) in enumerate(zip(trace.calls, replayed.let_through_at, strict=True), 1):
        if at is None or abs(at - call.sent_at) > within:
            now = "refused" if at is None else f"admitted at {at:.6f}"
            found.append(f"call {number} of key {call.key}: admitted at {call.sent_at:.6f}, now {now}")
    found += _changes("pace", _paces(trace.learned, within), _paces(replayed.learned, within), within)
    found += _changes("circuit", by_key(trace.circuits), by_key(replayed.circuits), within)
    return found[:MOST_TOLD]


def _changes(what: str, recorded: _Changes, decided: _Changes, within: float) -> Iterator[str]:
    for key in sorted(recorded.keys() | decided.keys()):
        for then, now in zip_longest(recorded.get(key, ()), decided.get(key, ())):
            if then is None or now is None or not _is_same(then, now, within):
                yield f"{what} of key {key}: {_words(then)}, now {_words(now)}"


def _paces(learned: list[Learned], within: float) -> dict[int, list[Learned]]:
    """The learned paces of each key, without changes in the last digits only."""
    found: dict[int, list[Learned]] = {}
    for one in learned:
        before = found.setdefault(one.key, [])
        if not before or abs(before[-1].rate - one.rate) > within * one.rate:
            before.append(one)
    return found


def _is_same(then: Learned | Circuit, now: Learned | Circuit, within: float) -> bool:
    if abs(then.at - now.at) > within:
        return False
    if isinstance(then, Learned) and isinstance(now, Learned):
        return abs(then.rate - now.rate) <= within * max(then.rate, now.rate)
    return then[1] == now[1]


def _words(change: Learned | Circuit | None) -> str:
    return "nothing" if change is None else f"{change[1]} at {change.at:.6f}"
