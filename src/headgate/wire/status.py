"""How a call ended, judged by its status alone or by the exception it raised.

    2xx 3xx   ok                 401 403        auth          408 425 5xx 0   transient
    429       rate_limited       402            key_dead      503 529         overloaded
    432 433   quota_exhausted    413            too_large     other 4xx       invalid

0 stands for no answer at all. A body may correct a status (see ``judging``): money that
comes back with time makes a 402 a quota, and Google sends its quotas as 403. A number
that is no status says nothing about the server and teaches nothing: invalid.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.decision import Outcome
from .responses import body_of, facts_of, response_of

MOST_CAUSES = 5
"""Exceptions looked at along ``raise ... from ...``."""

_BY_STATUS = {
    0: Outcome.TRANSIENT,
    401: Outcome.AUTH,
    402: Outcome.KEY_DEAD,
    403: Outcome.AUTH,
    408: Outcome.TRANSIENT,
    413: Outcome.TOO_LARGE,
    425: Outcome.TRANSIENT,
    429: Outcome.RATE_LIMITED,
    432: Outcome.QUOTA_EXHAUSTED,  # Tavily: the plan's limit
    433: Outcome.QUOTA_EXHAUSTED,  # Tavily: the pay-as-you-go limit
    503: Outcome.OVERLOADED,
    529: Outcome.OVERLOADED,
}

_BY_CLASS = {
    # The call never made sense, or a file is missing: no word about the server.
    "InvalidURL": Outcome.INVALID,
    "InvalidSchema": Outcome.INVALID,
    "MissingSchema": Outcome.INVALID,
    "InvalidHeader": Outcome.INVALID,
    "InvalidJSONError": Outcome.INVALID,
    "JSONDecodeError": Outcome.INVALID,
    "UnsupportedProtocol": Outcome.INVALID,
    "LocalProtocolError": Outcome.INVALID,
    "TooManyRedirects": Outcome.INVALID,
    "LocationParseError": Outcome.INVALID,
    "FileNotFoundError": Outcome.INVALID,
    "FileExistsError": Outcome.INVALID,
    "IsADirectoryError": Outcome.INVALID,
    "NotADirectoryError": Outcome.INVALID,
    # No answer came, or not all of it: Python itself, with asyncio and sockets ...
    "TimeoutError": Outcome.TRANSIENT,
    "ConnectionError": Outcome.TRANSIENT,
    "OSError": Outcome.TRANSIENT,
    "HTTPException": Outcome.TRANSIENT,
    # ... aiohttp, httpx, requests and urllib3, the openai and anthropic clients.
    "ClientError": Outcome.TRANSIENT,
    "TransportError": Outcome.TRANSIENT,
    "RequestError": Outcome.TRANSIENT,
    "TimeoutException": Outcome.TRANSIENT,
    "RequestException": Outcome.TRANSIENT,
    "ProtocolError": Outcome.TRANSIENT,
    "APIConnectionError": Outcome.TRANSIENT,
    "APITimeoutError": Outcome.TRANSIENT,
}


def outcome_of_status(status: object) -> Outcome:
    """The table above. Never raises."""
    if type(status) is not int and (not isinstance(status, int) or isinstance(status, bool)):
        return Outcome.INVALID
    if 100 <= status <= 399:
        return Outcome.OK
    known = _BY_STATUS.get(status)
    if known is not None:
        return known
    return Outcome.TRANSIENT if 500 <= status <= 599 else Outcome.INVALID


def outcome_of_exception(exc: BaseException) -> Outcome:
    """What an exception says about the server it came from.

    One that carries an answer counts as that answer. Timeouts and lost connections are transient,
    whichever library raised them: they are known by the names of their classes, so none is imported.
    All others, a ``ValueError`` in the caller's code or a cancellation, say nothing about the server,
    yet the call may have been sent: ``invalid``, which teaches nothing and refunds nothing.
    """
    speaker, known = _speaker(exc)
    answer = None if speaker is None or known is Outcome.INVALID else response_of(speaker)
    if answer is not None:
        return outcome_of_status(facts_of(answer)[0])
    return known or Outcome.INVALID


def response_behind(exc: BaseException) -> object | None:
    """The answer of this exception or of the first one along its causes that says anything about the server."""
    speaker, known = _speaker(exc)
    return None if speaker is None or known is Outcome.INVALID else response_of(speaker)


def body_behind(exc: BaseException) -> Mapping[str, object] | None:
    """... and the error that a client has found inside of the answer."""
    speaker, known = _speaker(exc)
    return None if speaker is None or known is Outcome.INVALID else body_of(speaker)


def _speaker(exc: BaseException) -> tuple[BaseException | None, Outcome | None]:
    """Of an exception and its causes the first that says anything about the server; and what its class says."""
    current: BaseException | None = exc
    for _ in range(MOST_CAUSES):
        if current is None:
            break
        known = next((_BY_CLASS[name] for cls in type(current).__mro__ if (name := cls.__name__) in _BY_CLASS), None)
        if known is not None or response_of(current) is not None or body_of(current) is not None:
            return current, known
        current = current.__cause__
    return None, None
