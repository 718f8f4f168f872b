"""Keep a crawl out of networks that are not the public's.

A page may link to ``http://169.254.169.254/`` or to a name that points into the network the crawl runs in, and a
name may be looked up as harmless and be somewhere else a moment later. So it is not the address in the link that is
judged but the one that is connected to, and between the two there is no second lookup:

    address in the link ── literal? ──────────────────────────> judge ─┐
               └── name ──> looked up once, each answer ──────> judge ─┴─> connect ─> judge the peer ─> send

    judged by                    lifted by
    ---------------------------  ------------------------------------------------------------------
    public                       always let through
    private, loopback, ...       ``allow_private``, or the host's name or the address in ``allowed_hosts``
    metadata, multicast, ...     the address itself, or a network it is in, in ``allowed_hosts``

IPv4 addresses inside of IPv6 ones (mapped, 6to4, NAT64) are judged as what they carry.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from ...errors import ConfigError, Refused
from ..url import unfit

if TYPE_CHECKING:
    from aiohttp.client import ClientTimeout
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

ADDRESSES_REMEMBERED = 16_384
MOST_ALLOWED = 10_000
MOST_ANSWERS = 64
"""Addresses of one name that are looked at; the rest are not connected to."""
LOOKUPS_AT_ONCE = 64
"""Threads; a lookup that hangs holds up one of them alone."""
LOOKUP_LIFE = 60
"""Seconds for which a name is not looked up again."""
KEPT_OPEN = 4.0
"""Seconds for an idle connection. Many servers hang up after 5; a request in that very moment gets no answer."""

_LIFTED_FOR_PRIVATE = frozenset(("private", "loopback", "link-local", "carrier-grade NAT"))

_SPECIAL: tuple[tuple[str, str], ...] = (
    # these hand out the credentials of the machine: AWS and most others, Alibaba, Oracle, Azure, Google
    ("metadata", "169.254.169.254 169.254.170.2 169.254.169.253 100.100.100.200 192.0.0.192 168.63.129.16"),
    ("metadata", "fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:c1::a9fe:a9fe fe80::a9fe:a9fe"),
    ("loopback", "127.0.0.0/8 ::1"),
    ("unspecified", "0.0.0.0/8 ::"),
    ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
    ("carrier-grade NAT", "100.64.0.0/10"),
    ("link-local", "169.254.0.0/16 fe80::/10"),
    ("documentation", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
    ("benchmark", "198.18.0.0/15"),
    ("multicast", "224.0.0.0/4 ff00::/8"),
    ("reserved", "192.0.0.0/24 192.88.99.0/24 240.0.0.0/4 2001::/23"),
)
_NETWORKS = tuple((kind, ip_network(network)) for kind, networks in _SPECIAL for network in networks.split())
_UNICAST = IPv6Network("2000::/3")
"""All that is public in IPv6; what lies outside is reserved, known to the table above or not."""
_CARRIERS = ((IPv6Network("::ffff:0:0/96"), 0), (IPv6Network("64:ff9b::/96"), 0), (IPv6Network("2002::/16"), 80))
"""IPv6 networks whose addresses carry an IPv4 address, and how many bits stand behind it: mapped, NAT64, 6to4."""


class RefusedAddress(Refused):
    """Nothing was sent: the host is where this crawl must not go."""


NO_ADDRESS = "no address"


@lru_cache(maxsize=ADDRESSES_REMEMBERED)
def kind_of(address: str) -> str:
    """``public``, or what else an address is; ``NO_ADDRESS`` where it cannot be read."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return NO_ADDRESS
    return _kind(found)


