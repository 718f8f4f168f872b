"""Fetch a URL through its host's gate: the whole way of one call, here and nowhere else.

    acquire()  1 permit ──refused: circuit open──> Deferred(until its retry_at), never dropped
                  │       (and before it a credential, where the origin has some: ``credentials.py``)
                  │
    fetch()    2 fetch
               3 feedback: status, latency, Retry-After       teaches the host's gate
               4 release                                      whatever happens, permit and credential end here
                  │
               5 outcome ─┬─ an answer                        Fetched
                          ├─ 3xx                              Redirected: a new visit, with a permit of its own host
                          ├─ 429                              Deferred, not before Retry-After; uses up no attempt
                          ├─ 401 to a credential              Deferred, for another one
                          ├─ 5xx, timeout, lost connection    Deferred by a jittered backoff
                          └─ attempts used up, or permanent   FetchFailed, with the reason

Waiting is done in two places alone: for a permit, holding nothing, and for the answer. What has to wait for another
reason is deferred into the frontier and holds neither a permit nor a worker. Whether a retry may start then is
a matter of the host's retry budget (``Host`` in ``scheduler.py``).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ...config import RateLimitConfig
from ...core.decision import Outcome
from ...core.retry import delay
from ...core.signal import SILENT
from ...errors import Refused
from ...formatting import format_seconds, plural
from ...limiter import AdaptiveRateLimiter, KeySnapshot, Permit
from ...limiter.events import CallInfo, around
from ...wire import signal_of
from ..config import CrawlConfig
from ..frontier import Reason, Visit
from ..url import canonical, host_of, origin_of
from .credentials import SPENT_REST, FetchPermit, OriginCredentials
from .response import FetchError, FetchResponse

REFUSED_FOR = 1.0
"""Seconds to wait after a refusal that does not say for how long."""
REDIRECTS = frozenset((301, 302, 303, 307, 308))

LONGEST_PERMIT_WAIT = 30.0
"""Seconds a permit is waited for; a host that must be left alone for longer is put off."""

Fetch = Callable[..., Awaitable[FetchResponse]]
"""``fetch(visit)``, with a credential ``fetch(visit, headers)``: one request, without following redirects; raises
``FetchError``."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """There is an answer to work on."""

    response: FetchResponse
    waited: float
    """Seconds for the permit."""
    attempts: int


@dataclass(frozen=True, slots=True)
class Redirected:
    """The answer is another URL."""

    response: FetchResponse
    target: str | None
    """None if it is no URL that can be visited."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """Not now; nothing is held meanwhile."""

    seconds: float
    reason: Reason
    attempts: int = 0
    rate_limited: int = 0
    """What this adds to the counts of the URL; nothing if nothing was sent."""


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """It will not be tried again."""

    reason: Reason
    sent: bool = True
    """False if nothing was sent: it must not be."""
    attempts: int = 1
    """What this adds to the fetches of the URL."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One request: the wait for its permit apart from the time of its fetch."""

    visit: Visit
    waited: float
    latency: float
    status: int
    """0 if no answer came."""
    retry_after: float | None
    credential: str
    """Its label; empty without one."""


FetchOutcome = Fetched | Redirected | Deferred | FetchFailed


