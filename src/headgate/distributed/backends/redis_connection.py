"""A Redis or Valkey: its address, and the way to it (one server, the one the Sentinels point at, or a Cluster).

    redis://[[user]:password@]host[:port][/database]                      one server; rediss:// and the like: with TLS
    redis+sentinel://[[user]:password@]host[:port],.../service[/database]  the primary by the Sentinels' word
    redis+cluster://[[user]:password@]host[:port],...                      a Cluster, by any of its nodes

Options behind ``?``: ``timeout`` (seconds; more for a server that is far away), ``ssl_ca_certs``, ``ssl_certfile``,
``ssl_keyfile`` (paths), ``sentinel_username`` and ``sentinel_password``. An error names what is wrong with an address
and never quotes it: a slip of the pen may put a password anywhere in it.

All three are asked the same way: a few requests at once, one round trip, an answer or an error for each. Nothing is
tried again here and nothing waits longer than the timeout for one step: a caller would rather go on
without the store, and a request may be repeated at any time.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from ...errors import ConfigError

try:
    import redis
except ModuleNotFoundError as error:
    if error.name != "redis":  # the library is there, and lacks another
        raise
    raise ConfigError('a redis store needs the client library: pip install "headgate[redis]"') from None
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import AskError, MovedError, RedisClusterException, RedisError, ResponseError
from redis.exceptions import NoScriptError as NoScriptError
from redis.retry import Retry
from redis.sentinel import Sentinel

if TYPE_CHECKING:
    from .redis import Request


PORT, SENTINEL_PORT = 6379, 26379
MOST_HOSTS = 32
KINDS = {"": "server", "+sentinel": "sentinel", "+cluster": "cluster"}
FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
LONGEST_TIMEOUT = 60.0
SENTINEL_LOGIN = ("sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    kind: str
    """One of ``KINDS``."""
    hosts: tuple[tuple[str, int], ...]
    tls: bool = False
    service: str = ""
    """What the Sentinels call it."""
    database: int = 0
    timeout: float | None = None
    """Seconds for which an exchange may wait, if the address says so."""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    options: dict[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        hosts = ", ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        words = {
            "server": f"redis at {hosts}",
            "sentinel": f"redis {self.service!r} (sentinels at {hosts})",
            "cluster": f"redis cluster at {hosts}",
        }[self.kind]
        return words + (f", database {self.database}" if self.database else "") + (", TLS" if self.tls else "")


def read_address(url: str) -> Address:
    """Raises ``ConfigError``."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        _wrong("not a valid URL")
    name, plus, kind = parts.scheme.partition("+")
    if name not in ("redis", "rediss") or plus + kind not in KINDS:
        _wrong("expected redis://, rediss://, redis+sentinel:// or redis+cluster://")
    kind = KINDS[plus + kind]
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    service, database = _path(kind, parts.path)
    known = ("timeout", *FILES, *(SENTINEL_LOGIN if kind == "sentinel" else ()))
    if not set(options) <= set(known):
        _wrong(f"unknown parameter after ?; known are {', '.join(known)}")
    if name == "redis" and set(options) & set(FILES):
        _wrong("certificates need rediss://")
    return Address(
        kind=kind,
        hosts=_hosts(hosts, SENTINEL_PORT if kind == "sentinel" else PORT, 1 if kind == "server" else MOST_HOSTS),
        tls=name == "rediss",
        service=service,
        database=database,
        timeout=_timeout(options.pop("timeout", None)),
        username=unquote(username),
        password=unquote(password),
        options=options,
    )


def _path(kind: str, path: str) -> tuple[str, int]:
    """The service and the number of the database."""
    rooms = [unquote(room) for room in path.split("/")[1:] if room]
    service = ""
    if kind == "sentinel":
        if not rooms:
            _wrong("the name of the service is missing: redis+sentinel://host:26379/SERVICE")
        service = rooms.pop(0)
    if kind == "cluster" and rooms:
        _wrong("a cluster has no numbered databases; remove the path")
    if len(rooms) > 1 or not all(room.isdecimal() and room.isascii() and len(room) <= 4 for room in rooms):
        _wrong("the database must be a number from 0 to 9999")
    return service, int(rooms[0]) if rooms else 0


