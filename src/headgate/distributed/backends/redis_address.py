"""Where a Redis or Valkey is, as a user writes it, and the same for people, without the secrets.

    redis://[[user]:password@]host[:port][/database]                      one server; rediss:// and the like: with TLS
    redis+sentinel://[[user]:password@]host[:port],.../service[/database]  the primary by the Sentinels' word
    redis+cluster://[[user]:password@]host[:port],...                      a Cluster, by any of its nodes

Options behind ``?``: ``timeout`` (seconds; more for a server that is far away), ``ssl_ca_certs``, ``ssl_certfile``,
``ssl_keyfile`` (paths), ``sentinel_username`` and ``sentinel_password``. An error names what is wrong with an address
and never quotes it: a slip of the pen may put a password anywhere in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from ...errors import ConfigError

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
