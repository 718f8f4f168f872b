"""Credentials of a crawl: each belongs to an origin, goes to no other, and is used as everywhere else.

    a lease of a credential ─> a permit of the pace of host and credential ─> fetch ─> both hear how it ended
         │ none is free                                                          429  it rests, others go on
         └─> put off until one is back                                           401  it is retired, the address waits
                                                                                 403  that page is not for us: no more

A secret goes into one header of one request. Where a server sends it back, in a page or a header, it is hidden before
anybody reads that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from multidict import CIMultiDict

from ..core.decision import Outcome
from ..core.signal import SILENT, Signal
from ..credentials import CredentialCoordinator, Lease
from ..errors import ConfigError
from ..exchange import SHORTEST_SECRET
from ..limiter import Permit
from ..resilience.target import pair_key
from ..wire.redaction import HIDDEN
from .address import canonical, host_of, origin_of, unfit
from .fetched import Fetched

FORM = "Authorization: Bearer {secret}"
GAP = "{secret}"
MOST_ORIGINS = 10_000
SPENT_REST = 3600.0
"""Seconds until an origin is tried again none of whose credentials is accepted any more; somebody may free one."""

Given = CredentialCoordinator | tuple[CredentialCoordinator, str]
"""Credentials, and the header they go into if it is another one than ``FORM``."""


@dataclass(frozen=True, slots=True)
class OriginKeys:
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


def keys_by_origin(given: Mapping[str, Given]) -> dict[str, OriginKeys]:
    """Checked, and with origins in the spelling of addresses. What is wrong is told without a word of a secret."""
    if len(given) > MOST_ORIGINS:
        raise ConfigError(f"credentials: {len(given):,} origins must be at most {MOST_ORIGINS:,}")
    found: dict[str, OriginKeys] = {}
    for number, (text, value) in enumerate(given.items(), 1):
        origin = origin_named("credentials", number, text)
        coordinator, form = value if isinstance(value, tuple) else (value, FORM)
        if not isinstance(coordinator, CredentialCoordinator):
            raise ConfigError(f"credentials: number {number} must be a CredentialCoordinator, made once for all crawls")
        name, colon, around = form.partition(":")
        if not (colon and name.replace("-", "").isalnum() and form.isascii() and form.isprintable()):
            raise ConfigError(f"credentials: number {number} needs a header such as {FORM!r}")
        if around.count(GAP) != 1:
            raise ConfigError(f"credentials: number {number} has a header without {GAP} in its value, or with several")
        found[origin] = OriginKeys(origin, coordinator, name, around.strip())
    return found


def origin_named(what: str, number: int, text: str) -> str:
    """An origin as addresses spell it; what is none would never be asked, and that is said."""
    url = canonical(text)
    if url is None or url != f"{origin_of(url)}/":
        raise ConfigError(f"{what}: number {number} {unfit(text) or 'has a path'}; an origin is https://host")
    return origin_of(url)


class Leave:
    """Leave for one call: a permit, and a credential where the origin has some. Ends once, like both."""

    __slots__ = ("_keys", "lease", "permit")

    def __init__(self, permit: Permit, lease: Lease | None = None, keys: OriginKeys | None = None) -> None:
        self.permit, self.lease, self._keys = permit, lease, keys

    @property
    def label(self) -> str:
        return "" if self.lease is None else self.lease.label

    def headers_for(self, url: str) -> dict[str, str]:
        """What goes along with the request; nothing to any other origin."""
        if self.lease is None or self._keys is None or origin_of(url) != self._keys.origin:
            return {}
        return {self._keys.header: self._keys.form.replace(GAP, self.lease.secret)}

    def without_secret(self, fetched: Fetched) -> Fetched:
        """The answer, without the secret where the server sends it back."""
        secret = "" if self.lease is None else self.lease.secret
        if len(secret) < SHORTEST_SECRET:
            return fetched
        body = fetched.body.replace(secret.encode(), HIDDEN.encode())
        headers, location = fetched.headers, fetched.location
        if any(secret in value for value in headers.values()):
            headers = CIMultiDict((name, value.replace(secret, HIDDEN)) for name, value in headers.items())
            location = None if location is None else location.replace(secret, HIDDEN)
        return replace(fetched, body=body, headers=headers, location=location)

    def end(self, signal: Signal, status: int = 0, latency: float | None = None) -> None:
        """Tell the gate and the credential how the call ended."""
        self.permit.gate.limiter.end(self.permit, signal, latency, None, status or None)
        if self.lease is None:
            return
        if signal.outcome is Outcome.AUTH and status != 401:
            self.lease.release()  # of this page alone nobody can tell anything about the others
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
