"""The server of a scenario, alive in virtual time.

    answer: steps and the neighbour catch up --> outage? 503, or silence
                                             --> budget of the key? 429
                                             --> flapping? 500
                                             --> queue full? 503      else 200, after the service time

Pure but for its own random stream: ``now`` is an argument, calls come in the order of their
arrival, and the same scenario and seed give the same answers to the same calls.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from typing import Any, NamedTuple

from ..mock.dialects import DIALECTS, LimitStatuses
from ..mock.dialects.dialect import says_nothing
from ..mock.quota import Concurrency, LimitStatus
from ..units import Outage, Rate
from .scenario import Budget, Queue, Scenario, lognormal


class Backend:
    """Machines behind an API that work first come, first served: latency grows long before anything is refused.

    arrival --> waiting (at most ``room``) --> one of ``servers`` --> answer
    | full: 503

    With ``thrash`` the work itself takes longer while others wait, so that asking for more than
    the machines can do gets less done.
    """

    __slots__ = ("_free_at", "_plan", "_speed", "_starts_at")

    def __init__(self, plan: Queue) -> None:
        self._plan = plan
        self._speed = 1.0
        self._free_at = [0.0] * plan.servers
        self._starts_at: deque[float] = deque()
        """When each waiting call will get its server."""

    def work(self, now: float, service: float) -> float | None:
        """Seconds until a call that arrives now is answered, or ``None`` if there is no room for it."""
        while self._starts_at and self._starts_at[0] <= now:
            self._starts_at.popleft()
        waiting = len(self._starts_at)
        if waiting >= self._plan.room:
            return None
        service *= (1.0 + self._plan.thrash * waiting / self._plan.servers) / self._speed
        start_at = max(now, self._free_at[0])
        heapq.heapreplace(self._free_at, start_at + service)
        if start_at > now:
            self._starts_at.append(start_at)
        return start_at + service - now

    def idle_in(self, now: float) -> float:
        """Seconds until a server is free."""
        return max(0.0, self._free_at[0] - now)

    def scale(self, factor: float) -> None:
        self._speed = factor


EDGE = 1e-6
"""An oracle comes this much after the edge of a window, so that rounding does not make it early."""


class Account:
    """The limits of one budget as they stand during a run: a call must fit into all of them, or spends nothing.

    A limit on concurrency has to know when calls end. In a simulation that is known as soon as a
    call begins, so the account keeps the coming ends and frees the places when their time has come.
    """

    __slots__ = ("_depth", "_ends_at", "_evenly", "_limits", "_only", "_turn_at")

    def __init__(self, budget: Budget, draws: list[float], horizon: float) -> None:
        quotas = [limit.make(draw) for limit, draw in zip(budget.limits, draws, strict=True)]
        self._limits = [(quota, limit.of == "tokens") for quota, limit in zip(quotas, budget.limits, strict=True)]
        self._only = quotas[0] if len(quotas) == 1 and budget.limits[0].of == "calls" else None
        self._depth = next((quota for quota in quotas if isinstance(quota, Concurrency)), None)
        self._ends_at: list[float] = []
        self._evenly: list[tuple[Rate, bool]] = [
            (limit.rate, limit.of == "tokens")
            for limit in budget.limits
            if limit.rate and limit.algorithm in ("window", "log", "strict-log") and not limit.outlasts(horizon)
        ]
        self._turn_at = 0.0

    def take(self, now: float, tokens: float, lasts: float) -> bool:
        """Let a call of ``lasts`` seconds through, or not."""
        if self._depth is not None:
            self._free_places(now)
        only = self._only
        if only is not None:
            admitted = only.take(now)
        else:
            admitted = all(quota.wait(now, tokens if of_tokens else 1.0) == 0 for quota, of_tokens in self._limits)
            for quota, of_tokens in self._limits:
                spend = quota.take if admitted else quota.refuse
                spend(now, tokens if of_tokens else 1.0)
        if admitted and self._depth is not None:
            heapq.heappush(self._ends_at, now + lasts)
        return admitted

    def wait(self, now: float, tokens: float) -> float:
        """Seconds until a call fits into every limit; 0 for now."""
        return max(self._waits(now, tokens), default=0.0)

    def hit(self, now: float, tokens: float) -> tuple[str, LimitStatus]:
        """The limit that keeps a call out longest: what it counts, and its state, with that call's own wait."""
        waits = self._waits(now, tokens)
        longest = max(waits)
        quota, of_tokens = self._limits[waits.index(longest)]
        return "tokens" if of_tokens else "calls", replace(quota.status(now), retry=longest)

    def _waits(self, now: float, tokens: float) -> list[float]:
        if self._depth is not None:
            self._free_places(now)
        waits = [quota.wait(now, tokens if of_tokens else 1.0) for quota, of_tokens in self._limits]
        return [self._ends_at[0] - now + EDGE if wait is None else wait for wait in waits]

    def wait_evenly(self, now: float, tokens: float) -> float:
        """As ``wait``, for an oracle: whole windows are spent evenly, so that the end of a run does not favour it."""
        wait = self.wait(now, tokens)
        return max(self._turn_at - now, wait + EDGE if wait else 0.0)

    def take_turn(self, now: float, tokens: float, factor: float) -> None:
        """The oracle sends: its next turn comes a fair share of the window later."""
        if self._evenly:
            apart = max((tokens if of_tokens else 1.0) / (rate.per_second * factor) for rate, of_tokens in self._evenly)
            self._turn_at = max(self._turn_at, now - apart) + apart

    def yield_to_neighbour(self, now: float) -> None:
        self._limits[0][0].yield_to(now)

    def scale(self, factor: float, now: float) -> None:
        for quota, _ in self._limits:
            quota.scale(factor, now)

    def at_once(self) -> float | None:
        """Calls at a time, if that is limited."""
        return None if self._depth is None else self._depth.limit

    def statuses(self, now: float) -> list[tuple[str, LimitStatus]]:
        """The state of each limit, and what it counts."""
        return [("tokens" if of_tokens else "calls", quota.status(now)) for quota, of_tokens in self._limits]

    def _free_places(self, now: float) -> None:
        depth, ends_at = self._depth, self._ends_at
        while depth is not None and ends_at and ends_at[0] <= now:
            depth.end(heapq.heappop(ends_at))


