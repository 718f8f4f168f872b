"""Admission: reject everything that is not a plain request of a program to one of the APIs.

    Host is one of the proxy's names         else 421: another name that points here (DNS rebinding)
    no Origin or Sec-Fetch-Site of another   else 403: a web page, through a browser
    the token, where one is set              else 401
    no CONNECT, TRACE, websocket             else 405, 501: TRACE would show the client what the proxy adds
    a path that stays below its root         else 400: //host, http://host/, .. in any encoding, \\

An admitted request may use the credentials of the proxy, so what is doubtful is rejected.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
from collections.abc import Collection, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from aiohttp import web

from ..checks import check_token
from ..errors import ConfigError
from ..wire.urls import ANY_HOST, EVERY_ADDRESS, LOOPBACK, AllowedHosts, is_loopback
from .error_response import RejectedRequestError
from .mounts import Mount

OWN = "/-/"
"""Paths that the proxy answers itself."""
TOKEN_HEADER = "X-Headgate-Token"  # noqa: S105  # its name
LONGEST_TARGET = 8_192
MOST_DECODED = 3
"""How often a path may be percent-encoded."""
MOST_KNOWN_HOSTS = 64
MOST_TOKENS = 8
"""Headers of one request that are compared with the token."""
_REFUSED_METHODS = ("CONNECT", "TRACE")


class Admitted(NamedTuple):
    mount: Mount | None
    """None: a path of the proxy itself."""
    target: str
    """Path and query, without the mount's prefix, as they were sent."""


class Admission:
    """Decides which requests are forwarded, and where."""

    def __init__(
        self,
        mounts: Sequence[Mount],
        *,
        host: str,
        token: str | None,
        allow_hosts: Sequence[str],
        keyed: Collection[str],
    ) -> None:
        check_token(token)
        if token is None and not is_loopback(host):
            raise ConfigError.of("token", f"{host} is reachable from other machines; set a token")
        if token is None and ANY_HOST in allow_hosts:
            raise ConfigError.of(
                "token", "with any host allowed, pages of other sites could use the proxy; set a token"
            )
        self._only = mounts[0] if len(mounts) == 1 and not mounts[0].prefix else None
        self._by_prefix = {mount.prefix[1:]: mount for mount in mounts}
        elsewhere = () if is_loopback(host) else (socket.gethostname(), *EVERY_ADDRESS)
        self._hosts = AllowedHosts((*LOOPBACK, host, *allow_hosts, *elsewhere))
        self._known_hosts: set[str] = set()
        """Values of ``Host`` that were found to be allowed."""
        self._token = None if token is None else _digest(token)
        self._keyed = keyed

    def admit(self, request: web.BaseRequest) -> Admitted:
        """Where the request goes; raises ``RejectedRequestError``."""
        headers, raw = request.headers, request.raw_path
        hosts = headers.getall("Host", ())
        if len(hosts) != 1 or not (hosts[0] in self._known_hosts or self._is_own_name(hosts[0])):
            raise RejectedRequestError(421, "wrong_host", "Host not allowed; add it with --allow-host")
        if "Origin" in headers or "Sec-Fetch-Site" in headers:
            self._check_site(request, hosts[0])
        if request.method in _REFUSED_METHODS:
            raise RejectedRequestError(405, "method_not_allowed", f"{request.method} is not forwarded")
        if "websocket" in headers.get("Upgrade", "").lower():
            raise RejectedRequestError(501, "no_websockets", "websockets are not forwarded")
        if "Transfer-Encoding" in headers and "Content-Length" in headers:
            raise RejectedRequestError(400, "two_lengths", "both Content-Length and Transfer-Encoding are set")
        path = checked_path(raw)
        if raw.startswith(OWN):
            return Admitted(None, raw)
        mount, rest = self._only, ""
        if mount is None:
            name, _, rest = path[1:].partition("/")
            mount = self._by_prefix.get(name)
        if self._token is not None and not self._has_token(request, mount):
            raise RejectedRequestError(401, "no_token", f"a token is required, as the API key or in {TOKEN_HEADER}")
        if mount is not self._only or mount is None:
            if mount is None:
                known = ", ".join(f"/{one}/" for one in self._by_prefix)
                raise RejectedRequestError(404, "no_such_target", f"Not found: paths begin with {known}")
            path, raw = f"/{rest}", raw[len(mount.prefix) :]
            raw = raw if raw.startswith("/") else f"/{raw}"
            checked_path(raw)
        if not mount.allows(path):
            raise RejectedRequestError(404, "not_below", f"Not found: only paths below {mount.below}/ are forwarded")
        return Admitted(mount, raw)

    def _is_own_name(self, host: str) -> bool:
        is_allowed = self._hosts.has(host)
        if is_allowed and len(self._known_hosts) < MOST_KNOWN_HOSTS:
            self._known_hosts.add(host)
        return is_allowed

    def _check_site(self, request: web.BaseRequest, host: str) -> None:
        origins = request.headers.getall("Origin", ())
        sites = request.headers.getall("Sec-Fetch-Site", ())
        fine = all(one.lower() in (f"http://{host.lower()}", f"https://{host.lower()}") for one in origins)
        if not fine or not all(one in ("same-origin", "none") for one in sites):
            raise RejectedRequestError(403, "other_site", "requests from web pages of other sites are not allowed")

    def _has_token(self, request: web.BaseRequest, mount: Mount | None) -> bool:
        """Where the proxy adds the key, the token may be sent in its place: programs have no other setting for it."""
        names = [TOKEN_HEADER]
        if mount is not None and mount.name in self._keyed:
            names += ["Authorization", mount.address.key_header]
        sent = [value for name in names for value in request.headers.getall(name, ())][:MOST_TOKENS]
        expected = self._token or b""
        return any(hmac.compare_digest(_digest(one.removeprefix("Bearer ").strip()), expected) for one in sent)


def checked_path(raw: str) -> str:
    """The path of a request target; raises ``RejectedRequestError`` if it is anything but a plain path."""
    if not raw.startswith("/"):
        raise RejectedRequestError(400, "no_path", "the request target must be a path such as /v1/models")
    path = raw.partition("?")[0]
    plain = len(raw) <= LONGEST_TARGET and raw.isascii() and raw.isprintable() and " " not in raw and "#" not in raw
    if not plain or raw.startswith("//") or "\\" in path:
        raise RejectedRequestError(400, "no_path", "the request target must be a plain path such as /v1/models")
    if "/." in path or "%" in path:
        _check_segments(path)
    return path


def _check_segments(path: str) -> None:
    """No ``..`` in any encoding: servers differ in how often they decode."""
    for _ in range(MOST_DECODED + 1):
        segments = path.replace("\\", "/").split("/")
        if any(one.partition(";")[0] in (".", "..") for one in segments) or not path.isprintable():
            raise RejectedRequestError(400, "path_upwards", "the path has .. or control characters")
        decoded = unquote(path, errors="replace")
        if decoded == path:
            return
        path = decoded
    raise RejectedRequestError(400, "path_upwards", "the path is encoded too many times")


def _digest(text: str) -> bytes:
    """Compared instead of the token, so that its length does not matter."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
