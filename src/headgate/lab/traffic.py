"""What goes between the clients and the server of a run: items that want to be done, and calls on their way.

    Backlog ──item──> a worker ──Network.send──> the server, half a round trip later
                        ^                            │
                        └──── the answer, or silence until the worker's timeout

With all items there from the start a worker takes the next one as soon as it is free. With a stream,
items queue up until a worker of any process is free, or workers until an item comes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from .measures import Run
from .scenario import Scenario
from .simulated_server import FAILED, OK, Answer, SimulatedServer
from .virtual_time import LoopClock, VirtualLoop

TIMED_OUT = 0
"""The status of a call that got no answer in time."""

MOST_QUEUED = 1_000_000
"""Items of a stream that may wait for a worker."""

Answered = Callable[["Call", Answer], None]


class Item:
    """Something to be done, by as many calls as it takes."""

    __slots__ = ("asked_at", "first_sent_at", "tokens")

    def __init__(self, asked_at: float, tokens: float) -> None:
        self.asked_at = asked_at
        """Since when it waits to be sent, for the first time or again."""
        self.first_sent_at = math.nan
        self.tokens = tokens


class Call:
    """One attempt at an item, on its way."""

    __slots__ = ("answered", "item", "key", "process", "sent_at")

    def __init__(self, process: int, key: int, item: Item, sent_at: float, answered: Answered) -> None:
        self.process = process
        self.key = key
        self.item = item
        self.sent_at = sent_at
        self.answered = answered


class Taker(Protocol):
    """A client with a worker to spare."""

    def give(self, item: Item) -> None: ...


class Backlog:
    """Where all workers get their items from."""

    def __init__(self, loop: VirtualLoop, clock: LoopClock, scenario: Scenario, rng: Random) -> None:
        self._loop = loop
        self._clock = clock
        self._scenario = scenario
        self._rng = rng
        self._arrivals = scenario.arrival_times()
        self._queue: deque[Item] = deque()
        self._spare: deque[Taker] = deque()
        """Clients in the order in which a worker of theirs became free: one entry for each idle worker."""
        self._await_next()

    def __len__(self) -> int:
        return len(self._queue)

    def take(self, taker: Taker) -> Item | None:
        """The next item; or None, and it will be given later."""
        if not self._scenario.arrivals:
            return self._make()
        if self._queue:
            return self._queue.popleft()
        self._spare.append(taker)
        return None

    def _make(self) -> Item:
        scenario = self._scenario
        return Item(self._clock.time, scenario.draw_tokens(self._rng) if scenario.tokens else 0.0)

    def _arrive(self) -> None:
        if self._spare:
            self._spare.popleft().give(self._make())
        elif len(self._queue) < MOST_QUEUED:
            self._queue.append(self._make())
        else:
            raise RuntimeError(f"{MOST_QUEUED:,} items wait for a worker; lower the arrival rate or its duration")
        self._await_next()

    def _await_next(self) -> None:
        at = next(self._arrivals, None)
        if at is not None:
            self._loop.call_at(at, self._arrive)


class Network:
    """Takes calls to the server and answers back, each way with its own delay."""

    def __init__(
        self, loop: VirtualLoop, clock: LoopClock, server: SimulatedServer, scenario: Scenario, run: Run, rng: Random
    ) -> None:
        self._call_at = loop.call_at
        self._clock = clock
        self._server = server
        self._run = run
        self._draw = rng.random
        self._one_way = scenario.round_trip / 2
        self._jitter = scenario.jitter
        self._timeout = scenario.timeout

    def send(self, call: Call, *, foreseen: bool = False) -> None:
        """Send a call now; its ``answered`` is called when the answer is back.

        With ``foreseen`` the server decides at once what it will do when the call arrives, and there is no jitter.
        """
        now, item = call.sent_at, call.item
        self._run.note_sent(now - item.asked_at)
        if item.first_sent_at != item.first_sent_at:
            item.first_sent_at = now
        if foreseen:
            self._decide(call, now + self._one_way, self._one_way)
        else:
            self._call_at(now + self._delay(), self._arrive, call)

    def _delay(self) -> float:
        return self._one_way * (1 + self._jitter * (2 * self._draw() - 1))

    def _arrive(self, call: Call) -> None:
        self._decide(call, self._clock.time, self._delay())

    def _decide(self, call: Call, now: float, way_back: float) -> None:
        answer = self._server.answer(now, call.key, call.item.tokens)
        back_at, give_up_at = now + answer.after + way_back, call.sent_at + self._timeout
        if back_at > give_up_at:
            self._call_at(give_up_at, self._land, call, _NO_ANSWER)
            return
        self._run.note_arrived(now, _booked(answer), answer.refused)
        self._call_at(back_at, self._land, call, answer)

    def _land(self, call: Call, answer: Answer) -> None:
        self._run.note_answered(
            self._clock.time, call.process, _booked(answer), answer.refused, call.item.first_sent_at
        )
        call.answered(call, answer)


_NO_ANSWER = Answer(TIMED_OUT, math.inf, None, False)


def _booked(answer: Answer) -> int:
    """The status that counts: an error inside a 200 is a failure."""
    return FAILED if answer.body is not None and answer.status == OK else answer.status


@dataclass(frozen=True, slots=True)
class RunContext:
    """What all clients of a run have in common."""

    scenario: Scenario
    loop: VirtualLoop
    clock: LoopClock
    network: Network
    backlog: Backlog
