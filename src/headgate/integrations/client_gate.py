"""One way through the gate for the requests of every client.

    OutgoingRequest ─> ClientGate.begin ─> GatedRequest.send_sync: queue, credential ─> send ─> receive
                                              ^                                                    │
                                              └────── one wait, if it may be repeated ─────────────┤
                                                                                                   v
                                                         200: the body, its permit held   else: handed to the client

A ``ClientGate`` is the settings of one gate for many requests. Adding a client takes one file: it makes an
``OutgoingRequest`` of each of its requests, begins it here, and drives what it gets (``gated_request.py``):

    gated = gate.begin(outgoing)
    response = await gated.send_async(send, receive, close)      # or gated.send_sync(...)

Refusals come out as errors of the client's own (``as_client_error``).
"""

from __future__ import annotations

import os
import pickle
import random
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Self

from ..checks import check, check_time, check_whole, number
from ..clock import Clock
from ..config import Limits, RateLimitConfig
from ..core.decision import Outcome
from ..errors import CircuitOpenError, ConfigError, Refused, TimeBudgetExceededError, WaitTooLongError
from ..events import ResilienceEvent
from ..limiter import AdaptiveRateLimiter
from ..limiter.permit import WhenOpen, check_when_open
from ..resilience.config import LONGEST_WAIT, REMEMBERED, CallOptions, ProviderResilienceConfig, RateLimiterConfig
from ..wire.parse import has_own_tiers
from .gated_request import Errors, GatedRequest, RepeatRule, release_leaked
from .host_manager import HostManager
from .origins import Given, OriginCredentials, bind, origin_of
from .request import (
    CostOf,
    Key,
    OutgoingRequest,
    Repeatable,
    by_host,
    by_model,
    is_idempotent,
    is_idempotent_or_generates,
    with_tokens,
)

if TYPE_CHECKING:
    from ..distributed.store import Store
    from .fallback import ClientFallbacks, RequestRoute

__all__ = ["LONGEST_WAIT", "ClientGate", "GatedRequest", "OutgoingRequest", "Passing"]

UNPICKLED = ("limiter", "credentials", "on_event", "clock", "rng")
"""Settings that belong to their process: live objects, and secrets."""
_by_token: weakref.WeakValueDictionary[str, ClientGate] = weakref.WeakValueDictionary()
"""Gates that were pickled or unpickled in this process: clients that are unpickled together share one."""