# -- what a simulated server says of its limits: its dialect's fields and bodies, and the scenario's Retry-After
# every answer    the dialect's fields
# a refusal       and its own fields and body; its wait is the truth, or what the scenario has it lie
# and a Retry-After header, if the scenario asks for one
#
# A dialect that says nothing on good answers costs nothing there.

WALL = 1_800_000_000.0
"""The date at instant 0; virtual clocks begin on it too."""

SHORT = 1.0
"""What ``retry_after = "short"`` says, whatever is true."""

Announce = Callable[[LimitStatuses, float], dict[str, str]]


def announcer(scenario: Scenario) -> Announce | None:
    """What words the fields of every answer, given where the limits stand and the date; ``None`` for nothing."""
    announce = DIALECTS[scenario.headers].announce
    if announce is says_nothing or not all(budget.limits for budget in scenario.budgets):
        return None
    return lambda statuses, wall: _as_a_client_sees(announce(statuses, wall))


def refusal(scenario: Scenario, unit: str, status: LimitStatus, now: float) -> tuple[int, dict[str, str], Any]:
    """Status, fields and body of a refusal, by the limit that was hit and how long that will last."""
    wait = _told(scenario, status.retry or 0.0)
    fields = retry_after(scenario, wait, now)
    if scenario.headers == "none":
        return 429, fields, None
    reply = DIALECTS[scenario.headers].refuse(unit, replace(status, retry=wait), WALL + now)
    return reply.status, _as_a_client_sees(reply.headers) | fields, reply.body


def _as_a_client_sees(fields: dict[str, str]) -> dict[str, str]:
    """Names in lower case."""
    return {name.lower(): value for name, value in fields.items()}


def _told(scenario: Scenario, wait: float) -> float:
    match scenario.retry_after:
        case "short":
            return SHORT
        case "long":
            return scenario.retry_after_long
    return wait


