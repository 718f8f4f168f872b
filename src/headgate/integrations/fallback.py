"""The fallbacks of a client's gate: how one request looks at another target, and when it goes there.

    request ─> gate of its target ─> response or error ── why? ──> core.fallback ─> the same request, adapted:
                                                                    its URL, its model, the target's own keys

Only what language models are asked moves, and only before anything of a response was handed to the client. What
belongs to one origin (its keys, its headers) goes to no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..batch.endpoints import Endpoint, InvalidPathError, TargetConfig
from ..core.fallback import LONG_QUOTA, PRIMARY, CallRoute, MoveReason, Target, TargetStates
from ..credentials.sources import credentials_from
from ..errors import ConfigError
from ..resilience.context import KEY_GAP, Credentials
from ..resilience.events import log_move
from ..resilience.fallback import Fallback, accepted_reasons, account_of
from ..resilience.fallback_call import why_moved
from ..wire.fallback import adapt_bytes, refusal_in
from .origins import OriginCredentials, is_secret, origin_of
from .request import OutgoingRequest
from .response_reader import unpacked

if TYPE_CHECKING:
    from .gated_request import GatedRequest


@dataclass(frozen=True, slots=True)
class MovedRequest:
    """What is sent to a fallback."""

    url: str
    headers: dict[str, str] = field(repr=False)
    """All of them, but for the length."""
    body: bytes = field(repr=False)
    credentials: OriginCredentials | None


@dataclass(frozen=True, slots=True)
class FallbackTarget:
    """One target, and what is sent there."""

    fallback: Fallback
    endpoint: Endpoint
    query: str
    credentials: OriginCredentials | None
    is_same_origin: bool

    @property
    def account(self) -> Hashable:
        """None for the primary's."""
        fallback = self.fallback
        if self.is_same_origin and not fallback.keys:
            return None
        return account_of(self.endpoint.name, fallback.keys, fallback.header)

    @property
    def label(self) -> str:
        return f"{self.endpoint.name}/{self.fallback.model}" if self.fallback.model else self.endpoint.name

    def adapted(self, request: OutgoingRequest, path: str) -> MovedRequest | None:
        """The request as it is sent here; None if it cannot be made. ``path`` is its own, below the client's URL."""
        path = path if path.startswith("/v1/") else f"/v1{path}"
        body = None
        if request.body is not None:
            body = adapt_bytes(request.body, model=self.fallback.model, vendor=self.endpoint.name, path=path)
        try:
            url = self.endpoint.url(path)
        except InvalidPathError:
            return None
        if body is None:
            return None
        if self.query:
            url = f"{url}{'&' if '?' in url else '?'}{self.query}"
        kept = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in ("host", "content-length", "cookie") and (self.is_same_origin or not is_secret(name))
        }
        kept |= {name.lower(): value for name, value in self.endpoint.headers}
        return MovedRequest(url, kept, body, self.credentials)


class ClientFallbacks:
    """The targets of all requests of one client."""

    def __init__(
        self,
        base_url: str,
        fallbacks: Sequence[Fallback],
        *,
        dialect: str = "openai",
        primary: OriginCredentials | None = None,
        coordinator: Callable[[Fallback, Endpoint], Credentials | None] | None = None,
    ) -> None:
        """``base_url`` is the client's own; ``primary`` its keys. ``coordinator`` makes those of a fallback, where the
        caller does not want them read here. Raises ``ConfigError``."""
        self._base_url = base_url.rstrip("/")
        config = TargetConfig(to=self._base_url, dialect=dialect if dialect != "openai" else "")
        make = coordinator or credentials_for
        self._targets = [self._target(config, one, primary, make) for one in fallbacks]
        self._accepts = accepted_reasons(fallbacks)
        self._has_keys = primary is not None
        self._states = TargetStates()
        self.moves_content = any(MoveReason.REFUSED_CONTENT in one for one in self._accepts)

    def _target(
        self,
        config: TargetConfig,
        fallback: Fallback,
        primary: OriginCredentials | None,
        make: Callable[[Fallback, Endpoint], Credentials | None],
    ) -> FallbackTarget:
        other = config.for_fallback(fallback)
        endpoint = other.endpoint
        is_same = origin_of(endpoint.base_url) == origin_of(self._base_url)
        bound = primary if is_same else None
        keys = None if is_same and not fallback.keys else make(fallback, endpoint)
        if keys is not None:
            origin = origin_of(endpoint.base_url)
            bound = OriginCredentials(origin, keys, endpoint.key_header, endpoint.key_prefix + KEY_GAP)
        query = "&".join(f"{name}={value}" for name, value in other.query.items())
        endpoint = replace(endpoint, headers=(*(() if is_same else endpoint.headers), *other.headers.items()))
        return FallbackTarget(fallback, endpoint, query, bound, is_same)

    def begin(self, request: OutgoingRequest, now: float) -> RequestRoute | None:
        """The way of one request; None for one that never moves."""
        if not request.for_model or request.body is None or not request.can_repeat_body:
            return None
        if not request.url.startswith(self._base_url + "/"):
            return None
        body = request.parsed()
        model = body.get("model") if isinstance(body, dict) else None
        model = model if isinstance(model, str) else ""
        own = None if self._has_keys else request.account  # each program's, where they send their own keys
        targets = [Target(own, (PRIMARY, model))]
        for number, one in enumerate(self._targets, 1):  # it may be another tier of the same model
            targets.append(Target(one.account or own, (number, one.fallback.model or model)))
        path = request.url.removeprefix(self._base_url)
        return RequestRoute(self._targets, request, path, CallRoute(self._accepts, self._states, targets, now))

    @property
    def endpoints(self) -> list[Endpoint]:
        return [one.endpoint for one in self._targets]


