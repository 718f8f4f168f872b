"""The way to a Redis or Valkey: one server, the one the Sentinels point at, or the nodes of a Cluster.

All three are asked the same way: a few requests at once, one round trip, an answer or an error for each. Nothing is
tried again here and nothing waits longer than the timeout for one step: a caller would rather go on
without the store, and a request may be repeated at any time.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import AskError, MovedError, NoScriptError, RedisClusterException, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from .redis_address import FILES, SENTINEL_LOGIN, Address

if TYPE_CHECKING:
    from .redis import Request

__all__ = ["FAULTS", "NoScriptError", "Server", "connect", "why"]

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
