"""The error object OpenAI made common: Azure, Groq, OpenRouter, Anthropic, Stripe speak it with an accent.

    {"error": {"message": ..., "type": "tokens", "code": "rate_limit_exceeded"}}      OpenAI, Groq
    {"error": {"code": "429", "message": "... Please retry after 6 seconds."}}        Azure
    {"error": {"code": 429, "metadata": {"headers": {...}}}}                          OpenRouter
    {"type": "error", "error": {"type": "overloaded_error"}}                          Anthropic
    {"error": {"type": "invalid_request_error", "code": "lock_timeout"}}              Stripe
    {"type": "response.failed", "response": {"error": {"code": "server_error"}}}      OpenAI, in a stream
    {"type": "error", "code": "server_error", "param": null, "sequence_number": 7}    OpenAI, in a stream

The message of a rate limit has one fixed form, and only its numbers are read:
``... on tokens per min (TPM): Limit 30000, Used 15532, Requested 14655. Please try again in 374ms.``
More requested than the limit can never pass. A limit whose sign ends in D is counted by the day.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...core.decision import LONGEST_WAIT, Outcome
from ...core.signal import Limit
from ..arrival import Arrival
from ..bodies import Json
from ..complaint import Complaint, status_in, word
from ..headers import listen
from ..limits import limits_of
from ..times import duration, number, within_bounds
from ..vocabulary import heaviest

LONGEST_MESSAGE = 1024

_NUMBERS = re.compile(
    r"\(([A-Z]{3,5})\): Limit (\d[\d,]{0,19}), (?:Used (\d[\d,]{0,19}), )?Requested (\d[\d,]{0,19})", re.ASCII
)
_MODEL = re.compile(r"(?:Rate limit reached|Request too large) for (?:model )?`?([^`\s]{1,80})`? in organization")
_TRY_AGAIN = re.compile(
    r"Please (?:try again in|retry after) "
    r"(?:((?:\d{1,12}(?:\.\d{1,12})?(?:ms|h|m|s))+)|(\d{1,12}(?:\.\d{1,12})?) (second|minute|hour|day)s?)\b",
    re.ASCII,
)
_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
_COUNTED = {"T": "tokens", "R": "requests", "I": "input-tokens", "O": "output-tokens"}
_WINDOWS = {"S": 1.0, "M": 60.0, "H": 3600.0, "D": 86400.0}
_LIMIT_CODES = ("rate_limit_exceeded", "tokens", "requests", "429")
_OPENROUTER_LIMIT = "Rate limit exceeded: "


def chat(body: Json, arrival: Arrival) -> Complaint | None:
    error = body.get("error")
    event = None if isinstance(error, Mapping) else _failed_event(body)
    error = event or error
    if not isinstance(error, Mapping):
        return None
    code, kind = error.get("code"), error.get("type")
    anthropic = event is None and body.get("type") == "error"
    complaint = Complaint(
        outcome=heaviest(code, kind) or (Outcome.INVALID if event else None),
        reason=word(code) or word(kind),
        dialect="anthropic" if anthropic else "azure-openai" if code == "429" else "",
        status=status_in(code),
    )
    message = error.get("message")
    if isinstance(message, str) and (code in _LIMIT_CODES or kind in _LIMIT_CODES):
        _read_message(message[:LONGEST_MESSAGE], complaint)
    if isinstance(code, int) and isinstance(metadata := error.get("metadata"), Mapping):
        _read_metadata(metadata, message, complaint, arrival)
    return complaint


def _failed_event(body: Json) -> Json | None:
    """The error with which OpenAI's Responses end a stream. Neither shape can be somebody's data."""
    response = body.get("response")
    if body.get("type") == "response.failed" and isinstance(response, Mapping):
        error = response.get("error")
        return error if isinstance(error, Mapping) and error else {"code": "server_error"}
    return body if body.get("type") == "error" and "code" in body and "sequence_number" in body else None


def _read_message(message: str, complaint: Complaint) -> None:
    if found := _MODEL.search(message):
        complaint.scope = word(found[1]) or None
    if again := _TRY_AGAIN.search(message):
        seconds = duration(again[1]) if again[1] else float(again[2]) * _UNITS[again[3]]
        complaint.floor = None if seconds is None else within_bounds(seconds)
    if not (numbers := _NUMBERS.search(message)):
        return
    complaint.dialect = "groq" if " for model " in message else "openai"
    sign, allowed, used, requested = numbers[1], _count(numbers[2]), _count(numbers[3]), _count(numbers[4])
    complaint.limits = (
        Limit(
            dimension=_COUNTED.get(sign[0], "requests"),
            limit=allowed,
            remaining=None if used is None or allowed is None else max(0.0, allowed - used),
            window=_WINDOWS.get(sign[-1]),
            name=sign,
        ),
    )
    if requested is not None and allowed is not None and requested > allowed:
        complaint.outcome = Outcome.TOO_LARGE
    elif sign[-1] == "D" and complaint.outcome is not Outcome.KEY_DEAD:
        complaint.outcome = Outcome.QUOTA_EXHAUSTED


def _read_metadata(metadata: Json, message: object, complaint: Complaint, arrival: Arrival) -> None:
    """OpenRouter repeats the headers in the body, where a proxy or a 200 has lost them."""
    complaint.dialect = "openrouter"
    if "flagged_input" in metadata or "reasons" in metadata:
        # Moderation refuses this input with a 403; the key is as good as before.
        complaint.outcome, complaint.reason = Outcome.INVALID, "flagged_input"
        return
    complaint.limits = tuple(limits_of(listen(metadata.get("headers")), "openrouter", arrival))
    spent = [limit.reset for limit in complaint.limits if not limit.remaining and limit.reset is not None]
    complaint.floor = max(spent, default=None)
    if isinstance(message, str) and message.startswith(_OPENROUTER_LIMIT) and complaint.status == 429:
        complaint.reason = word(message.removeprefix(_OPENROUTER_LIMIT).split(".")[0].strip())
        if "per-day" in complaint.reason:
            complaint.outcome = Outcome.QUOTA_EXHAUSTED


def _count(digits: str | None) -> float | None:
    found = None if digits is None else number(digits.replace(",", ""))
    return None if found is None else min(found, LONGEST_WAIT * 1e9)