class GatedFetcher:
    """What all fetches share: the limiter in front of the hosts, and the client behind it."""

    def __init__(
        self,
        limiter: AdaptiveRateLimiter,
        fetch: Fetch,
        config: CrawlConfig,
        rng: random.Random,
        on_call: Callable[[CallRecord], None] | None = None,
        keys: Mapping[str, OriginCredentials] | None = None,
    ) -> None:
        self._limiter, self._fetch, self._config, self._rng, self._on_call = limiter, fetch, config, rng, on_call
        self._keys = keys or {}
        self._pairs: dict[str, list[str]] = {}
        """By host, the gates of its credentials."""
        for origin, one in self._keys.items():
            self._pairs.setdefault(host_of(origin), []).extend(one.gate_keys)

    async def acquire(self, url: str) -> FetchPermit | Deferred:
        """Wait until a call to this origin may start; or say when to ask again."""
        keys = self._keys.get(origin_of(url))
        try:
            if keys is None:
                return FetchPermit(await self._permit(host_of(url)))
            return await self._acquire_with(keys)
        except Refused as refusal:
            if keys is not None and keys.is_spent:
                return Deferred(SPENT_REST, Reason("credentials", f"every key for {keys.origin} is disabled"))
            seconds = REFUSED_FOR if refusal.retry_after is None else refusal.retry_after
            return Deferred(seconds, Reason("", refusal.reason))

    async def _acquire_with(self, keys: OriginCredentials) -> FetchPermit:
        """A credential, then a permit of its own pace; one that has to rest by then is given back for another."""
        while True:
            lease = await keys.acquire(LONGEST_PERMIT_WAIT)
            try:
                permit = await self._permit(keys.gate_key(lease.label))
            except BaseException:
                lease.release()
                raise
            both = FetchPermit(permit, lease, keys)
            if not lease.is_void:
                return both
            both.abandon()

    async def _permit(self, key: str) -> Permit:
        return await self._limiter.acquire_async(key, max_wait=LONGEST_PERMIT_WAIT)

    async def fetch(self, visit: Visit, fetch_permit: FetchPermit) -> FetchOutcome:
        """Fetch, tell the gate, end the permit, and say what becomes of the URL."""
        permit, label = fetch_permit.permit, fetch_permit.label
        headers = fetch_permit.headers_for(visit.url)
        with fetch_permit:
            try:
                with around(self._limiter.events.around, permit, CallInfo(visit.attempts + 1, "GET", visit.url, label)):
                    response = await (self._fetch(visit, headers) if headers else self._fetch(visit))
            except FetchError as problem:
                if problem.outcome is Outcome.ABANDONED:
                    fetch_permit.abandon()
                else:
                    fetch_permit.end(SILENT[problem.outcome])
                    self._record_call(visit, permit, 0, None, label)
                return self._after_problem(visit, problem)
            response = fetch_permit.without_secret(response)
            wall = self._limiter.clock.wall()
            signal = signal_of(None, response.status, response.headers, None, response.retry_after, wall)
            fetch_permit.end(signal, response.status, response.latency)
        self._record_call(visit, permit, response.status, response.retry_after, label)
        return self._after_answer(visit, response, signal.outcome, permit.waited, label)

    def _record_call(self, visit: Visit, permit: Permit, status: int, retry_after: float | None, label: str) -> None:
        if self._on_call is not None:
            latency = self._limiter.clock.now() - permit.sent_at
            self._on_call(CallRecord(visit, permit.waited, latency, status, retry_after, label))

    # ------------------------------------------------------------------ status

    def key_statuses(self, host: str) -> list[KeySnapshot]:
        """The gates of this host that are in use: its own, or one for each credential."""
        seen = (self._limiter.key_status(key) for key in (host, *self._pairs.get(host, ())))
        return [one for one in seen if one is not None]

    def min_delay(self, host: str) -> float:
        """Seconds between two calls where several gates lead to one host: its ceiling is for all of them together."""
        rate = self._config.rate
        return 0.0 if rate is None or len(self._pairs.get(host, ())) < 2 else 1.0 / rate

    def spent_origins(self) -> list[str]:
        """Origins none of whose credentials is accepted any more."""
        return [origin for origin, keys in self._keys.items() if keys.is_spent]

    # ------------------------------------------------------------------ what becomes of it

    def _after_answer(
        self, visit: Visit, response: FetchResponse, outcome: Outcome, waited: float, label: str
    ) -> FetchOutcome:
        status = response.status
        if outcome in (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED):
            return self._rate_limited(visit, status, None if label else response.retry_after)
        if label and (outcome is Outcome.KEY_DEAD or (outcome is Outcome.AUTH and status == 401)):
            refused = f"answered {status} to key {label}, which is disabled now"
            return Deferred(0.0, Reason("auth", refused))
        if outcome.counts_against_target:
            return self._retry(visit, Reason(outcome.value, f"answered {status}"), response.retry_after)
        if status in REDIRECTS and response.location is not None:
            return Redirected(response, canonical(response.location, visit.url))
        return Fetched(response, waited, visit.attempts + 1)

    def _after_problem(self, visit: Visit, problem: FetchError) -> FetchOutcome:
        reason = Reason(problem.kind.value, str(problem))
        if problem.outcome.counts_against_target:
            return self._retry(visit, reason, None)
        return FetchFailed(reason, sent=problem.outcome is not Outcome.ABANDONED)

    def _rate_limited(self, visit: Visit, status: int, floor: float | None) -> FetchOutcome:
        """Where a credential was told to wait, the URL may go with another one before."""
        times = visit.rate_limited + 1
        if times > self._config.max_rate_limit_retries:
            return FetchFailed(Reason("rate_limited", f"rate limited {times} times"))
        seconds = self._backoff(visit, times, floor)
        again = f"answered {status}, retry in {format_seconds(seconds)}"
        return Deferred(seconds, Reason("rate_limited", again), rate_limited=1)

    def _retry(self, visit: Visit, reason: Reason, floor: float | None) -> FetchOutcome:
        """A failure that may pass: later, unless it was the last attempt."""
        attempts = visit.attempts + 1
        if attempts >= (self._config.max_attempts or self._pace_of(visit).retry_max_attempts):
            return FetchFailed(Reason(reason.category, f"{reason.detail} ({plural(attempts, 'attempt')})"))
        return Deferred(self._backoff(visit, attempts, floor), reason, attempts=1)

    def _backoff(self, visit: Visit, times: int, floor: float | None) -> float:
        config, pace = self._config, self._pace_of(visit)
        base = config.base_delay or pace.retry_base_delay
        most = max(base, config.max_delay or pace.retry_max_delay)
        return delay(times, self._rng.random(), base=min(base, most), max_delay=most, floor=floor or 0.0)

    def _pace_of(self, visit: Visit) -> RateLimitConfig:
        return self._limiter.config.for_key(visit.host)
