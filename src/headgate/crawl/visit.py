"""One visit: the whole way of an address through the gate, here and nowhere else.

    leave()   1 permit ──refused: circuit open──> PutOff(until its retry_at), never dropped
                 │       (and before it a credential, where the origin has some: ``keys.py``)
                 │
    visit()   2 fetch
              3 feedback: status, latency, Retry-After        teaches the host's gate
              4 release                                       whatever happens, permit and credential end here
                 │
              5 fate ─┬─ an answer                            Arrived
                      ├─ 3xx                                  SentOn: a new visit, with a permit of its own host
                      ├─ 429                                  PutOff, not before Retry-After; uses up no attempt
                      ├─ 401 to a credential                  PutOff, for another one
                      ├─ 5xx, timeout, lost connection        PutOff by a jittered backoff
                      └─ attempts used up, or hopeless        GivenUp, with the reason

Waiting is done in two places alone: for a permit, with empty hands, and for the answer. What has to wait for another
reason is put off into the frontier and holds neither a permit nor a worker. Whether a retry may start then is
a matter of the host's retry budget (``lanes.py``).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ..config import RateLimitConfig
from ..core.backoff import delay
from ..core.decision import Outcome
from ..core.signal import SILENT
from ..core.words import span
from ..errors import Refused
from ..limiter import AdaptiveRateLimiter, KeySnapshot, Permit
from ..limiter.watching import About, around
from ..wire import signal_of
from .address import canonical, host_of, origin_of
from .config import CrawlConfig
from .fetched import Fetched, FetchProblem
from .frontier_records import Visit
from .keys import SPENT_REST, Leave, OriginKeys

REFUSED_FOR = 1.0
"""Seconds to wait after a refusal that does not say for how long."""
REDIRECTS = frozenset((301, 302, 303, 307, 308))

LONGEST_IN_LINE = 30.0
"""Seconds a permit is waited for; a host that must be left alone for longer is put off."""

Fetch = Callable[..., Awaitable[Fetched]]
"""``fetch(visit)``, with a credential ``fetch(visit, headers)``: one request, without following redirects; raises
``FetchProblem``."""


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
    attempts: int = 1
    """What this adds to the fetches of the address."""


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
    credential: str
    """Its label; empty without one."""


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
        keys: Mapping[str, OriginKeys] | None = None,
    ) -> None:
        self._limiter, self._fetch, self._config, self._rng, self._on_call = limiter, fetch, config, rng, on_call
        self._keys = keys or {}
        self._pairs: dict[str, list[str]] = {}
        """By host, the gates of its credentials."""
        for origin, one in self._keys.items():
            self._pairs.setdefault(host_of(origin), []).extend(one.gate_keys)

    async def leave(self, url: str) -> Leave | PutOff:
        """Wait, with empty hands, until a call to this origin may start; or say when to ask again."""
        keys = self._keys.get(origin_of(url))
        try:
            if keys is None:
                return Leave(await self._permit(host_of(url)))
            return await self._leave_with(keys)
        except Refused as refusal:
            if keys is not None and keys.is_spent:
                return PutOff(SPENT_REST, f"credentials: none for {keys.origin} is accepted any more")
            seconds = REFUSED_FOR if refusal.retry_after is None else refusal.retry_after
            return PutOff(seconds, refusal.reason)

    async def _leave_with(self, keys: OriginKeys) -> Leave:
        """A credential, then a permit of its own pace; one that has to rest by then is given back for another."""
        while True:
            lease = await keys.acquire(LONGEST_IN_LINE)
            try:
                permit = await self._permit(keys.gate_key(lease.label))
            except BaseException:
                lease.release()
                raise
            leave = Leave(permit, lease, keys)
            if not lease.is_void:
                return leave
            leave.abandon()

    async def _permit(self, key: str) -> Permit:
        return await self._limiter.acquire_async(key, max_wait=LONGEST_IN_LINE)

    async def visit(self, visit: Visit, leave: Leave) -> Fate:
        """Fetch, tell the gate, end the permit, and say what becomes of the address."""
        permit, headers, label = leave.permit, leave.headers_for(visit.url), leave.label
        with leave:
            try:
                with around(self._limiter.tell.around, permit, About(visit.attempts + 1, "GET", visit.url, label)):
                    fetched = await (self._fetch(visit, headers) if headers else self._fetch(visit))
            except FetchProblem as problem:
                if problem.outcome is Outcome.ABANDONED:
                    leave.abandon()
                else:
                    leave.end(SILENT[problem.outcome])
                    self._tell(visit, permit, 0, None, label)
                return self._after_problem(visit, problem)
            fetched = leave.without_secret(fetched)
            wall = self._limiter.clock.wall()
            signal = signal_of(None, fetched.status, fetched.headers, None, fetched.retry_after, wall)
            leave.end(signal, fetched.status, fetched.latency)
        self._tell(visit, permit, fetched.status, fetched.retry_after, label)
        return self._after_answer(visit, fetched, signal.outcome, permit.waited, label)

    def _tell(self, visit: Visit, permit: Permit, status: int, retry_after: float | None, label: str) -> None:
        if self._on_call is not None:
            latency = self._limiter.clock.now() - permit.sent_at
            self._on_call(Call(visit, permit.sent_at, permit.waited, latency, status, retry_after, label))

    # ------------------------------------------------------------------ looking

    def looks(self, host: str) -> list[KeySnapshot]:
        """The gates of this host that are in use: its own, or one for each credential."""
        seen = (self._limiter.look(key) for key in (host, *self._pairs.get(host, ())))
        return [one for one in seen if one is not None]

    def least_distance(self, host: str) -> float:
        """Seconds between two calls where several gates lead to one host: its ceiling is for all of them together."""
        rate = self._config.rate
        return 0.0 if rate is None or len(self._pairs.get(host, ())) < 2 else 1.0 / rate

    def spent(self) -> list[str]:
        """Origins none of whose credentials is accepted any more."""
        return [origin for origin, keys in self._keys.items() if keys.is_spent]

    # ------------------------------------------------------------------ what becomes of it

    def _after_answer(self, visit: Visit, fetched: Fetched, outcome: Outcome, waited: float, label: str) -> Fate:
        if outcome in (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED):
            return self._told_to_wait(visit, fetched, None if label else fetched.retry_after)
        if label and (outcome is Outcome.KEY_DEAD or (outcome is Outcome.AUTH and fetched.status == 401)):
            return PutOff(0.0, f"auth: answered {fetched.status} to the credential {label}; it is used no more")
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

    def _told_to_wait(self, visit: Visit, fetched: Fetched, floor: float | None) -> Fate:
        """Of a credential that was told to wait, the address may go with another one before."""
        times = visit.rate_limited + 1
        if times > self._config.max_rate_limit_retries:
            return GivenUp(f"rate_limited: told to come back later {times} times")
        seconds = self._backoff(visit, times, floor)
        return PutOff(seconds, f"rate_limited: answered {fetched.status}, again in {span(seconds)}", rate_limited=1)

    def _again(self, visit: Visit, reason: str, floor: float | None) -> Fate:
        """A failure that may pass: later, unless it was the last attempt."""
        attempts = visit.attempts + 1
        if attempts >= (self._config.max_attempts or self._pace_of(visit).retry_max_attempts):
            return GivenUp(f"{reason} ({attempts} attempts)")
        return PutOff(self._backoff(visit, attempts, floor), reason, attempts=1)

    def _backoff(self, visit: Visit, times: int, floor: float | None) -> float:
        config, pace = self._config, self._pace_of(visit)
        base = config.base_delay or pace.retry_base_delay
        most = max(base, config.max_delay or pace.retry_max_delay)
        return delay(times, self._rng.random(), base=min(base, most), max_delay=most, floor=floor or 0.0)

    def _pace_of(self, visit: Visit) -> RateLimitConfig:
        return self._limiter.config.for_key(visit.host)