def retry_after(scenario: Scenario, wait: float, now: float) -> dict[str, str]:
    """The Retry-After that the scenario asks for, when ``wait`` is what is to be told."""
    match scenario.retry_after:
        case "none":
            return {}
        case "date":
            wall = WALL + now
            until = formatdate(math.ceil(wall + wait), usegmt=True)
            return {"date": formatdate(int(wall), usegmt=True), "retry-after": until}
    return {"retry-after": str(math.ceil(wait))}


REFUSING = 0.002
"""Seconds a server needs to say no."""
FAILING = 0.3
"""A call that fails does so after this share of its service time."""
JUST_BEFORE = 0.25
"""An oracle's call may arrive at a queue this share of a service time before a server is free."""

INSTANT = 1e-9
"""A wait this short is none."""

OK, FAILED, TOO_MANY, UNAVAILABLE, SILENCE = 200, 500, 429, 503, 0


class Answer(NamedTuple):
    status: int
    """0 if there is none."""
    after: float
    """Seconds until it leaves the server; infinite if it hangs."""
    headers: dict[str, str] | None
    refused: bool
    """Whether there was too much of it: 429, or 503 from a full queue."""
    body: Any = None
    """The body of an error, in dialects that have one; a good answer has none."""

    @property
    def is_good(self) -> bool:
        """An error may hide inside a 200."""
        return self.status == OK and self.body is None


