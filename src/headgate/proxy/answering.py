"""What the proxy says itself, where no API has said anything: always JSON, in the shape that the vendors' clients read.

{"error": {"type": "headgate", "code": "wait_too_long", "message": "...", "retry_after": 12.5}}

the gate    WaitTooLong, NoCredential (one will be back)   429, Retry-After
            CircuitOpen, NoCredential, TooManyKeys         503, Retry-After where it is known
            CostTooLarge                                   413
            TimeBudgetExceeded                             504; 429 if it is known when to come back
the way     no connection, hung up, no HTTP                502
            silence                                        504
"""

from __future__ import annotations

import json
from math import ceil, isfinite

import aiohttp
from aiohttp import web

from ..errors import CostTooLargeError, NoCredentialError, Refused, TimeBudgetExceededError, WaitTooLongError
from ..exchange import why_no_answer
from ..wire.redaction import redact

TYPE = "headgate"


class TurnedAwayError(Exception):
    """Answered here, and not passed on."""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None) -> None:
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after
        super().__init__(message)


def says(
    status: int, code: str, message: str, retry_after: float | None = None, *, close: bool = False
) -> web.Response:
    error: dict[str, object] = {"type": TYPE, "code": code, "message": message}
    headers = {"Server": TYPE, "Cache-Control": "no-store"}
    if retry_after is not None and isfinite(retry_after):
        error["retry_after"] = round(retry_after, 3)
        headers["Retry-After"] = str(max(1, ceil(retry_after)))
    body = json.dumps({"error": error}).encode()
    answer = web.Response(status=status, body=body, headers=headers, content_type="application/json")
    if close:
        answer.force_close()
    return answer


def turned_away(refusal: TurnedAwayError) -> web.Response:
    """The connection ends with it: what else is on it may not be what it looks like."""
    return says(refusal.status, refusal.code, refusal.message, refusal.retry_after, close=True)


def of_gate(error: Refused) -> web.Response:
    known = error.retry_after is not None
    if isinstance(error, WaitTooLongError):
        status, code = 429, "wait_too_long"
    elif isinstance(error, NoCredentialError):
        status, code = 429 if known else 503, "no_credential"
    elif isinstance(error, TimeBudgetExceededError):
        status, code = 429 if known else 504, "time_budget"
    elif isinstance(error, CostTooLargeError):
        status, code = 413, "too_large"
    else:
        status, code = 503, "circuit_open" if known else "refused"
    return says(status, code, redact(str(error)), error.retry_after)


def of_trouble(name: str, error: Exception, within: float) -> web.Response:
    """Nothing of what a library says is repeated: it may quote a header."""
    late = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
    status, code = (504, "no_answer_in_time") if late else (502, "no_answer")
    return says(status, code, f"{name} {why_no_answer(error, within)}")
