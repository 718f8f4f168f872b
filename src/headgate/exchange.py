"""One request and its answer over HTTP, bounded in time and size, with nothing said about the key.

No redirect is followed: it would carry the key to wherever it points. No cookie is kept, and a
request is sent once: whether it is sent again is the gate's to decide. Errors on the way are worded
here, since an HTTP library's may quote an address or a header, and with it a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

from ._version import __version__
from .core.decision import Outcome
from .errors import Failed
from .formatting import HIDDEN

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

CONNECT_WITHIN = 30.0
"""Seconds until a connection must stand; a host that has vanished holds a call no longer."""
SHORTEST_SECRET = 8
"""A shorter one is not looked for in answers, where it would be found everywhere."""
AGENT = {"User-Agent": f"headgate/{__version__}"}
USUAL_HEADERS = {**AGENT, "Accept": "application/json"}
on_request: Callable[[str, object], None] | None = None
"""Called with the method and the address of every request before it is sent, where calls are traced."""
_SENT_ONCE_ANYWAY = ("POST", "PATCH")
"""aiohttp repeats none of these, and our own care would cost each some of its time."""


class Answer:
    """A response that has been read to its end: status, headers and body, as readers of responses expect."""

    __slots__ = ("content", "headers", "requested_tier", "status_code")

    def __init__(self, status_code: int, headers: Mapping[str, str], content: bytes, requested_tier: str = "") -> None:
        self.status_code = status_code
        self.headers = headers
        self.content = content
        self.requested_tier = requested_tier
        """The service tier that the request asked for, where that matters for what an error means."""

    def __reduce__(self) -> tuple[object, ...]:
        """An error takes its answer along, to other processes too, where the library's headers cannot go."""
        return (Answer, (self.status_code, dict(self.headers), self.content, self.requested_tier))

    def __repr__(self) -> str:
        return f"<Answer {self.status_code}, {len(self.content)} bytes>"


class NoAnswerError(Failed):
    """No usable answer came; it may come another time."""

    outcome = Outcome.TRANSIENT


class NoAnswerInTimeError(NoAnswerError, TimeoutError):
    """It did not come in time."""


class UnfitAnswerError(Failed):
    """An answer came that must not be used, and asking again would bring the same."""

    outcome = Outcome.INVALID


class HungUpError(ConnectionError):
    """The server took the request and closed the connection."""


def new_session(connections: int = 100) -> aiohttp.ClientSession:
    """A session without cookies."""
    import aiohttp  # here, because few programs that import headgate send anything by themselves

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=USUAL_HEADERS,
    )


async def exchange(
    session: aiohttp.ClientSession,
    method: str,
    url: URL | str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    name: str,
    within: float,
    largest: int,
    secrets: tuple[str, ...] = (),
    query: Mapping[str, str] | None = None,
) -> Answer:
    """Raises ``NoAnswerError`` or ``UnfitAnswerError``, neither with a word about ``secrets``.

    ``name`` is what they call the server; ``largest`` is in bytes, unpacked; ``within`` may be endless (``math.inf``)
    for a caller with a timeout of its own.
    """
    import aiohttp

    problem: Failed
    if on_request is not None:
        on_request(method, url)
    try:
        response = await session.request(
            method,
            url,
            params=query,
            data=None if body is None else aiohttp.BytesPayload(body),  # else the library looks for what it could be
            headers=headers,
            allow_redirects=False,
            timeout=_timeout(within),
            middlewares=sent_once(method),
        )
        try:
            content = await _read(response, largest)
        except BaseException:
            response.close()
            raise
        if content is not None:  # and with its end the connection is free for others
            told: Mapping[str, str] = response.headers
            for secret in secrets:
                content, told = hide_secret(secret, content, told)
            return Answer(response.status, told, content)
        response.close()
        problem = UnfitAnswerError(name, f"sent more than {largest:,} bytes; the rest was not read")
    except TimeoutError as error:
        problem = NoAnswerInTimeError(name, why_no_answer(error, within))
    except ValueError as error:
        what = f"was not called: the request is invalid ({type(error).__name__})"
        problem = UnfitAnswerError(name, what)
    except (aiohttp.ClientError, OSError) as error:
        problem = NoAnswerError(name, why_no_answer(error, within))
    raise problem  # out of the handlers, so that no context leads back to what the library said


@lru_cache(maxsize=64)
def _timeout(within: float) -> aiohttp.ClientTimeout:
    """Remembered, for most calls have the same."""
    import aiohttp

    return aiohttp.ClientTimeout(total=None if within == inf else within, sock_connect=min(within, CONNECT_WITHIN))


def why_no_answer(error: Exception, within: float) -> str:
    """A clause about the server; of what is rare, the exception's name says enough."""
    import aiohttp

    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "cannot be reached (connect timeout)"
    if isinstance(error, TimeoutError):
        return f"did not answer within {within:.3g} s"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "cannot be resolved (DNS)"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "cannot be reached (TLS certificate not trusted)"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        why = "connection refused" if refused else type(error.os_error).__name__
        return f"cannot be reached ({why})"
    if isinstance(error, HungUpError | aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return "closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "closed the connection in the middle of its answer"
    if isinstance(error, aiohttp.ClientResponseError):
        return "did not answer with valid HTTP"
    return f"gave no usable answer ({type(error).__name__})"


def sent_once(method: str) -> tuple[aiohttp.ClientMiddlewareType, ...]:
    """The middlewares of a request that must not be sent twice on one permit."""
    return () if method in _SENT_ONCE_ANYWAY else (_send_once,)


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """By itself aiohttp sends a GET again when the server hangs up."""
    import aiohttp

    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, TimeoutError):
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        raise HungUpError from None


async def _read(response: aiohttp.ClientResponse, largest: int) -> bytes | None:
    """The body; None if it is larger than that. What is compressed counts as it is unpacked."""
    stream = response.content
    first = await stream.readany()
    if stream.at_eof():
        return first if len(first) <= largest else None
    content = bytearray(first)
    while len(content) <= largest:
        chunk = await stream.readany()
        if not chunk:
            return bytes(content)
        content += chunk
    return None


def hide_secret(secret: str, body: bytes, headers: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
    """Body and headers of an answer, without the secret where the server sends it back."""
    if len(secret) < SHORTEST_SECRET:
        return body, headers
    if any(secret in value for value in headers.values()):
        from multidict import CIMultiDict  # aiohttp's own; a server that does so is rare

        headers = CIMultiDict((name, value.replace(secret, HIDDEN)) for name, value in headers.items())
    return body.replace(secret.encode(), HIDDEN.encode()), headers
