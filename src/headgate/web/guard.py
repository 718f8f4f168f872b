"""Which requests may pass: everything is refused here unless it proves that it comes from the operator.

    any request   Host is an allowed name             else 421: a foreign name that points here (DNS rebinding)
                  no Origin but our own, and no        else 403: another site's page asks through the operator's
                  Sec-Fetch-Site but our own                     browser
                  the token, in one of three places    else 401
    a person      GET /?token=...                      sets the cookie and goes on to / without the token
    a browser     the cookie: HttpOnly, SameSite=Strict; what it holds is made from the token and is not the token
    a machine     Authorization: Bearer ...

A refusal says the same whether or not what was asked for exists, and repeats nothing of the request. No answer is
kept by a browser, framed by a page or read by another origin.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from html import escape
from urllib.parse import parse_qsl

from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..checks import check, check_token
from ..wire.urls import AllowedHosts

# ---------------------------------------------------------------------- the login page
#
# What a browser sees without the right token: what to do, and nothing of what is behind. The page's own files need the
# token too, so the style is inline, and the policy admits it by its hash.

STYLE = """
:root { color-scheme: light dark; --paper: #f5f6f8; --panel: #ffffff; --ink: #17202b; --soft: #465261;
  --rule: #e3e7ec; --raised: #f0f2f5; --accent: #1668c7; }
@media (prefers-color-scheme: dark) { :root { --paper: #0e1319; --panel: #161c24; --ink: #e6ebf1; --soft: #b4bfcb;
  --rule: #252e3a; --raised: #1e2631; --accent: #5aa2f2; } }
* { box-sizing: border-box; }
body { display: grid; min-height: 100vh; margin: 0; padding: 16px; place-items: center; background: var(--paper);
  color: var(--ink); font: 15px/1.5 Inter, ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { width: 100%; max-width: 34rem; padding: clamp(20px, 5vw, 32px); border: 1px solid var(--rule);
  border-top: 3px solid var(--accent); border-radius: 10px; background: var(--panel); }
small { color: var(--soft); font-weight: 600; }
h1 { margin: 2px 0 10px; font-size: 20px; line-height: 1.3; }
p, li { color: var(--soft); }
p { margin: 0 0 12px; }
ul { margin: 0; padding-left: 1.2em; }
li + li { margin-top: 6px; }
a { color: var(--accent); }
code { padding: 1px 5px; border-radius: 5px; background: var(--raised); color: var(--ink);
  font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
"""
STYLE_HASH = f"'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'"
_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><meta name="robots" content="noindex"><title>Headgate</title>'
    f'<link rel="icon" href="data:,"><style>{STYLE}</style>'
    "</head><body><main><small>Headgate</small>"
)
_END = "</main></body></html>"
_WAYS = (
    "<ul><li>Open the complete link that was printed in the terminal when the page started: it has "
    "<code>?token=</code> in it.</li><li>If it is lost, run <code>headgate web</code> on that machine: it prints a "
    "new link that shows all runs.</li></ul>"
)
WELCOME = _HEAD + '<p><a href="{0}">Continue to the page</a></p>' + _END
NO_TOKEN = (
    _HEAD + "<h1>This page needs its link</h1><p>The address has no token, and this browser has not opened the "
    "link yet.</p>" + _WAYS + _END
)
WRONG_TOKEN = (
    _HEAD
    + "<h1>This link is not valid</h1><p>Its token is wrong. Each start of the page makes a new token, so the link "
    "may be old, or it was not copied completely.</p>" + _WAYS + _END
)

# ---------------------------------------------------------------------- the guard

LARGEST_HEAD = 16_384
"""Bytes of all header fields and the address."""

POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {STYLE_HASH}; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ALWAYS = [
    (b"cache-control", b"no-store"),
    (b"content-security-policy", POLICY.encode("ascii")),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]

log = logging.getLogger("headgate.web")


class RefusedError(Exception):
    """A status and a message, which repeats nothing of the request."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(message)


def refuse(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Guard:
    """Middleware: lets through what may pass, with its body already read."""

    def __init__(
        self, app: ASGIApp, *, token: str | None, allow_hosts: Sequence[str], open_paths: frozenset[str]
    ) -> None:
        check_token(token, " (new_token() makes one)")
        is_list = not isinstance(allow_hosts, str) and len(allow_hosts) > 0
        check("allow_hosts", allow_hosts, is_list, "a list of host names")
        self._app = app
        self._hosts = AllowedHosts(allow_hosts)
        self._open_paths = open_paths
        self._token = None if token is None else token.encode("ascii")
        made = hmac.new(self._token or b"", b"headgate cookie", hashlib.sha256).hexdigest()
        self._cookie_name = f"headgate-{made[:8]}"  # its own: browsers share cookies between the ports of a host
        self._cookie = made[8:]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                close = [(b"connection", b"close")] if message["status"] >= 400 and _is_http1(scope) else []
                message = {**message, "headers": [*message.get("headers", ()), *ALWAYS, *close]}
            await send(message)

        try:
            try:
                answer, body = self._check(scope), b""
                body = await read_body(Fields(scope), scope["method"], receive)
            except RefusedError as refused:
                log.debug("refused: %s", refused.message)
                answer = refuse(refused.status, refused.message)
            if answer is None:
                await self._app(scope, replay(body, receive), send_safely)
            else:
                await answer(scope, receive, send_safely)
        except Exception as error:
            log.debug("a response was interrupted: %s", type(error).__name__)
            if not started:
                with suppress(Exception):
                    await refuse(500, "Internal error")(scope, receive, send_safely)

    def _check(self, scope: Scope) -> Response | None:
        """A response that ends it, or None if it may go on; raises ``RefusedError``."""
        fields, path, method = Fields(scope), own_path(scope), scope["method"]
        if fields.size > LARGEST_HEAD:
            raise RefusedError(431, "Request headers too large")
        if not path.isprintable():  # a route may overlook a line end
            raise RefusedError(400, "Malformed URL")
        host = fields.only(b"host")
        if host is None or not self._hosts.has(host):
            raise RefusedError(421, "Host not allowed; add it with --allow-host")
        to_page = method == "GET" and path in ("", "/")
        if not same_site(fields, host, to_page=to_page):
            raise RefusedError(403, "Cross-site request refused")
        if path in self._open_paths:
            return None
        if to_page and self._token is not None and b"token=" in scope["query_string"]:
            return self._welcome(scope)
        if not self._knows(fields, method):
            if not to_page:
                raise RefusedError(401, "Token required")
            return HTMLResponse(NO_TOKEN, 401)
        return RedirectResponse(_home(scope)) if path == "" else None

    def _welcome(self, scope: Scope) -> Response:
        """Not a redirect: after a link from elsewhere browsers would not send along a strict cookie."""
        try:
            asked = parse_qsl(scope["query_string"].decode("ascii"), strict_parsing=True, max_num_fields=8)
        except ValueError:
            asked = []
        tokens = [value for name, value in asked if name == "token"]
        if len(tokens) != 1 or not self._is_token(tokens[0].encode("utf-8", "replace")):
            return HTMLResponse(WRONG_TOKEN, 401)
        home = _home(scope)
        answer = HTMLResponse(WELCOME.replace("{0}", escape(home)), headers={"Refresh": f"0; url={home}"})
        answer.set_cookie(
            self._cookie_name,
            self._cookie,
            path=home,
            secure=scope.get("scheme") == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    def _knows(self, fields: Fields, method: str) -> bool:
        if self._token is None:
            return True
        if said := fields.all(b"authorization"):
            scheme, _, token = said[0].partition(b" ")
            return len(said) == 1 and scheme.lower() == b"bearer" and self._is_token(token)
        if method == "POST" and not (fields.all(b"origin") or fields.all(b"sec-fetch-site")):
            return False  # a browser that sends cookies says where it comes from
        cookies = b";".join(fields.all(b"cookie")).split(b";")
        pairs = (one.strip().partition(b"=") for one in cookies)
        ours, right = self._cookie_name.encode("ascii"), self._cookie.encode("ascii")
        return any(name == ours and _same(value, right) for name, _, value in pairs)

    def _is_token(self, said: bytes) -> bool:
        return self._token is not None and _same(said, self._token)


def _same(said: bytes, right: bytes) -> bool:
    """In constant time."""
    return hmac.compare_digest(hashlib.sha256(said).digest(), hashlib.sha256(right).digest())


def _home(scope: Scope) -> str:
    return "/" + scope.get("root_path", "").strip("/") + "/" if scope.get("root_path") else "/"


def _is_http1(scope: Scope) -> bool:
    return str(scope.get("http_version", "1.1")).startswith("1")


# ---------------------------------------------------------------------- where a request comes from
# A browser runs pages of many sites. One of them may give itself a name that leads to this machine (DNS rebinding), or
# send requests in the operator's name from a page of its own. ``Host`` shows the first; ``Origin`` and
# ``Sec-Fetch-Site``, which pages cannot write, show the second.


class Fields:
    """A request's header fields; no name is looked for twice in different ways."""

    def __init__(self, scope: Scope) -> None:
        self._fields: list[tuple[bytes, bytes]] = [(name.lower(), value) for name, value in scope["headers"]]
        self.size = sum(len(name) + len(value) for name, value in self._fields)
        self.size += len(scope["query_string"]) + len(scope["path"])

    def all(self, name: bytes) -> list[bytes]:
        return [value for one, value in self._fields if one == name]

    def only(self, name: bytes) -> str | None:
        """None unless it is there exactly once."""
        found = self.all(name)
        return found[0].decode("latin-1") if len(found) == 1 else None


def same_site(fields: Fields, host: str, *, to_page: bool) -> bool:
    origins, sites = fields.all(b"origin"), fields.all(b"sec-fetch-site")
    if origins:
        scheme, _, rest = (fields.only(b"origin") or "").partition("://")
        if scheme not in ("http", "https") or rest.lower() != host.lower():
            return False
    if not sites or sites in ([b"same-origin"], [b"none"]):
        return True
    followed_a_link = fields.all(b"sec-fetch-mode") == [b"navigate"] and fields.all(b"sec-fetch-dest") == [b"document"]
    return to_page and followed_a_link and len(sites) == 1


def own_path(scope: Scope) -> str:
    """The path below the prefix at which we are mounted; the same that the routes go by."""
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    below = path.removeprefix(prefix)
    return below if prefix and path.startswith(prefix) and below[:1] in ("", "/") else path


# ---------------------------------------------------------------------- bodies

LARGEST_BODY = 4_096
BODY_TIME = 5.0
"""Seconds that a body may take."""


async def read_body(fields: Fields, method: str, receive: Receive) -> bytes:
    """All of a body, which must be short, announced and there in time; only POST has one. Raises ``RefusedError``."""
    said = fields.only(b"content-length")
    if fields.all(b"transfer-encoding") or (method == "POST" and said is None):
        raise RefusedError(411, "Content-Length required")
    length = int(said) if said is not None and said.isascii() and said.isdigit() and len(said) < 10 else None
    if fields.all(b"content-length") and (length is None or length > (LARGEST_BODY if method == "POST" else 0)):
        raise RefusedError(413, f"Body too large (limit {LARGEST_BODY} bytes)")
    body = b""
    if method == "POST":
        try:
            async with asyncio.timeout(BODY_TIME):
                more = True
                while more and len(body) <= LARGEST_BODY:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "Body incomplete")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
        except TimeoutError:
            raise RefusedError(408, "Body took too long") from None
        if len(body) != length:
            raise RefusedError(400, "Body does not match Content-Length")
    return body


def replay(body: bytes, receive: Receive) -> Receive:
    """For an app that reads it again; then what else comes, such as the end of the connection."""
    is_replayed = False

    async def again() -> Message:
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
