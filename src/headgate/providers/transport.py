"""One request and its answer, bounded in time and size, with nothing said about the key.

No redirect is followed: it would carry the key to wherever it points. Cookies are not
kept. What goes wrong on the way is told in our own words, since an HTTP library's may
quote the address, and with it a key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from .._version import __version__
from ..wire.redaction import HIDDEN, redact
from .results import Json, inner, text

if TYPE_CHECKING:
    import aiohttp

LARGEST_ANSWER = 8 << 20
"""Bytes, unpacked; a page of search results is a thousandth of it, extracted pages a tenth."""
CHUNK = 65_536
LONGEST_COMPLAINT = 200
"""Characters of a server's own words that are repeated."""
SHORTEST_SECRET = 8
"""A shorter one is not looked for in bodies, where it would be found everywhere."""
AGENT = {"User-Agent": f"headgate/{__version__}", "Accept": "application/json"}

_COMPLAINTS = (("detail", "error"), ("error", "message"), ("error",), ("detail",), ("message",))
"""Where APIs put the sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str = "GET"
    path: str
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Json | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def with_header(self, name: str, value: str) -> Self:
        return replace(self, headers={**self.headers, name: value})

    def with_query(self, name: str, value: str) -> Self:
        return replace(self, query={**self.query, name: value})


class Answer:
    """A response that has been read to its end."""

    __slots__ = ("_content", "headers", "status_code")

    def __init__(self, status_code: int, headers: Mapping[str, str], content: bytes) -> None:
        self.status_code = status_code
        self.headers = headers
        self._content = content

    def json(self) -> Json | None:
        """The JSON object it holds, or None."""
        try:
            value = json.loads(self._content)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def complaint(self, secret: str) -> str:
        """The sentence in which the server says what is wrong, short, printable and without the secret."""
        body = self.json()
        said = next((found for names in _COMPLAINTS if (found := text(inner(body, *names)))), "")
        printable = "".join(character if character.isprintable() else " " for character in without(secret, said))
        told = redact(printable)
        return told if len(told) <= LONGEST_COMPLAINT else f"{told[: LONGEST_COMPLAINT - 3]}..."

    def __repr__(self) -> str:
        return f"<Answer {self.status_code}, {len(self._content)} bytes>"


class NoAnswerError(ConnectionError):
    """No usable answer came; the message is a clause about the server that says why."""


class NoAnswerInTimeError(NoAnswerError, TimeoutError):
    """It did not come in time."""


class UnfitAnswerError(Exception):
    """An answer came that must not be used; the message says why."""


class HungUpError(Exception):
    """The server took the request and closed the connection; never leaves this file."""


def new_session() -> aiohttp.ClientSession:
    """A session without cookies, in which a request is sent once.

    By itself aiohttp sends a GET again when the server hangs up; here that is the gate's to decide.
    """
    import aiohttp  # here, because few programs that import headgate call a provider

    async def send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        try:
            return await handler(request)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            raise HungUpError from None

    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), middlewares=(send_once,))


async def send(
    session: aiohttp.ClientSession, base_url: str, request: Request, *, within: float, secret: str = ""
) -> Answer:
    """Raises ``NoAnswerError`` or ``UnfitAnswerError``, neither with a word about the key."""
    import aiohttp

    problem: Exception
    try:
        async with session.request(
            request.method,
            base_url + request.path,
            params=request.query,
            json=request.body,
            headers={**AGENT, **request.headers},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=within),
        ) as response:
            content = await _read(response)
            return _read_safely(response.status, response.headers, content, secret)
    except TimeoutError:
        problem = NoAnswerInTimeError(f"did not answer within {within:g} s")
    except aiohttp.ClientConnectorError as error:
        problem = NoAnswerError(f"cannot be reached ({_why_not(error)})")
    except (HungUpError, aiohttp.ServerDisconnectedError):
        problem = NoAnswerError("hung up without an answer")
    except aiohttp.ClientPayloadError:
        problem = NoAnswerError("hung up in the middle of its answer")
    except (aiohttp.InvalidURL, ValueError) as error:
        problem = UnfitAnswerError(f"cannot be asked that: the request cannot be written ({type(error).__name__})")
    except (aiohttp.ClientError, OSError) as error:
        problem = NoAnswerError(f"gave no usable answer ({type(error).__name__})")
    raise problem  # out of the handler, so that no context leads back to what the library said


def _why_not(error: aiohttp.ClientConnectorError) -> str:
    """Why no connection came about; of what is rare, the exception's name says enough."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no address goes by its name"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    refused = isinstance(error.os_error, ConnectionRefusedError)
    return "it refuses connections" if refused else type(error.os_error).__name__


async def _read(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_chunked(CHUNK):
        content += chunk
        if len(content) > LARGEST_ANSWER:
            raise UnfitAnswerError(f"sent more than {LARGEST_ANSWER >> 20} MB; the rest was not read")
    return bytes(content)


def _read_safely(status: int, headers: Mapping[str, str], content: bytes, secret: str) -> Answer:
    """The answer, without the secret where the server sends it back."""
    if len(secret) < SHORTEST_SECRET:
        return Answer(status, dict(headers), content)
    told = {name: without(secret, value) for name, value in headers.items()}
    return Answer(status, told, content.replace(secret.encode(), HIDDEN.encode()))


def without(secret: str, said: str) -> str:
    return said.replace(secret, HIDDEN) if secret else said