class SimulatedServer:
    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.keys = scenario.keys
        self.trip = scenario.round_trip / 2
        """Seconds a call is under way to the server, without jitter."""
        self.oracle_out = [0] * self.keys
        """For each key, calls that oracles have sent and that are not answered yet; theirs to keep."""
        self._seed = seed
        self._rng = random.Random(f"{scenario.name}/{seed}/server")
        self._gauss = self._rng.gauss
        self._mu, self._sigma = lognormal(scenario.service_time, scenario.service_variation)
        self._accounts: dict[int, Account] = {}
        self._factor = 1.0
        self._backend = Backend(scenario.queue) if scenario.queue else None
        self._announce = announcer(scenario)
        self._out_of_service = _out_of_service(scenario)
        self._refused = _REFUSED if scenario.headers == scenario.retry_after == "none" else None
        self._edges = sorted({edge for outage in _troubles(scenario) for edge in (outage.at, outage.until)})
        self._trouble: Answer | None = None
        self._trouble_until = 0.0
        self._steps_taken = 0
        self._neighbour_at = self._next_neighbour(0.0)
        self._change_at = 0.0
        self.allowed_between: Callable[[float, float], float] = scenario.allowed_between
        """How many calls the quota refills between two instants."""

    def answer(self, now: float, key: int, tokens: float = 0.0) -> Answer:
        """What becomes of a call that arrives now."""
        if now >= self._change_at:
            self._catch_up(now)
        if self._trouble is not None:
            return self._trouble
        service = math.exp(self._gauss(self._mu, self._sigma))
        account = self._accounts.get(key) or self._open(key)
        if not account.take(now, tokens, service):
            return self._refused or self._refuse(account, now, tokens)
        headers = self._announce(account.statuses(now), WALL + now) if self._announce else None
        if self.scenario.flapping and self._rng.random() < self.scenario.flapping:
            return Answer(FAILED, service * FAILING, headers, False)
        if self._backend is not None:
            done_in = self._backend.work(now, service)
            if done_in is None:
                return Answer(UNAVAILABLE, REFUSING, headers, True)
            return Answer(OK, done_in, headers, False)
        return Answer(OK, service, headers, False)

    def free_in(self, now: float, key: int) -> float:
        """For oracles: 0 if any call that arrives now would be admitted, else seconds to wait. Told 0, they send."""
        self._catch_up(now)
        if self._trouble is not None:
            return self._trouble_until - now
        account = self._accounts.get(key) or self._open(key)
        wait = account.wait_evenly(now, self.scenario.most_tokens)
        if self._backend is not None:
            wait = max(wait, self._backend.idle_in(now) - JUST_BEFORE * self.scenario.service_time)
        if wait > INSTANT:
            return wait
        account.take_turn(now, self.scenario.tokens, self._factor)
        return 0.0

    def is_full(self, now: float, key: int) -> bool:
        """Whether a call that arrives now would be refused."""
        self._catch_up(now)
        return (self._accounts.get(key) or self._open(key)).wait(now, self.scenario.most_tokens) > INSTANT

    def at_once(self, now: float, key: int) -> float:
        """How many calls the server works on at one time, if that is what it limits; else infinity."""
        self._catch_up(now)
        depth = (self._accounts.get(key) or self._open(key)).at_once()
        return math.inf if depth is None else depth

    def _refuse(self, account: Account, now: float, tokens: float) -> Answer:
        status, headers, body = refusal(self.scenario, *account.hit(now, tokens), now)
        if self._announce:
            headers = self._announce(account.statuses(now), WALL + now) | headers
        return Answer(status, REFUSING, headers, True, body)

    def _open(self, key: int) -> Account:
        """The account of a key that calls for the first time; how its windows lie depends on the seed alone."""
        budget, first, number = self._budget_of(key)
        owner = first if budget.shared else key
        account = self._accounts.get(owner)
        if account is None:
            chance = random.Random(f"{self.scenario.name}/{self._seed}/budget {number}, key {owner}")
            account = Account(budget, [chance.random() for _ in budget.limits], self.scenario.horizon)
            account.scale(self._factor, 0.0)
            self._accounts[owner] = account
        self._accounts[key] = account
        return account

    def _budget_of(self, key: int) -> tuple[Budget, int, int]:
        first = 0
        for number, budget in enumerate(self.scenario.budgets):
            if first <= key < first + budget.keys:
                return budget, first, number
            first += budget.keys
        raise ValueError(f"key={key} must be within 0 and {self.keys - 1}")

    def _catch_up(self, now: float) -> None:
        """Let everything happen that has fallen due, and note when something will again."""
        if now < self._change_at:
            return
        scenario = self.scenario
        steps = scenario.steps
        while self._steps_taken < len(steps) and steps[self._steps_taken].at <= now:
            self._step(steps[self._steps_taken].factor, steps[self._steps_taken].at)
            self._steps_taken += 1
        while self._neighbour_at <= now:
            self._neighbour_calls(self._neighbour_at)
            self._neighbour_at = self._next_neighbour(self._neighbour_at)
        self._trouble = None
        for outage in _troubles(scenario):
            if outage.at <= now < outage.until:
                self._trouble = _SILENCE if outage in scenario.hangs else self._out_of_service
                self._trouble_until = outage.until
        step_at = steps[self._steps_taken].at if self._steps_taken < len(steps) else math.inf
        edge_at = next((edge for edge in self._edges if edge > now), math.inf)
        self._change_at = min(step_at, self._neighbour_at, edge_at)

    def _step(self, factor: float, at: float) -> None:
        self._factor = factor
        for account in set(self._accounts.values()):
            account.scale(factor, at)
        if self._backend is not None:
            self._backend.scale(factor)

    def _next_neighbour(self, now: float) -> float:
        neighbour = self.scenario.neighbour
        return now + self._rng.expovariate(neighbour.rate.per_second) if neighbour else math.inf

    def _neighbour_calls(self, at: float) -> None:
        neighbour = self.scenario.neighbour
        if neighbour and at % (neighbour.on + neighbour.off) < neighbour.on:
            (self._accounts.get(0) or self._open(0)).yield_to_neighbour(at)


_REFUSED = Answer(TOO_MANY, REFUSING, None, True)
_SILENCE = Answer(SILENCE, math.inf, None, False)


def _troubles(scenario: Scenario) -> tuple[Outage, ...]:
    return (*scenario.outages, *scenario.hangs)


def _out_of_service(scenario: Scenario) -> Answer:
    reply = DIALECTS[scenario.headers].overloaded
    return Answer(reply.status, REFUSING, None, False, None if scenario.headers == "none" else reply.body)
