"""One visit: the whole way of an address through the gate, here and nowhere else.

    leave()   1 permit ──refused: circuit open──> PutOff(until its retry_at), never dropped
                 │
    visit()   2 fetch
              3 feedback: status, latency, Retry-After        teaches the host's gate
              4 release                                       whatever happens, the permit ends here
                 │
              5 fate ─┬─ an answer                            Arrived
                      ├─ 3xx                                  SentOn: a new visit, with a permit of its own host
                      ├─ 429                                  PutOff, not before Retry-After; uses up no attempt
                      ├─ 5xx, timeout, lost connection        PutOff by a jittered backoff
                      └─ attempts used up, or hopeless        GivenUp, with the reason

Waiting is done in two places alone: for a permit, with empty hands, and for the answer. What has to wait for another
reason is put off into the frontier and holds neither a permit nor a worker. Whether a retry may start then is
a matter of the host's retry budget (``lanes.py``).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..core.backoff import delay
from ..core.decision import Outcome
from ..core.signal import SILENT
from ..core.words import span
from ..errors import Refused
from ..limiter import AdaptiveRateLimiter, Permit
from .address import canonical
from .config import CrawlConfig
from .fetched import Fetched, FetchProblem
from .frontier_records import Visit

REFUSED_FOR = 1.0
"""Seconds to wait after a refusal that does not say for how long."""
REDIRECTS = frozenset((301, 302, 303, 307, 308))

LONGEST_IN_LINE = 30.0
"""Seconds a permit is waited for; a host that must be left alone for longer is put off."""

Fetch = Callable[[Visit], Awaitable[Fetched]]
"""One request, without following redirects; raises ``FetchProblem``."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """There is an answer to work on."""

    fetched: Fetched
    waited: float
    """Seconds for the permit."""
    attempts: int


@dataclass(frozen=True, slots=True)
class SentOn:
    """The answer is another address."""

    fetched: Fetched
    target: str | None
    """None if it is no address that can be visited."""


@dataclass(frozen=True, slots=True)
class PutOff:
    """Not now; nothing is held meanwhile."""

    seconds: float
    reason: str
    attempts: int = 0
    rate_limited: int = 0
    """What this adds to the counts of the address; nothing if nothing was sent."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """It will not be tried again."""

    reason: str
    """A category, and a sentence after it."""
    sent: bool = True
    """False if nothing was sent: it must not be."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, for whoever watches: the wait for its permit apart from the time of its fetch."""

    visit: Visit
    sent_at: float
    waited: float
    latency: float
    status: int
    """0 if no answer came."""
    retry_after: float | None


Fate = Arrived | SentOn | PutOff | GivenUp


class Visiting:
    """What all visits share: the limiter in front of the hosts, and what fetches."""

    def __init__(
        self,
        limiter: AdaptiveRateLimiter,
        fetch: Fetch,
        config: CrawlConfig,
        rng: random.Random,
        on_call: Callable[[Call], None] | None = None,
    ) -> None:
        self._limiter, self._fetch, self._config, self._rng, self._on_call = limiter, fetch, config, rng, on_call

    async def leave(self, host: str) -> Permit | PutOff:
        """Wait, with empty hands, until a call to this host may start; or say when to ask again."""
        try:
            return await self._limiter.acquire_async(host, max_wait=LONGEST_IN_LINE)
        except Refused as refusal:
            seconds = REFUSED_FOR if refusal.retry_after is None else refusal.retry_after
            return PutOff(seconds, refusal.reason)

    async def visit(self, visit: Visit, permit: Permit) -> Fate:
        """Fetch, tell the gate, end the permit, and say what becomes of the address."""
        with permit:
            try:
                fetched = await self._fetch(visit)
            except FetchProblem as problem:
                if problem.outcome is Outcome.ABANDONED:
                    permit.abandon()
                else:
                    self._limiter.end(permit, SILENT[problem.outcome], None, None)
                    self._tell(visit, permit, 0, None)
                return self._after_problem(visit, problem)
            outcome = permit.report(
                status_code=fetched.status,
                latency=fetched.latency,
                headers=fetched.headers,
                retry_after=fetched.retry_after,
            )
        self._tell(visit, permit, fetched.status, fetched.retry_after)
        return self._after_answer(visit, fetched, outcome, permit.waited)

    def _tell(self, visit: Visit, permit: Permit, status: int, retry_after: float | None) -> None:
        if self._on_call is not None:
            latency = self._limiter.clock.now() - permit.sent_at
            self._on_call(Call(visit, permit.sent_at, permit.waited, latency, status, retry_after))

    # ------------------------------------------------------------------ what becomes of it

    def _after_answer(self, visit: Visit, fetched: Fetched, outcome: Outcome, waited: float) -> Fate:
        if outcome in (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED):
            return self._told_to_wait(visit, fetched)
        if outcome.counts_against_target:
            return self._again(visit, f"{outcome.value}: answered {fetched.status}", fetched.retry_after)
        if fetched.status in REDIRECTS and fetched.location is not None:
            return SentOn(fetched, canonical(fetched.location, visit.url))
        return Arrived(fetched, waited, visit.attempts + 1)

    def _after_problem(self, visit: Visit, problem: FetchProblem) -> Fate:
        reason = f"{problem.kind}: {problem}"
        if problem.outcome.counts_against_target:
            return self._again(visit, reason, None)
        return GivenUp(reason, sent=problem.outcome is not Outcome.ABANDONED)

    def _told_to_wait(self, visit: Visit, fetched: Fetched) -> Fate:
        times = visit.rate_limited + 1
        if times > self._config.max_rate_limit_retries:
            return GivenUp(f"rate_limited: told to come back later {times} times")
        seconds = self._backoff(times, fetched.retry_after)
        return PutOff(seconds, f"rate_limited: answered {fetched.status}, again in {span(seconds)}", rate_limited=1)

    def _again(self, visit: Visit, reason: str, floor: float | None) -> Fate:
        """A failure that may pass: later, unless it was the last attempt."""
        attempts = visit.attempts + 1
        if attempts >= self._config.max_attempts:
            return GivenUp(f"{reason} ({attempts} attempts)")
        return PutOff(self._backoff(attempts, floor), reason, attempts=1)

    def _backoff(self, times: int, floor: float | None) -> float:
        config = self._config
        return delay(times, self._rng.random(), base=config.base_delay, max_delay=config.max_delay, floor=floor or 0.0)