def _kind(address: IPv4Address | IPv6Address) -> str:
    for kind, network in _NETWORKS:
        if address in network:
            return kind
    if isinstance(address, IPv4Address):
        return "public"
    for carrier, behind in _CARRIERS:
        if address in carrier:
            return _kind(IPv4Address(int(address) >> behind & 0xFFFFFFFF))
    return "public" if address in _UNICAST else "reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class SsrfGuard:
    """Which addresses may be connected to."""

    allow_private: bool = False
    allowed_hosts: tuple[str, ...] = ()
    """Names, which may be at private addresses then; addresses and networks, which are allowed whatever they are."""
    _names: frozenset[str] = field(init=False, repr=False, compare=False)
    _networks: tuple[IPv4Network | IPv6Network, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.allowed_hosts, str) or len(self.allowed_hosts) > MOST_ALLOWED:
            raise ConfigError(f"allowed_hosts must be a list of at most {MOST_ALLOWED:,} names, addresses and networks")
        names: set[str] = set()
        networks: list[IPv4Network | IPv6Network] = []
        for entry in self.allowed_hosts:
            try:
                networks.append(ip_network(entry.strip("[]")))
            except ValueError:
                if unfit(f"http://{entry}/") or not set(entry).isdisjoint("/:"):
                    message = "is not a host name (without port), an address or a network such as 10.0.0.0/8"
                    raise ConfigError(f"allowed_hosts: {entry[:100]!r} {message}") from None
                names.add(entry.lower().removesuffix("."))
        object.__setattr__(self, "_names", frozenset(names))
        object.__setattr__(self, "_networks", tuple(networks))

    def why_not(self, host: str, address: str) -> str | None:
        """Why ``host`` must not be asked at ``address``, in a clause about the host, or None."""
        kind = kind_of(address)
        if kind == "public":
            return None
        if kind in _LIFTED_FOR_PRIVATE and (self.allow_private or host.lower().removesuffix(".") in self._names):
            return None
        if kind != NO_ADDRESS:
            bare = ip_address(address.partition("%")[0])
            if any(bare in network for network in self._networks):
                return None
        return f"is at {address[:100]} ({kind}), which is not allowed"


Lookup = Callable[..., Awaitable[list[ResolveResult]]]


class GuardedConnector(aiohttp.TCPConnector):
    """Connects to what its guard allows and to nothing else: raises ``RefusedAddress`` before anything is sent.

    To be made inside of an event loop.
    """

    def __init__(self, guard: SsrfGuard, limit: int = 100, resolver: AbstractResolver | None = None) -> None:
        super().__init__(
            limit=limit,
            resolver=_GuardedResolver(guard, _look_up if resolver is None else resolver.resolve),
            ttl_dns_cache=LOOKUP_LIFE,
            keepalive_timeout=KEPT_OPEN,
        )
        self.guard = guard

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
    ) -> Connection:
        host = req.url.host or ""
        if kind_of(host) != NO_ADDRESS:  # aiohttp looks nothing up for these
            _check_address(self.guard, host, host)
        elif host.rpartition(".")[2][:1].isdigit() and (why_not := unfit(f"http://{host}/")) is not None:
            raise RefusedAddress(host, why_not)  # nor for 127.1 and its like, in some of its versions
        connection = await super().connect(req, traces, timeout)
        try:
            peer = None if connection.transport is None else connection.transport.get_extra_info("peername")
            if peer is not None:
                _check_address(self.guard, host, peer[0])
        except RefusedAddress:
            connection.close()
            raise
        return connection


class _GuardedResolver(AbstractResolver):
    """Looks names up, and knows only those of their addresses that may be connected to."""

    def __init__(self, guard: SsrfGuard, look_up: Lookup) -> None:
        self._guard, self._look_up = guard, look_up

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = (await self._look_up(host, port, family))[:MOST_ANSWERS]
        allowed = [one for one in found if self._guard.why_not(host, one["host"]) is None]
        if found and not allowed:
            _check_address(self._guard, host, found[0]["host"])
        if not allowed:
            raise OSError(f"{host} cannot be resolved")
        return allowed

    async def close(self) -> None:
        """Nothing to close: the threads are shared by all crawls."""


def is_for_private(host: str) -> bool:
    """Whether ``allow_private`` would let a crawl go to this host. Looks its name up, if it is one."""
    try:
        addresses = [host] if kind_of(host) != NO_ADDRESS else [one[4][0] for one in socket.getaddrinfo(host, None)]
    except OSError:
        return False
    return any(kind_of(str(address)) in _LIFTED_FOR_PRIVATE for address in addresses[:MOST_ANSWERS])


def _check_address(guard: SsrfGuard, host: str, address: str) -> None:
    why_not = guard.why_not(host, address)
    if why_not is not None:
        raise RefusedAddress(host, why_not)


async def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    """The system's own lookup, in threads of its own: asyncio's few are needed for other work."""
    ask: Callable[[], list[Any]] = partial(
        socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    answers = await asyncio.get_running_loop().run_in_executor(_threads(), ask)
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return [
        ResolveResult(hostname=host, host=address[0], port=port, family=family, proto=protocol, flags=numeric)
        for family, _, protocol, _, address in answers
    ]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(LOOKUPS_AT_ONCE, thread_name_prefix="headgate-lookup")
