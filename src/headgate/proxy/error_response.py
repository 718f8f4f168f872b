"""Responses of the proxy itself, where no API has answered: always JSON, in the shape that the vendors' clients read.

{"error": {"type": "headgate", "code": "wait_too_long", "message": "...", "retry_after": 12.5}}

the gate    WaitTooLong, NoCredential (one will be back)   429, Retry-After; not to be repeated where no account can pay
            CircuitOpen, NoCredential, TooManyKeys         503, Retry-After where it is known
            CostTooLarge                                   413
            TimeBudgetExceeded                             504; 429 if it is known when to retry
the API     no connection, disconnected, not HTTP          502
            no answer in time                              504
"""

from __future__ import annotations

import json
import logging
import traceback
from math import ceil, isfinite

import aiohttp
from aiohttp import web

from ..errors import CostTooLargeError, NoCredentialError, Refused, TimeBudgetExceededError, WaitTooLongError
from ..exchange import why_no_answer
from ..formatting import redact
from ..integrations.client_gate import is_spend_stop

TYPE = "headgate"
log = logging.getLogger("headgate.proxy")
_TOLD_WHEN = (NoCredentialError, TimeBudgetExceededError)
"""429 where it is known when to retry."""


class RejectedRequestError(Exception):
    """A request that the proxy answers itself and does not forward."""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None) -> None:
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after
        super().__init__(message)


def error_response(
    status: int, code: str, message: str, retry_after: float | None = None, *, close: bool = False
) -> web.Response:
    error: dict[str, object] = {"type": TYPE, "code": code, "message": message}
    headers = {"Server": TYPE, "Cache-Control": "no-store"}
    if retry_after is not None and isfinite(retry_after):
        error["retry_after"] = round(retry_after, 3)
        headers["Retry-After"] = str(max(1, ceil(retry_after)))
    body = json.dumps({"error": error}).encode()
    response = web.Response(status=status, body=body, headers=headers, content_type="application/json")
    if close:
        response.force_close()
    return response


def gate_refusal(error: Refused) -> web.Response:
    """With the error's own code; a cost that no limit allows is the client's fault, and has another here."""
    if isinstance(error, CostTooLargeError):
        return error_response(413, "too_large", redact(str(error)))
    if isinstance(error, WaitTooLongError) or (isinstance(error, _TOLD_WHEN) and error.retry_after is not None):
        status = 429
    else:
        status = 504 if isinstance(error, TimeBudgetExceededError) else 503
    is_unpaid = is_spend_stop(error)
    response = error_response(status, "spend" if is_unpaid else error.code, redact(str(error)), error.retry_after)
    if is_unpaid:  # Anthropic's client sleeps for as long as it is told
        response.headers["x-should-retry"] = "false"
    return response


def upstream_failure(name: str, error: Exception, timeout: float) -> web.Response:
    """The library's message is not repeated: it may quote a header."""
    is_late = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
    status, code = (504, "no_answer_in_time") if is_late else (502, "no_answer")
    return error_response(status, code, f"{name} {why_no_answer(error, timeout)}")


def log_fault(exc: BaseException | None) -> None:
    """Without its message, which may quote what was sent."""
    frames = traceback.extract_tb(None if exc is None else exc.__traceback__)
    place = f"{frames[-1].name}, line {frames[-1].lineno} of {frames[-1].filename}" if frames else "an unknown place"
    log.error("internal error of the proxy: %s in %s", type(exc).__name__, place)
