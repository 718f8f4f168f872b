"""Clients of the simulated server: the real limiter, or anything behind the two-method contract.

    LimiterClient     one AdaptiveRateLimiter per process, its workers are tasks:
                      acquire_async ──> call ──> permit.report
    ContractClient    workers behind on_send / on_response:
                      pump: while a worker has an item, ask; send, or come back when told

Both take items from the backlog of their process, send until an item is done, and can be looked at.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from random import Random
from typing import Protocol

from ..config import RateLimitConfig
from ..controllers.adaptive.trace import TraceEvent
from ..core.decision import CircuitState
from ..core.gate import Gate
from ..errors import CircuitOpenError
from ..formatting import format_seconds
from ..limiter import AdaptiveRateLimiter, Permit
from ..reason_text import controller_text, paced_text
from .adapters import Client as Plug
from .baselines.contract import Contract
from .simulated_server import Answer
from .traffic import TIMED_OUT, Call, Item, RunContext

# -- what can be observed of the clients of a run, without touching anything
# Asking a gate why it would wait brings its bucket up to date, and with it the last bit of its numbers. A run that
# is watched must be the same as one that is not, so only what can be read is read here.

MOST_REASONS = 4


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """One client at one moment."""

    learned: Mapping[Gate, float]
    """Calls a second that each gate believes in; clients of one gate say the same of it."""
    in_flight: int
    waiting: int
    reason: str


def client_status(gates: Iterable[Gate], now: float, in_flight: int, waiting: int) -> ClientStatus:
    learned = {gate: gate.pacer.learned_rate for gate in gates}
    reasons = dict.fromkeys(_reason(gate, now) for gate in islice(learned, MOST_REASONS))
    return ClientStatus(learned, in_flight, waiting, "; ".join(reasons))


def _reason(gate: Gate, now: float) -> str:
    state = gate.breaker.state_at(now)
    if state is not CircuitState.CLOSED:
        return f"circuit {state.value}"
    note = controller_text(gate.controller.why())
    if gate.hold.opens_at > now:
        return f"nothing starts for {format_seconds(gate.hold.opens_at - now)}, {note}"
    return f"{paced_text(gate.pacer.learned_rate)}, {note}"


SHORTEST_WAIT = 1e-5
"""A contract that wants to be asked again sooner than this is asked after this."""
LONGEST_REST = 0.25
"""A worker that the gate refused asks again after this at the latest: a circuit may close sooner than foretold."""
KEYS_LOOKED_AT = 16
"""Of many keys a worker looks at so many before it joins a line."""

TraceListener = Callable[[int, float, TraceEvent], None]
"""Takes what a controller decides: of which key, when, and what."""


class Client(Protocol):
    def start(self) -> None: ...

    def status(self) -> ClientStatus: ...


class ContractClient:
    """Workers that share one contract for each key."""

    def __init__(
        self, context: RunContext, *, process: int, contracts: Sequence[Contract], workers: int, foreseen: bool = False
    ) -> None:
        self._loop, self._clock = context.loop, context.clock
        self._network, self._backlog = context.network, context.backlog
        self._process = process
        self._contracts = contracts
        self._workers = workers
        self._foreseen = foreseen
        self._wanting: deque[Item] = deque()
        """Items that workers hold and want to send; never more than there are workers."""
        self._in_flight = 0
        self._key = len(contracts) - 1
        """The one used last."""
        self._wake: asyncio.TimerHandle | None = None

    def start(self) -> None:
        for _ in range(self._workers):
            self._take()
        self._pump()

    def give(self, item: Item) -> None:
        self._wanting.append(item)
        self._pump()

    def status(self) -> ClientStatus:
        gates = [gate for contract in self._contracts if isinstance(gate := getattr(contract, "gate", None), Gate)]
        return client_status(gates, self._clock.time, self._in_flight, len(self._wanting))

    def _take(self) -> None:
        item = self._backlog.take(self)
        if item is not None:
            self._wanting.append(item)

    def _pump(self) -> None:
        """Send as much as the contracts allow, trying the keys in turn; then come back when the first says so."""
        now = self._clock.time
        while self._wanting:
            wait = self._ask(now)
            if wait > 0:
                self._come_back(now + max(wait, SHORTEST_WAIT))
                return
            self._in_flight += 1
            call = Call(self._process, self._key, self._wanting.popleft(), now, self._answered)
            self._network.send(call, foreseen=self._foreseen)

    def _ask(self, now: float) -> float:
        """0 if a call may leave with ``_key`` now, else the shortest wait of all keys."""
        contracts = self._contracts
        if len(contracts) == 1:
            return contracts[0].on_send(now)
        shortest = math.inf
        for turn in range(1, len(contracts) + 1):
            key = (self._key + turn) % len(contracts)
            wait = contracts[key].on_send(now)
            if wait <= 0:
                self._key = key
                return 0.0
            shortest = min(shortest, wait)
        return shortest

    def _come_back(self, at: float) -> None:
        """Pump again at that instant, unless that will be done before anyway."""
        if self._wake is not None:
            if self._wake.when() <= at + 1e-9:
                return
            self._wake.cancel()
        self._wake = self._loop.call_at(at, self._woken)

    def _woken(self) -> None:
        self._wake = None
        self._pump()

    def _answered(self, call: Call, answer: Answer) -> None:
        now, contract = self._clock.time, self._contracts[call.key]
        self._in_flight -= 1
        if answer.body is not None and isinstance(contract, Plug):  # published strategies read no bodies
            contract.on_response(now, answer.status, now - call.sent_at, answer.headers, answer.body)
        else:
            contract.on_response(now, answer.status, now - call.sent_at, answer.headers)
        if answer.is_good:
            self._take()
        else:
            call.item.asked_at = now
            self._wanting.appendleft(call.item)  # what was begun goes first
        self._pump()


class LimiterClient:
    """One process with the real limiter; a key per credential, and each call goes to the shortest line."""

    def __init__(
        self,
        context: RunContext,
        *,
        process: int,
        config: RateLimitConfig,
        rng: Random,
        tell: TraceListener | None = None,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._loop, self._clock = context.loop, context.clock
        self._network, self._backlog = context.network, context.backlog
        self._process = process
        self._keys, self._workers = context.scenario.keys, context.scenario.workers
        self._counts_tokens = context.scenario.tokens > 0
        self._lines: dict[int, int] = {}
        """How many workers wait for a key, if any do."""
        self._next_key = 0
        self._tell = tell
        self._gates: dict[int, Gate] = {}
        """Those that are watched, if any are."""
        self._failed = failed
        self._limiter = AdaptiveRateLimiter(config, clock=context.clock, rng=rng)
        self._in_flight = 0
        self._idle: deque[asyncio.Future[Item]] = deque()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [self._loop.create_task(self._work()) for _ in range(self._workers)]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def give(self, item: Item) -> None:
        self._idle.popleft().set_result(item)

    def status(self) -> ClientStatus:
        waiting = len(self._tasks) - self._in_flight - len(self._idle)
        return client_status(self._gates.values(), self._clock.time, self._in_flight, waiting)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Workers never end by themselves."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    async def _work(self) -> None:
        while True:
            item = self._backlog.take(self)
            if item is None:
                given: asyncio.Future[Item] = self._loop.create_future()
                self._idle.append(given)
                item = await given
            while not await self._attempt(item):
                item.asked_at = self._clock.time

    async def _attempt(self, item: Item) -> bool:
        """Send an item once and report how that ended; whether it is done."""
        key = self._shortest_line()
        permit = await self._permit(key, item)
        sent_at, back = self._clock.time, self._loop.create_future()
        self._in_flight += 1
        self._network.send(Call(self._process, key, item, sent_at, lambda _, answer: back.set_result(answer)))
        answer: Answer = await back
        self._in_flight -= 1
        latency = self._clock.time - sent_at
        if answer.status == TIMED_OUT:
            permit.report(TimeoutError("no response in time"), latency=latency)
        else:
            permit.report(status_code=answer.status, latency=latency, headers=answer.headers, body=answer.body)
        return answer.is_good

    async def _permit(self, key: int, item: Item) -> Permit:
        name, cost = f"key-{key + 1}", {"requests": 1.0, "tokens": item.tokens} if self._counts_tokens else 1
        self._lines[key] = self._lines.get(key, 0) + 1
        try:
            while True:
                try:
                    permit = await self._limiter.acquire_async(name, cost)
                except CircuitOpenError as refusal:
                    rest = LONGEST_REST if refusal.retry_after is None else refusal.retry_after
                    await asyncio.sleep(min(rest, LONGEST_REST))
                else:
                    break
        finally:
            self._lines[key] -= 1
            if not self._lines[key]:
                del self._lines[key]
        if self._tell is not None:
            self._listen(key, permit.gate, self._tell)
        return permit

    def _shortest_line(self) -> int:
        """The key with the fewest waiters, of the next few in turn."""
        if self._keys == 1:
            return 0
        turns = range(self._next_key, self._next_key + min(self._keys, KEYS_LOOKED_AT))
        key: int = min((turn % self._keys for turn in turns), key=lambda key: self._lines.get(key, 0))
        self._next_key = (key + 1) % self._keys
        return key

    def _listen(self, key: int, gate: Gate, tell: TraceListener) -> None:
        """Hear what the controller has to tell; a key that was put away comes back with another one."""
        if self._gates.get(key) is not gate:
            self._gates[key] = gate
            gate.controller.listen(partial(tell, key))