class RequestRoute:
    """One request on its way over several targets."""

    def __init__(
        self, targets: Sequence[FallbackTarget], request: OutgoingRequest, path: str, route: CallRoute
    ) -> None:
        self._targets, self._request, self._path, self._route = targets, request, path, route
        self._gated: GatedRequest | None = None
        self.moved = self._adapted()
        """What is sent now, where that is not the request itself."""

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of the fallback that it goes to."""
        return self._targets[self._route.choice.target - 1].endpoint

    @property
    def label(self) -> str:
        """The fallback that it goes to; empty for the primary."""
        target = self._route.choice.target
        return self._targets[target - 1].label if target else ""

    @property
    def why(self) -> str:
        return "" if self._route.choice.why is None else self._route.choice.why.value

    def _adapted(self) -> MovedRequest | None:
        target = self._route.choice.target
        return self._targets[target - 1].adapted(self._request, self._path) if target else None

    def begun(self, gated: GatedRequest) -> None:
        """It is sent through this gate, and need not wait there for what another target can do now."""
        self._gated = gated
        route = self._route
        gated.request.payer = route.target.account
        gated.bound_waits(
            refuses_open=route.may_move(MoveReason.CIRCUIT_OPEN),
            max_wait=LONG_QUOTA if route.may_move(MoveReason.QUOTA_UNTIL) else None,
            stops_at_capacity=route.may_move(MoveReason.CAPACITY),
        )

    def ended(self, error: BaseException | None, refusal: MoveReason | None = None) -> bool:
        """A target has answered, or not: whether another one is asked. ``refusal``: of a good answer."""
        assert self._gated is not None
        call = self._gated.call
        if error is not None and not isinstance(error, Exception):
            return False
        if error is None and not call.has_failed and refusal is None:
            self._route.worked()
            return False
        why, seconds = (refusal, None) if refusal is not None else why_moved(call, error)
        now = call.clock.now()
        if why is None or call.time_left() <= 0.0:
            return False
        while self._route.move(why, now, seconds):
            self.moved = self._adapted()
            if self._route.choice.target == 0 or self.moved is not None:
                log_move(call, self.label or "the first target", self._route.choice.why or why)
                return True
            why, seconds = MoveReason.FAILING, None  # a request that cannot be made for this target
        return False


def refusal_in_bytes(body: bytes, encoding: str) -> MoveReason | None:
    """Whether a good answer refuses its content, by how its body begins; a long one does not."""
    read = unpacked(body, encoding)
    try:
        return None if read is None else refusal_in(json.loads(read))
    except (ValueError, RecursionError):
        return None


def credentials_for(fallback: Fallback, endpoint: Endpoint) -> Credentials | None:
    """The credentials of a fallback: given, named, or the vendor's usual ones. None: it needs none."""
    if not isinstance(fallback.keys, tuple):
        return fallback.keys
    sources = fallback.sources or ((f"env:{endpoint.key_variable}",) if endpoint.key_variable else ())
    if not sources:
        return None
    from ..credentials import CredentialCoordinator

    try:
        found = [one for source in sources for one in credentials_from(source)]
    except ConfigError as error:
        raise ConfigError(f"fallback {endpoint.name}: {error}") from None
    return CredentialCoordinator(found, provider=endpoint.name)
