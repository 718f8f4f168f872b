"""Credentials of a crawl: each belongs to an origin, goes to no other, and is used as everywhere else.

    a lease of a credential ─> a permit of the pace of host and credential ─> fetch ─> both hear how it ended
         │ none is free                                                          429  it rests, others go on
         └─> put off until one is back                                           401  it is retired, the URL waits
                                                                                 403  that page is not for it: no more

A secret goes into one header of one request. Where a server sends it back, in a page or a header, it is hidden before
anything reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from ...core.decision import Outcome
from ...core.signal import SILENT, Signal
from ...credentials import CredentialCoordinator, Lease
from ...errors import ConfigError
from ...exchange import hide_secret
from ...formatting import HIDDEN
from ...limiter import Permit
from ...resilience.context import KEY_GAP, KEY_HEADER, parse_key_header
from ...wire.urls import pair_key
from ..url import canonical, host_of, origin_of, unfit
from .response import FetchResponse

MOST_ORIGINS = 10_000
SPENT_REST = 3600.0
"""Seconds until an origin is tried again none of whose credentials is accepted any more; an operator may free one."""

Given = CredentialCoordinator | tuple[CredentialCoordinator, str]
"""Credentials, and the header they go into if it is another one than ``KEY_HEADER``."""


@dataclass(frozen=True, slots=True)
class OriginCredentials:
    """One origin's credentials."""

    origin: str
    coordinator: CredentialCoordinator
    header: str
    form: str

    async def acquire(self, within: float) -> Lease:
        """Wait for one that is free; raises ``NoCredentialError``. One that no header can hold is retired."""
        while True:
            lease = await self.coordinator.acquire_async(within)
            if lease.secret.isascii() and lease.secret.isprintable():
                return lease
            lease.report(signal=SILENT[Outcome.AUTH])

    def gate_key(self, label: str) -> str:
        """What the pace of this one is learned under."""
        return pair_key(host_of(self.origin), self.coordinator.paced_by(label))

    @property
    def gate_keys(self) -> list[str]:
        return list(dict.fromkeys(map(self.gate_key, self.coordinator.labels)))

    @property
    def is_spent(self) -> bool:
        """Whether none of them is accepted any more."""
        return all(self.coordinator.back_in(label) is None for label in self.coordinator.labels)


def keys_by_origin(given: Mapping[str, Given]) -> dict[str, OriginCredentials]:
    """Checked credentials by origin, spelled as in URLs. Raises ``ConfigError``, which shows no secret."""
    if len(given) > MOST_ORIGINS:
        raise ConfigError(f"credentials: got {len(given):,} origins; the limit is {MOST_ORIGINS:,}")
    found: dict[str, OriginCredentials] = {}
    for number, (text, value) in enumerate(given.items(), 1):
        origin = origin_named("credentials", number, text)
        coordinator, form = value if isinstance(value, tuple) else (value, KEY_HEADER)
        if not isinstance(coordinator, CredentialCoordinator):
            raise ConfigError(f"credentials: number {number} must be a CredentialCoordinator, made once for all crawls")
        found[origin] = OriginCredentials(origin, coordinator, *parse_key_header(number, form))
    return found


def origin_named(what: str, number: int, text: str) -> str:
    """The origin of this text, spelled as in URLs. Raises ``ConfigError`` if it is not one."""
    url = canonical(text)
    if url is None or url != f"{origin_of(url)}/":
        raise ConfigError(f"{what}: number {number} {unfit(text) or 'has a path'}; an origin is https://host")
    return origin_of(url)


class FetchPermit:
    """A permit for one fetch, and a credential where the origin has some. Ends once, like both."""

    __slots__ = ("_keys", "lease", "permit")

    def __init__(self, permit: Permit, lease: Lease | None = None, keys: OriginCredentials | None = None) -> None:
        self.permit, self.lease, self._keys = permit, lease, keys

    @property
    def label(self) -> str:
        return "" if self.lease is None else self.lease.label

    def headers_for(self, url: str) -> dict[str, str]:
        """What goes along with the request; nothing to any other origin."""
        if self.lease is None or self._keys is None or origin_of(url) != self._keys.origin:
            return {}
        return {self._keys.header: self._keys.form.replace(KEY_GAP, self.lease.secret)}

    def without_secret(self, fetched: FetchResponse) -> FetchResponse:
        """The answer, without the secret where the server sends it back."""
        if self.lease is None:
            return fetched
        secret, location = self.lease.secret, fetched.location
        body, headers = hide_secret(secret, fetched.body, fetched.headers)
        if location is not None and headers is not fetched.headers:
            location = location.replace(secret, HIDDEN)
        return replace(fetched, body=body, headers=headers, location=location)

    def end(self, signal: Signal, status: int = 0, latency: float | None = None) -> None:
        """Tell the gate and the credential how the call ended."""
        self.permit.report_signal(signal, latency=latency, answer=status or None)
        if self.lease is None:
            return
        if signal.outcome is Outcome.AUTH and status != 401:
            self.lease.release()  # one page says nothing about the others
        else:
            self.lease.report(signal=signal)

    def abandon(self) -> None:
        """Nothing was sent."""
        self.permit.abandon()
        if self.lease is not None:
            self.lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.permit.__exit__(kind, error, trace)
        if self.lease is not None:
            self.lease.release()
