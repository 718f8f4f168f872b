"""The server of a scenario, alive in virtual time.

    answer: steps and the neighbour catch up --> outage? 503, or silence
                                             --> budget of the key? 429
                                             --> flapping? 500
                                             --> queue full? 503      else 200, after the service time

Pure but for its own random stream: ``now`` is an argument, calls come in the order of their
arrival, and the same scenario and seed give the same answers to the same calls.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from .account import Account
from .announcing import WALL, announcer, refusal
from .backend import Backend
from .dialects import DIALECTS
from .notation import Outage
from .scenario import Scenario, lognormal
from .scenario_parts import Budget

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
    """What an error says where its dialect speaks in bodies; a good answer has none."""

    @property
    def is_good(self) -> bool:
        """An error may hide inside a 200."""
        return self.status == OK and self.body is None


class World:
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
        headers = self._announce(account.standings(now), WALL + now) if self._announce else None
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

    def at_once(self, now: float, key: int) -> float:
        """How many calls the server works on at one time, if that is what it limits; else infinity."""
        self._catch_up(now)
        depth = (self._accounts.get(key) or self._open(key)).at_once()
        return math.inf if depth is None else depth

    def _refuse(self, account: Account, now: float, tokens: float) -> Answer:
        status, headers, body = refusal(self.scenario, *account.hit(now, tokens), now)
        if self._announce:
            headers = self._announce(account.standings(now), WALL + now) | headers
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
