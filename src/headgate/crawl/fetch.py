"""Ask for one page, from a server that may be anyone's.

The request is sent once. No redirect is followed (each hop needs a permit of its own host), no cookie is kept, no
referrer is sent, and headers meant for one origin go to no other. What comes back is an answer within its limits
(``reading.py``), or a problem with a name (``fetched.py``).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http_exceptions import BadHttpMessage, PayloadEncodingError
from yarl import URL

from ..errors import ConfigError
from ..exchange import sent_once
from .address import host_of, origin_of, unfit
from .fetched import Fetched, FetchLimits, FetchProblem
from .guard import Guard, GuardedConnector, RefusedAddress
from .reading import Reading
from .room import Share
from .unpack import accepted

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

__all__ = ["ANYTHING", "PAGES", "FetchLimits", "FetchProblem", "Fetched", "fetch", "new_session"]

PAGES = ("text/html", "application/xhtml+xml", "application/xml", "text/xml", "text/plain")
ANYTHING = ("*/*",)

_WRITTEN = re.compile(r"[!-~]+")


def new_session(
    guard: Guard, *, agent: str, connections: int = 100, resolver: AbstractResolver | None = None
) -> aiohttp.ClientSession:
    """A session without cookies that goes where ``guard`` lets it. To be made inside of an event loop."""
    return aiohttp.ClientSession(
        connector=guard.connector(connections, resolver=resolver),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": agent},
    )


async def fetch(
    session: aiohttp.ClientSession,
    url: str,
    *,
    limits: FetchLimits,
    guard: Guard,
    accept: Collection[str] = PAGES,
    if_none_match: str | None = None,
    headers_by_origin: Mapping[str, Mapping[str, str]] | None = None,
    share: Share | None = None,
) -> Fetched:
    """GET a canonical address, once. Raises ``FetchProblem``, and nothing else that the other side could cause.

    ``accept`` are the content types that are read (``text/*`` and ``*/*`` too); of others only the headers are taken.
    ``headers_by_origin``: what only ``https://host:port`` may see, a credential say. ``share``: of the memory for all.
    """
    if not isinstance(session.connector, GuardedConnector) or session.connector.guard is not guard:
        raise ConfigError("session: it must come from new_session(guard), or nobody looks where it goes")
    why_not = unfit(url) or (None if _WRITTEN.fullmatch(url) else "is not in its canonical form")
    if why_not is not None:
        raise FetchProblem("bad_address", why_not, host="the address")
    headers = {"Accept": ", ".join(accept), "Accept-Encoding": accepted()}
    if if_none_match is not None:
        headers["If-None-Match"] = if_none_match
    if headers_by_origin is not None:
        headers.update(headers_by_origin.get(origin_of(url), {}))
    reading = Reading(url, limits, accept, share)
    try:
        async with asyncio.timeout_at(reading.first_byte_at) as reading.alarm:
            async with session.get(
                URL(url, encoded=True),
                headers=headers,
                allow_redirects=False,
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect),
                max_line_size=limits.longest_header,
                max_field_size=limits.longest_header,
                max_headers=limits.most_headers,
                middlewares=sent_once("GET"),
            ) as response:
                return await reading.read(response)
    except FetchProblem:
        raise
    except (RefusedAddress, aiohttp.ClientError, OSError, ValueError) as error:
        kind, sentence = _named(error, reading)
    raise FetchProblem(kind, sentence, host=host_of(url))  # out of the handlers, so that no context quotes the server


def _named(error: Exception, reading: Reading) -> tuple[str, str]:
    """What kind of problem it is, in our own words: the library's may quote what the server sent."""
    if isinstance(error, RefusedAddress):
        return "refused_address", error.reason
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "connect", "cannot be reached in time"
    if isinstance(error, TimeoutError):
        return reading.why_late()
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns", "cannot be found: no address goes by its name"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "tls", "has a certificate that is not trusted"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return "tls", "does not come to terms with us about TLS"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        return "connect", "refuses connections" if refused else "cannot be reached"
    cause = error.__cause__
    is_no_http = isinstance(cause, BadHttpMessage) and not isinstance(cause, PayloadEncodingError)
    if isinstance(error, aiohttp.ClientResponseError) or is_no_http:
        return "bad_headers", "did not answer in HTTP, or with headers beyond all measure"
    if isinstance(error, ValueError):
        return "bad_address", "cannot be asked: the request cannot be written"
    where = "in the middle of its answer" if reading.has_begun else "without an answer"
    return "hung_up", f"hung up {where}"