class ClientGate:
    """The settings of one gate, for the requests of one client or of several. Safe for threads and asyncio at once.

    It can be pickled, with the clients it is part of: in another process it is a gate of its own with the same
    settings, which shares a quota if it has a ``store``.
    """

    repeats_conflicts = False
    """Whether a 409 goes again, as it does in the clients of language models."""
    fallbacks: ClientFallbacks | None = None
    """Other targets for requests that theirs cannot take."""
    answers_spend_stops = False
    """Whether calls that an account cannot pay for get an answer: a vendor's client hides the words of an error."""
    _is_shared = True
    """False: it was made for one client, and is closed with it."""
    _token = ""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        config: RateLimitConfig | None = None,
        limiter: AdaptiveRateLimiter | None = None,
        store: Store | str | None = None,
        credentials: Mapping[str, Given] | None = None,
        retries: int = 2,
        repeat_refused: bool = True,
        repeatable: Repeatable | None = None,
        max_wait: float | None = LONGEST_WAIT,
        when_open: WhenOpen = "wait",
        time_budget: float | None = None,
        key: Key | None = None,
        cost: CostOf = with_tokens,
        on_event: Callable[[ResilienceEvent], None] | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Everything has a default that suits an API of which nothing is known.

        ``limits``       what is known: ``{"requests": "500/min", "tokens": "30000/min"}``; what is not, is learned
        ``config``       all settings of the gate, also for single hosts; or ``limiter``, one that others use too
        ``store``        share the limits with all that use the same store: "machine" or "redis://..."
        ``credentials``  a coordinator for each origin; what a request carries in that header is replaced
        ``retries``      how often a failure is tried again where that is safe (``repeatable``)
        ``repeat_refused``  whether what was turned away (429) may go again although it is not ``repeatable``
        ``max_wait``     seconds; a longer wait, for the turn or because a server asks for it, is not begun; None: any
        ``when_open``    of a host that only fails: "wait" for its next probe, within ``max_wait``; or "refuse" at once
        ``time_budget``  waiting, attempts and backoff together, until the answer begins
        ``key``, ``cost``   the queue of a request, and what it takes of known limits
        """
        self._settings = {name: value for name, value in locals().items() if name != "self"}
        check_whole("retries", retries, 0)
        check("max_wait", max_wait, max_wait is None or number(max_wait) >= 0, "None, or 0 or more seconds")
        check_time("time_budget", time_budget)
        check_when_open(when_open)
        if limiter is not None and (config is not None or limits is not None or store is not None):
            raise ConfigError("limiter has its own config, limits and store; pass either limiter or these")
        if limiter is not None and credentials:
            raise ConfigError("limiter cannot be combined with credentials (each has a gate); pass config= and store=")
        if limiter is None:
            config = RateLimitConfig(domain_state_ttl=REMEMBERED) if config is None else config
            config = config if limits is None else replace(config, limits=limits)
        else:
            config = limiter.config
        self.repeatable = is_idempotent if repeatable is None else repeatable
        self.repeat_refused = repeat_refused
        self.retries = retries
        self.when_open = when_open
        self.max_wait = inf if max_wait is None else max_wait
        self.time_budget = inf if time_budget is None else time_budget
        self._key, self._cost = by_host if key is None else key, cost
        self._bound: dict[str, OriginCredentials] = bind(credentials or {})
        self.hosts = HostManager(config, limiter, store, clock=clock, rng=rng, on_event=on_event)
        resilience = ProviderResilienceConfig(
            rate_limiter=RateLimiterConfig(max_wait_seconds=self.max_wait),
            failure_threshold=config.consecutive_fail_threshold,
            recovery_timeout=config.open_state_duration,
            half_open_probes=config.half_open_probes,
            max_attempts=retries + 1,
            base_delay=config.retry_base_delay,
            max_delay=config.retry_max_delay,
            time_budget=self.time_budget,
        )
        self._options = CallOptions(manager=self.hosts, resilience_config=resilience, when_open=when_open)
        self._options_of = {
            origin: self._options.replace(credentials=one.credentials) for origin, one in self._bound.items()
        }
        """With the credentials of each origin: made once, since every call needs them."""

    @classmethod
    def given(cls, passing: ClientGate | None, settings: Mapping[str, Any]) -> ClientGate:
        """The gate that a client was given, or one of its own with these settings."""
        if passing is None:
            made = cls(**settings)
            made._is_shared = False
            return made
        if settings:
            raise ConfigError(f"passing has its own settings; remove {', '.join(settings)}")
        return passing

    def for_models(self) -> Self:
        """The same gate for a vendor's client: a key for each model, and repeats as the client would make them.

        What was set explicitly (``key``, ``repeatable``) stays.
        """
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__, _token="")
        view.repeats_conflicts = True
        if self._settings["key"] is None:
            view._key = by_model
        if self._settings["repeatable"] is None:
            view.repeatable = is_idempotent_or_generates
        return view

    @property
    def limiter(self) -> AdaptiveRateLimiter:
        """The limiter of this gate: for its snapshot, or to share it with other code."""
        return self.hosts.limiter

    def credentials_at(self, url: str) -> OriginCredentials | None:
        """Those that requests to this origin are sent with."""
        return self._bound.get(origin_of(url))

    def begin(
        self,
        request: OutgoingRequest,
        *,
        unsent: Errors = (),
        client_errors: Errors = (),
        route: RequestRoute | None = None,
        credentials: OriginCredentials | None = None,
    ) -> GatedRequest:
        """Begin the way of one request.

        ``unsent`` are the client's errors after which nothing has been sent (no connection); ``client_errors`` say
        nothing about the server (no free connection in the client's own pool). ``route``: it may go to other targets
        (``fallbacks``); ``credentials`` are those of the one that it goes to now.
        """
        release_leaked()
        if request.for_model:
            request.vendor = self.hosts.vendor_at(request.url)
        key = self._key(request)
        cost = self._cost(request) if self._counts_tokens(request, key) else 1
        request.drop_parsed()
        origin = origin_of(request.url) if self._bound else ""
        bound = self._bound.get(origin)
        if request.tier and not has_own_tiers(request.vendor):
            self.hosts.share_tier(key, request.tier, bound if credentials is None else credentials)
        options = self._options_of.get(origin, self._options)
        if credentials is not None and credentials is not bound:
            bound = credentials
            options = options.replace(credentials=credentials.credentials)
        if cost != 1 or request.is_repeated:
            options = options.replace(
                cost=cost,
                max_attempts=1 if request.is_repeated else None,  # a client that repeats by itself does so often enough
            )
        rule = RepeatRule(
            is_safe=self.repeatable(request),
            when_turned_away=self.repeat_refused,
            conflicts=self.repeats_conflicts,
            unsent=unsent,
        )
        gated = GatedRequest(
            request, key, options, self.hosts, rule=rule, credentials=bound, client_errors=client_errors
        )
        if route is not None:
            route.begun(gated)
        return gated

    def _counts_tokens(self, request: OutgoingRequest, key: str) -> bool:
        """Whether a limit is on more than requests, or one was met that may be."""
        may_be = self._cost is with_tokens and request.for_model and self.hosts.is_limited(key)
        return may_be or self.hosts.has_token_limits(key)

    def close(self) -> None:
        """Give back what is held of a shared quota, and close the store; it happens by itself when the program ends.

        A gate that is used again opens it again.
        """
        self.limiter.close()

    def client_closed(self) -> None:
        """A client behind this gate was closed: close what was made for it alone."""
        if not self._is_shared:
            self.close()

    async def client_closed_async(self) -> None:
        """The same for an event loop, which does not wait for a store."""
        if not self._is_shared and self.limiter.look_at_sharing() is not None:
            import asyncio  # here, because a program without an event loop should not load one

            await asyncio.to_thread(self.close)

    def __reduce__(self) -> tuple[object, ...]:
        local = [name for name in UNPICKLED if self._settings[name] is not None]
        if local:
            raise pickle.PicklingError(
                f"passing: {', '.join(local)} cannot be passed to another process; create the client there"
            )
        if not self._token:
            self._token = os.urandom(16).hex()
            _by_token[self._token] = self
        settings = {name: value for name, value in self._settings.items() if name not in UNPICKLED}
        return _restored, (self._token, settings, self._is_shared, self.repeats_conflicts)


def _restored(token: str, settings: dict[str, Any], is_shared: bool, is_for_models: bool) -> ClientGate:
    """The gate that was pickled, if it is of this process; else one with its settings, once for all clients."""
    known = _by_token.get(token)
    if known is None:
        known = ClientGate(**settings)
        known = known.for_models() if is_for_models else known
        known._is_shared, known._token = is_shared, token
        known = _by_token.setdefault(token, known)
    return known


Passing = ClientGate
"""The public name: ``headgate.Passing``."""


# ---------------------------------------------------------------------- refusals
# A refusal is raised as the client's own kind of error and as Headgate's at once: either kind of ``except`` catches it.

Refusals = Mapping[type[Refused], type[Refused]]
"""A client's own kinds of refusal, by the family of ours that each is raised for."""
_FAMILIES = (WaitTooLongError, TimeBudgetExceededError, CircuitOpenError, Refused)
"""The first that a refusal belongs to decides."""


def refusal_kinds(
    wait_too_long: type[Refused], out_of_time: type[Refused], circuit_open: type[Refused], other: type[Refused]
) -> Refusals:
    """A client's own kinds of refusal."""
    return dict(zip(_FAMILIES, (wait_too_long, out_of_time, circuit_open, other), strict=True))


_SPEND = Outcome.SPEND.value


def is_spend_stop(error: Refused) -> bool:
    """Whether a call was refused because no account that it could use can spend."""
    return error.code == _SPEND or {*getattr(error, "reasons", {}).values()} == {_SPEND}


def as_client_error(error: Refused, kinds: Refusals) -> Refused:
    """The refusal as the client's own kind of error, with all that is known of it."""
    kind = next(kinds[family] for family in _FAMILIES if isinstance(error, family))
    converted = kind(error.key, error.reason, error.retry_after)
    vars(converted).update(vars(error))
    converted.__cause__ = error.__cause__
    return converted