def _hosts(text: str, usual_port: int, most: int) -> tuple[tuple[str, int], ...]:
    hosts = tuple(_host(one, usual_port) for one in text.split(","))
    if len(hosts) > most:
        _wrong(f"{len(hosts)} hosts given; the limit is {most}")
    return hosts


def _host(text: str, usual_port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            _wrong("an IPv6 host is written [::1]:6379")
        port = port[1:]
    else:
        host, _, port = text.partition(":")
    if not host:
        _wrong("a host is missing")
    if port and not (port.isdecimal() and port.isascii() and len(port) <= 5 and 1 <= int(port) <= 65_535):
        _wrong("a port must be a number from 1 to 65535")
    return host, int(port) if port else usual_port


def _timeout(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        timeout = float(text)
    except ValueError:
        timeout = 0.0
    if not 0.0 < timeout <= LONGEST_TIMEOUT:
        _wrong(f"the timeout must be above 0 and at most {LONGEST_TIMEOUT:.0f} seconds")
    return timeout


def _wrong(what: str) -> NoReturn:
    raise ConfigError(f"redis store address: {what}") from None


# ------------------------------------------------------------------ the way to it

FAULTS = (RedisError, RedisClusterException, OSError)
"""What the client library raises if a store does not do what it should."""
MOST_CONNECTIONS = 64
"""One for each limiter that asks at the same time."""
SCANNED_AT_ONCE = 1_000
LAST_MOMENT = 0.001
"""Seconds in which what has arrived can still be read."""


class Server(Protocol):
    def ask(self, requests: Sequence[Request], timeout: float) -> list[Any]:
        """One round trip: an answer for each request, or an error in its place; one of ``FAULTS`` if nothing came."""

    def keys(self, pattern: str) -> Iterator[bytes]: ...

    def close(self) -> None: ...


def connect(address: Address, timeout: float) -> Server:
    """Only a Cluster is really asked for something at this point: for its nodes."""
    common: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "health_check_interval": 0,
        "protocol": 2,  # no greeting: a new connection costs no round trip
        "driver_info": None,
        "max_connections": MOST_CONNECTIONS,
    }
    if address.tls:
        common |= {"ssl": True, **{name: address.options[name] for name in FILES if name in address.options}}
    ours = {**common, "username": address.username or None, "password": address.password or None}
    once = Retry(NoBackoff(), 0)
    if address.kind == "cluster":
        nodes = [_node(host, port) for host, port in address.hosts]
        cluster = RedisCluster(startup_nodes=nodes, retry=once, require_full_coverage=False, **ours)
        return _Nodes(cluster)
    if address.kind == "sentinel":
        login = {name.removeprefix("sentinel_"): address.options.get(name) for name in SENTINEL_LOGIN}
        asked = {**common, **login, "retry": once}
        sentinel: Any = Sentinel(address.hosts, sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
        primary = sentinel.master_for(address.service, db=address.database, retry=once, **ours)
        return _One(primary, sentinel)
    host, port = address.hosts[0]
    return _One(redis.Redis(host, port, address.database, retry=once, **ours))


class _One:
    def __init__(self, client: Any, sentinel: Sentinel | None = None) -> None:
        self._client = client
        self._sentinel = sentinel

    def ask(self, requests: Sequence[Request], timeout: float) -> list[Any]:
        return _ask(self._client, requests, timeout)

    def keys(self, pattern: str) -> Iterator[bytes]:
        return self._client.scan_iter(pattern, SCANNED_AT_ONCE)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._client.close()
        if self._sentinel is not None:
            self._sentinel.close()


class _Nodes:
    """The client library knows which node has what; requests for the same node travel together.

    A node that fails leaves its error in place of its answers, and whatever was to be asked after it is not:
    two nodes that do not answer must not take twice the time.
    """

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._failed = ""
        """The node that failed last, since which it is not known what it has."""

    def ask(self, requests: Sequence[Request], timeout: float) -> list[Any]:
        if self._failed:
            self._cluster.nodes_manager.initialize(last_failed_node_name=self._failed)
            self._failed = ""
        answers = self._ask_nodes(requests, timeout)
        for place, answer in enumerate(answers):
            if isinstance(answer, AskError):
                answers[place] = self._follow(requests[place], answer, timeout)
        return answers

    def _ask_nodes(self, requests: Sequence[Request], timeout: float) -> list[Any]:
        by_node: dict[Any, list[int]] = {}
        for place, request in enumerate(requests):
            by_node.setdefault(self._cluster.get_node_from_key(request.key), []).append(place)
        answers: list[Any] = [None] * len(requests)
        fault: Exception | None = None
        for node, places in by_node.items():
            given: list[Any] = [fault] * len(places)
            if fault is None:
                try:
                    given = _ask(
                        self._cluster.get_redis_connection(node), [requests[place] for place in places], timeout
                    )
                except FAULTS as error:
                    fault, given = error, [error] * len(places)
                    self._failed = node.name
            for place, answer in zip(places, given, strict=True):
                answers[place] = answer
        return answers

    def _follow(self, request: Request, redirect: AskError, timeout: float) -> Any:
        """Ask where the answer says: for good (MOVED), or because the slot is being moved (ASK)."""
        manager = self._cluster.nodes_manager
        if isinstance(redirect, MovedError):
            manager.initialize(additional_startup_nodes_info=[(redirect.host, redirect.port)])
            return self._ask_nodes([request], timeout)[0]
        node = self._cluster.get_node(redirect.host, redirect.port) or _node(redirect.host, redirect.port)
        connection = self._cluster.get_redis_connection(node)
        return _ask(connection, [request._replace(words=("ASKING",)), request], timeout)[1]

    def keys(self, pattern: str) -> Iterator[bytes]:
        return self._cluster.scan_iter(pattern, SCANNED_AT_ONCE)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._cluster.close()


def _node(host: str, port: int) -> Any:
    return ClusterNode(host, port)  # type: ignore[no-untyped-call]


def _ask(client: Any, requests: Sequence[Request], timeout: float) -> list[Any]:
    """Send all, then read all, within the timeout. The answers are as they come, not as the library would turn them."""
    give_up_at = time.monotonic() + timeout
    pool = client.connection_pool
    connection = pool.get_connection()
    try:
        connection.send_packed_command(connection.pack_commands([request.words for request in requests]))
        return [_answer(connection, give_up_at - time.monotonic()) for _ in requests]
    except BaseException:
        connection.disconnect()  # else what comes too late would be taken for the answer to something else
        raise
    finally:
        pool.release(connection)


def _answer(connection: Any, timeout: float) -> Any:
    try:
        return connection.read_response(timeout=max(LAST_MOMENT, timeout))
    except ResponseError as error:
        return error


# ------------------------------------------------------------------ what went wrong, for people

_BY_CODE = {
    "ReadOnlyError": "it is a read-only replica",
    "OutOfMemoryError": "it is out of memory and rejects writes",
    "BusyLoadingError": "it is still loading its data",
    "AuthenticationError": "it rejects the user or the password",
    "NoPermissionError": "the user may not run scripts or use the keys headgate:*",
    "ClusterDownError": "the cluster is down",
    "MasterDownError": "it has lost its primary",
    "MasterNotFoundError": "no reachable sentinel knows a primary",
    "SlotNotCoveredError": "no node of the cluster has the key",
    "TryAgainError": "the key is being moved to another node",
    "MaxConnectionsError": f"more than {MOST_CONNECTIONS} connections are in use",
    "MISCONF": "it cannot save to disk and rejects writes",
    "NOREPLICAS": "it has too few replicas and rejects writes",
    "BUSY": "it is busy with a script",
    "UNKILLABLE": "it is busy with a script",
}


def why(fault: BaseException, timeout: float) -> str:
    """A sentence without anything that was sent or set: what a server answers may quote that."""
    if isinstance(fault, redis.TimeoutError | TimeoutError):
        return f"no answer within {timeout * 1000:.0f} ms"
    name = type(fault).__name__
    if type(fault) is ResponseError:
        name = str(fault).partition(" ")[0]
        return _BY_CODE.get(name) or "it answered with an error" + (f" ({name})" if name.isupper() else "")
    if name in _BY_CODE:
        return _BY_CODE[name]
    cause: BaseException | None = fault
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({cause.verify_message})"
        if isinstance(cause, ssl.SSLError):
            return "the TLS handshake failed"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror[0].lower() + cause.strerror[1:]
        cause = cause.__cause__ or cause.__context__
    if isinstance(fault, RedisClusterException):
        return "no cluster node answers at that address"
    return "the connection was lost" if isinstance(fault, redis.ConnectionError) else f"it failed ({name})"
