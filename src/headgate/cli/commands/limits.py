"""``headgate limits URL``: send one request, and explain the limits that its response states.

The request is bounded in time, size and redirects:

    same origin       a redirect is followed, with all headers
    another origin    followed only if the request has no headers, credentials or body
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from dataclasses import asdict, dataclass, replace
from typing import Any

import aiohttp
import click
from yarl import URL

from ...exchange import AGENT, why_no_answer
from ...formatting import redact
from ...wire import read
from ...wire.explain import explain
from ...wire.headers import meaning
from ..ui.options import DURATION, ExampleCommand, json_option
from ..ui.session import run_async
from ..ui.terminal import DONE, CommandFailed, SecretFilter, complain

LARGEST_BODY = 65_536
MOST_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
SECRET_NAMES = re.compile(r"authorization|cookie|key|token|secret", re.IGNORECASE)
_HTTP_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEADER = re.compile(rf"({_HTTP_WORD}):[ \t]*([^\r\n\0]*)")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Z_][A-Z0-9_]*))")


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate limits https://api.github.com/", "the limits for calls without a key"),
        (
            "headgate limits https://api.openai.com/v1/models --bearer-env OPENAI_API_KEY",
            "with a key from the environment",
        ),
        (
            "headgate limits https://api.anthropic.com/v1/models -H 'x-api-key: $ANTHROPIC_API_KEY' "
            "-H 'anthropic-version: 2023-06-01'",
            "$NAMES in headers are read from the environment; use single quotes",
        ),
        ('headgate limits https://api.example.com/search -d \'{"q": "hi"}\'', "a POST with a body"),
        ("headgate limits http://127.0.0.1:8080/v1/x --json", "for programs (here: against headgate mock)"),
    ],
)
@click.argument("url")
@click.option("-X", "--method", metavar="NAME", help="The HTTP method.  [default: GET, or POST with --data]")
@click.option(
    "-H",
    "--header",
    "lines",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="Send a header; $NAME in the value is read from the environment. Repeatable.",
)
@click.option(
    "--bearer-env", metavar="NAME", help="Send 'Authorization: Bearer ...' with the key in this environment variable."
)
@click.option("-d", "--data", help="Send this body; as JSON, unless a Content-Type header says otherwise.")
@click.option("--timeout", type=DURATION, default="10s", show_default=True, help="Timeout of the request.")
@json_option("Print the result as one JSON line.")
def command(
    url: str,
    method: str | None,
    lines: tuple[str, ...],
    bearer_env: str | None,
    data: str | None,
    timeout: float,
    as_json: bool,
) -> int:
    """Send one request and explain the limits in its response.

    Prints, in words, which limits the server states, what is left of them, when they reset, and what Headgate would do
    next. Credentials are never printed, and never forwarded to another host.
    """
    if timeout <= 0:
        raise click.UsageError("--timeout must be longer than 0; write 10s or 500ms.")
    if method is not None and not re.fullmatch(_HTTP_WORD, method):
        raise click.UsageError(f"{redact(method)!r} is not an HTTP method; write GET, POST or similar.")
    secrets: list[str] = []
    headers = [read_header(number, line, secrets) for number, line in enumerate(lines, 1)]
    if bearer_env is not None:
        headers.append(("Authorization", f"Bearer {from_environment('--bearer-env', bearer_env, secrets)}"))
    if data is not None and not any(name.lower() == "content-type" for name, _ in headers):
        headers.append(("Content-Type", "application/json"))
    request = ProbeRequest(
        method=(method or ("GET" if data is None else "POST")).upper(),
        url=read_url(url),
        headers=tuple(headers),
        body=data,
        timeout=timeout,
    )
    hide = SecretFilter(secrets)
    try:
        response = run_async(send(request))
    except NoResponseError as error:
        site = site_of(request.url)
        message = f"{site} {error}; check the URL and the network, then try again."
        raise CommandFailed(redact(hide(message))) from None
    text = json.dumps(response_fields(response)) if as_json else response_text(request, response)
    click.echo(redact(hide(text)))
    return DONE


# ---------------------------------------------------------------------- the command line


def read_url(text: str) -> URL:
    advice = "write a complete URL such as https://api.example.com/v1/models."
    try:
        url = URL(text)
    except ValueError:
        raise click.UsageError(f"{redact(text)!r} is not a URL; {advice}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise click.UsageError(f"{redact(text)!r} is not an http or https URL; {advice}")
    return url


def read_header(number: int, line: str, secrets: list[str]) -> tuple[str, str]:
    """A header of the command line. Anything else is not repeated: it may be a key in the wrong place."""
    match = _HEADER.fullmatch(line)
    if match is None:
        raise click.UsageError(f"-H number {number} is not of the form 'Name: value'.")
    name, value = match[1], match[2].strip()
    if _VARIABLE.search(value):
        option = f"-H '{name}: ...'"
        return name, _VARIABLE.sub(lambda found: from_environment(option, found[1] or found[2], secrets), value)
    if SECRET_NAMES.search(name) and value:
        secrets.append(value.split()[-1])
        complain(
            f"the value of {name} is visible in your shell history and process list; keep it in the environment and "
            f"write -H '{name}: $NAME', or --bearer-env NAME."
        )
    return name, value


def from_environment(option: str, name: str, secrets: list[str]) -> str:
    """A variable's value. The name of one that is not set is not repeated: the shell may have put a key there."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise click.UsageError(
            f"{option}: the environment variable is not set or empty; write its name, not its value; put $NAME "
            "in single quotes."
        )
    if not value.isprintable():
        raise click.UsageError(
            f"{option}: the environment variable {name} has characters that are not allowed in a header."
        )
    secrets.append(value)
    return value


