"""What may pass: everything is turned away here that is not a plain request of a program for one of the APIs.

    Host is a name of ours                 else 421: a foreign name that points here (DNS rebinding)
    no Origin, no Sec-Fetch-Site of others else 403: a web page asks through somebody's browser
    the token, where one is set            else 401
    no CONNECT, TRACE, websocket           else 405, 501: TRACE would show the caller what the proxy adds
    a path that stays where it is          else 400: //host, http://host/, .. in any writing, \\

Whoever gets further may use the credentials of the proxy, so a doubt is a no.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from aiohttp import web

from ..checks import check
from ..errors import ConfigError
from .answering import TurnedAwayError
from .mounts import Mount

OWN = "/-/"
"""What begins so is answered by the proxy itself."""
TOKEN_HEADER = "X-Headgate-Token"  # noqa: S105  # its name
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LONGEST_TARGET = 8_192
MOST_DECODED = 3
"""How often a path may be written in percents within percents before it is no path."""
MOST_KNOWN_HOSTS = 64
MOST_TOKENS = 8
"""Of one request, that are looked at."""
_HOST = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::\d{1,5})?")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")
_REFUSED_METHODS = ("CONNECT", "TRACE")


@dataclass(frozen=True, slots=True)
class Admitted:
    mount: Mount | None
    """None: the proxy's own."""
    target: str
    """Path and query, without the mount's prefix, as they were written."""


class Admission:
    def __init__(
        self,
        mounts: Sequence[Mount],
        *,
        host: str,
        token: str | None,
        allow_hosts: Sequence[str],
        keyed: Collection[str],
    ) -> None:
        check(
            "token",
            "***" if token else token,
            token is None or _TOKEN.fullmatch(token) is not None,
            "16 to 200 letters, digits, - and _, or None",
        )
        if token is None and not is_loopback(host):
            raise ConfigError("host is not this machine alone: a token is needed too")
        self._alone = mounts[0] if len(mounts) == 1 and not mounts[0].prefix else None
        self._by_prefix = {mount.prefix[1:]: mount for mount in mounts}
        self._names = {name.lower() for name in (*LOOPBACK, host, *allow_hosts)}
        self._any_address = not is_loopback(host)
        if self._any_address:
            self._names.add(socket.gethostname().lower())
        self._known_hosts: set[str] = set()
        self._token = None if token is None else _digest(token)
        self._keyed = keyed

    def admit(self, request: web.BaseRequest) -> Admitted:
        """Where it goes; raises ``TurnedAwayError``."""
        headers, raw = request.headers, request.raw_path
        hosts = headers.getall("Host", ())
        if len(hosts) != 1 or not (hosts[0] in self._known_hosts or self._is_ours(hosts[0])):
            raise TurnedAwayError(421, "wrong_host", "this is not a name of this proxy; --allow-host adds one")
        if "Origin" in headers or "Sec-Fetch-Site" in headers:
            self._check_site(request, hosts[0])
        if request.method in _REFUSED_METHODS:
            raise TurnedAwayError(405, "method_not_allowed", f"{request.method} is not passed on")
        if "websocket" in headers.get("Upgrade", "").lower():
            raise TurnedAwayError(501, "no_websockets", "websockets are not passed on")
        if "Transfer-Encoding" in headers and "Content-Length" in headers:
            raise TurnedAwayError(400, "two_lengths", "it has a Content-Length and a Transfer-Encoding")
        path = checked_path(raw)
        if raw.startswith(OWN):
            return Admitted(None, raw)
        mount, rest = self._alone, ""
        if mount is None:
            name, _, rest = path[1:].partition("/")
            mount = self._by_prefix.get(name)
        if self._token is not None and not self._has_token(request, mount):
            raise TurnedAwayError(401, "no_token", f"this proxy wants its token, as the API key or in {TOKEN_HEADER}")
        if mount is not self._alone or mount is None:
            if mount is None:
                known = ", ".join(f"/{one}/" for one in self._by_prefix)
                raise TurnedAwayError(404, "no_such_target", f"paths here begin with {known}")
            path, raw = f"/{rest}", raw[len(mount.prefix) :]
            raw = raw if raw.startswith("/") else f"/{raw}"
            checked_path(raw)
        if not mount.lets_through(path):
            raise TurnedAwayError(404, "not_below", f"only what is below {mount.below}/ is passed on")
        return Admitted(mount, raw)

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found[1] or found[2]
        ours = name in self._names or (self._any_address and _is_address(name))
        if ours and len(self._known_hosts) < MOST_KNOWN_HOSTS:
            self._known_hosts.add(host)
        return ours

    def _check_site(self, request: web.BaseRequest, host: str) -> None:
        origins = request.headers.getall("Origin", ())
        sites = request.headers.getall("Sec-Fetch-Site", ())
        fine = all(one.lower() in (f"http://{host.lower()}", f"https://{host.lower()}") for one in origins)
        if not fine or not all(one in ("same-origin", "none") for one in sites):
            raise TurnedAwayError(403, "other_site", "a web page of another site may not ask this")

    def _has_token(self, request: web.BaseRequest, mount: Mount | None) -> bool:
        """Where the proxy adds the key, the token may stand in its place: programs know no other setting."""
        names = [TOKEN_HEADER]
        if mount is not None and mount.name in self._keyed:
            names += ["Authorization", mount.address.key_header]
        said = [value for name in names for value in request.headers.getall(name, ())][:MOST_TOKENS]
        right = self._token or b""
        return any(hmac.compare_digest(_digest(one.removeprefix("Bearer ").strip()), right) for one in said)


def checked_path(raw: str) -> str:
    """The path of what was asked for; raises ``TurnedAwayError`` if it is anything but a plain path."""
    if not raw.startswith("/"):
        raise TurnedAwayError(400, "no_path", "a path is asked for here, such as /v1/models, not another address")
    path = raw.partition("?")[0]
    plain = len(raw) <= LONGEST_TARGET and raw.isascii() and raw.isprintable() and " " not in raw and "#" not in raw
    if not plain or raw.startswith("//") or "\\" in path:
        raise TurnedAwayError(400, "no_path", "a plain path is asked for here, such as /v1/models")
    if "/." in path or "%" in path:
        _check_segments(path)
    return path


def _check_segments(path: str) -> None:
    """No way up, in whatever writing: servers differ in how often they decode."""
    for _ in range(MOST_DECODED + 1):
        segments = path.replace("\\", "/").split("/")
        if any(one.partition(";")[0] in (".", "..") for one in segments) or not path.isprintable():
            raise TurnedAwayError(400, "path_upwards", "a path must not lead upwards, nor have control characters")
        decoded = unquote(path, errors="replace")
        if decoded == path:
            return
        path = decoded
    raise TurnedAwayError(400, "path_upwards", "a path must not be encoded again and again")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_address(name: str) -> bool:
    """Asked for by an address, no foreign name can be in play."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(text: str) -> bytes:
    """Compared in its place, so that the length of what was said makes no difference."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