# ---------------------------------------------------------------------- one request


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    method: str
    url: URL
    headers: tuple[tuple[str, str], ...]
    body: str | None
    timeout: float

    @property
    def has_credentials(self) -> bool:
        """Any header may be one, whatever its name."""
        return bool(self.headers) or self.url.user is not None or self.url.password is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResponse:
    url: URL
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    wall: float
    """When it arrived, by the wall clock."""
    latency: float
    not_followed: URL | None = None
    """The target of a redirect to another origin that was not followed."""


class NoResponseError(Exception):
    """The message is a clause that says why, to follow the name of the site."""


async def send(request: ProbeRequest) -> ProbeResponse:
    """Send it once and follow harmless redirects; raises ``NoResponseError``."""
    url, method, body = request.url, request.method, request.body
    timeout = aiohttp.ClientTimeout(total=request.timeout)
    async with aiohttp.ClientSession(timeout=timeout, headers=AGENT) as session:
        for _ in range(MOST_REDIRECTS + 1):
            try:
                response = await _send_once(session, request, url, method, body)
            except (aiohttp.ClientError, OSError) as error:
                via = "" if url.origin() == request.url.origin() else f"redirects to {site_of(url)}, which "
                raise NoResponseError(via + why_no_answer(error, request.timeout)) from None
            target = _target_of(response)
            if target is None:
                return response
            if target.origin() != request.url.origin() and (request.has_credentials or body is not None):
                return replace(response, not_followed=target)
            if response.status == 303 or (response.status in (301, 302) and method == "POST"):
                method, body = "GET", None
            url = target
    raise NoResponseError(f"redirects more than {MOST_REDIRECTS} times")


def site_of(url: URL) -> str:
    return f"{url.host}:{url.port}"


def _target_of(response: ProbeResponse) -> URL | None:
    """Where a redirect leads; None if it is none, or leads nowhere that can be asked."""
    location = next((value for name, value in response.headers if name.lower() == "location"), None)
    if response.status not in REDIRECTS or location is None:
        return None
    try:
        target = response.url.join(URL(location))
    except ValueError:
        return None
    return target if target.scheme in ("http", "https") and target.host is not None else None


async def _send_once(
    session: aiohttp.ClientSession, request: ProbeRequest, url: URL, method: str, body: str | None
) -> ProbeResponse:
    sent_at = time.monotonic()
    async with session.request(
        method, url, headers=request.headers, data=body, proxy=_proxy(url), allow_redirects=False
    ) as response:
        latency = time.monotonic() - sent_at
        content = await response.content.read(LARGEST_BODY) if method != "HEAD" else b""
        return ProbeResponse(
            url=url,
            status=response.status,
            headers=tuple(response.headers.items()),
            body=content,
            wall=time.time(),
            latency=latency,
        )


def _proxy(url: URL) -> str | None:
    """The proxy of the environment, if one is set for this address."""
    if url.host is None or urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)


# ---------------------------------------------------------------------- what it says


def response_text(request: ProbeRequest, response: ProbeResponse) -> str:
    lines = [f"{request.method} {shown(response.url)} answered in {1000 * response.latency:.0f} ms.", ""]
    sentences = explain(response.status, response.headers, response.body, wall=response.wall, url=str(response.url))
    lines += [f"  {sentence}" for sentence in sentences]
    if response.not_followed is not None:
        target = shown(response.not_followed)
        lines.append(f"  It redirects to {target}, another site; your headers were not sent there.")
    sources = [f"    {name}: {value}" for name, value in response.headers if is_about_limits(name)]
    if sources:
        lines += ["", "  Read from:", *sources]
    return "\n".join(lines)


def response_fields(response: ProbeResponse) -> dict[str, Any]:
    signal = read(response.status, response.headers, response.body, wall=response.wall, url=str(response.url))
    fields = asdict(signal) | {"outcome": signal.outcome.value}
    not_followed = None if response.not_followed is None else shown(response.not_followed)
    return {"url": shown(response.url), "status": response.status, **fields, "not_followed": not_followed}


def is_about_limits(header: str) -> bool:
    return meaning(header) is not None and header.lower() != "date"


def shown(url: URL) -> str:
    """An address without user, password, query and fragment, any of which may hold a key."""
    return str(url.with_user(None).with_query(None).with_fragment(None))
