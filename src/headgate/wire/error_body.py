"""Open a body far enough to see whether it holds an error, within bounds.

A body is bytes, text or JSON already parsed. It may be a page of HTML, a stream of
server-sent events whose last one is the error, a million brackets deep, or half a
gigabyte; each of them is read within the bounds below or not at all.

The exact code in a vendor's error tells what went wrong. A code is compared whole; no message is ever
searched for words. That is why the table of codes can be short and why "4290 tokens" is no 429.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..core.decision import Outcome
from ..core.signal import Limit

LONGEST_BODY = 262_144
"""Bytes of a body that are parsed as JSON; errors are far smaller."""
LOOK = 4096
"""Bytes at either end of a good answer in which a hidden error is looked for."""
MOST_LOOKS = 8
"""Places in which the word "error" is looked at more closely."""
LONGEST_GAP = 32
"""Bytes between the word "error" and what it holds."""
MOST_ENTRIES = 16
"""Entries of any list inside a body that are looked at."""

Json = Mapping[str, Any]

FAILED = ("response.failed", "error")
"""Types of the events that end a stream which has failed, as OpenAI's Responses name them."""

_ERROR = r'"errors?"(?:\s{0,8}:\s{0,8}[{"\[]|\s{0,8}[,}])'
"""An error as a name with something behind it, or as a value."""
_ERROR_BYTES = _ERROR.encode()


def may_hold_error(body: object) -> bool:
    """A cheap look at the body of a good answer: may an error hide in it, or a budget?"""
    if type(body) is bytes and len(body) <= 2 * LOOK:  # as nearly all are
        return _may_hold_error(body, b'"error', _ERROR_BYTES, b"throttleStatus")
    if isinstance(body, str):
        return any(_may_hold_error(part, '"error', _ERROR, "throttleStatus") for part in _parts(body, "\nevent:"))
    if isinstance(body, bytes | bytearray):
        parts = _parts(body, b"\nevent:")
        return any(_may_hold_error(part, b'"error', _ERROR_BYTES, b"throttleStatus") for part in parts)
    if isinstance(body, Mapping):
        hints = any(key in body for key in ("error", "errors", "extensions", "choices"))
        return hints or body.get("ok") is False or body.get("type") in FAILED
    return False


def open_body(body: object) -> Json | None:
    """The JSON object a body holds, or the one its event stream ends with; None when there is none."""
    if isinstance(body, Mapping):
        return body
    if isinstance(body, list):
        return first_object(body)
    if isinstance(body, bytes | bytearray):
        body = bytes(body if len(body) <= LONGEST_BODY else body[-LOOK:]).decode("utf-8", "replace")
    if not isinstance(body, str):
        return None
    text = (body if len(body) <= LONGEST_BODY else body[-LOOK:]).strip().removeprefix("\ufeff")
    if text[:1] in ("{", "["):
        return _json(text)
    return _event(text)


def objects(value: object) -> Iterator[Json]:
    """The objects in a list, at most ``MOST_ENTRIES``; nothing if it is not a list."""
    if isinstance(value, list | tuple):
        for entry in islice(value, MOST_ENTRIES):
            if isinstance(entry, Mapping):
                yield entry


def first_object(value: object) -> Json | None:
    return next(objects(value), None)


def _parts(body: Any, event: Any) -> tuple[Any, ...]:
    """Both ends and, of a stream, the beginning of its last event, which may be long."""
    if len(body) <= 2 * LOOK:
        return (body,)
    last = body.rfind(event, -LONGEST_BODY)
    return (body[:LOOK], body[-LOOK:], body[last : last + LOOK] if last >= 0 else body[:0])


def _may_hold_error(text: Any, word: Any, pattern: Any, budget: Any) -> bool:
    """``"error": null`` is in many good answers, so the word alone says nothing."""
    if budget in text:
        return True
    at = -1
    for _ in range(MOST_LOOKS):
        at = text.find(word, at + 1)
        if at < 0:
            return False
        if re.match(pattern, text[at : at + LONGEST_GAP]):
            return True
    return True


def _event(text: str) -> Json | None:
    """The last event of a stream that is an error, else the last data line with an error inside."""
    at = max(text.rfind(f"event:{space}{kind}") for kind in FAILED for space in ("", " "))
    if at < 0:
        at = max((match.start() for match in islice(re.finditer(_ERROR, text), MOST_LOOKS)), default=-1)
        at = text.rfind("\n", 0, at) + 1 if at >= 0 else -1
    data = text.find("data:", at) if at >= 0 else -1
    if data < 0:
        return None
    end = text.find("\n", data)
    return _json(text[data + 5 : end if end >= 0 else len(text)].strip())


def _json(text: str) -> Json | None:
    import json  # not loaded for answers that say all in their headers

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, an endless number, or a tower of brackets
        return None
    if isinstance(value, dict):
        return value
    return first_object(value)


LONGEST_CODE = 64
"""Characters of a server's own code or name that are kept."""

_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")


@dataclass(slots=True, kw_only=True)
class ErrorDetails:
    """What the body of an error says; what it does not say is empty."""

    outcome: Outcome | None = None
    """How the call ended by the body; believed where ``parse.CORRECTIONS`` lets it correct the status."""
    reason: str = ""
    """The vendor's code for it."""
    floor: float | None = None
    """Seconds before which the vendor wants no further call."""
    limits: tuple[Limit, ...] = ()
    scope: str | None = None
    """What the refusal holds for: a model, a bucket, ``global``."""
    dialect: str = ""
    """The name of the ``Dialect``, where the shape of the body gives it away."""
    status: int | None = None
    """A status inside the body, believed only where the status of the answer is a success."""
    is_unknown_model: bool = False
    """There is no such model (any more)."""


def code_text(value: object) -> str:
    """A server's code or name for display: printable and short; empty if it is not text."""
    if isinstance(value, int) and not isinstance(value, bool) and -(10**9) < value < 10**9:
        return str(value)
    if not isinstance(value, str):
        return ""
    return _UNPRINTABLE.sub("", value[: 4 * LONGEST_CODE]).strip()[:LONGEST_CODE]


def status_in(value: object) -> int | None:
    """A status given as a number or as its three digits: ``"429"`` is one, ``"4290"`` and ``"1300"`` are not."""
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else None


# ---------------------------------------------------------------------- codes

_CODES = {
    Outcome.KEY_DEAD: """
        billing_not_active account_deactivated BILLING_DISABLED CONSUMER_SUSPENDED account_inactive token_revoked""",
    Outcome.SPEND: """
        insufficient_quota credit_balance_exhausted organization_spend_limit_exceeded project_spend_limit_exceeded
        organization_usage_limit_exceeded billing_error enforced_spend_limit_reached blocked_api_access""",
    Outcome.CAPACITY: "resource_unavailable capacity_exceeded MODEL_CAPACITY_EXHAUSTED",
    Outcome.QUOTA_EXHAUSTED: "quota_exceeded quotaExceeded dailyLimitExceeded",
    Outcome.RATE_LIMITED: """
        rate_limit_exceeded rate_limit_error rate_limited ratelimited rate_limit too_many_requests
        RESOURCE_EXHAUSTED rateLimitExceeded userRateLimitExceeded userRateLimitExceededUnreg RATE_LIMIT_EXCEEDED
        THROTTLED quota-exceeded abnormal-usage-detected""",
    Outcome.OVERLOADED: "overloaded_error UNAVAILABLE temporary-reduced-capacity",
    Outcome.TRANSIENT: """
        api_error server_error internal_server_error timeout_error INTERNAL DEADLINE_EXCEEDED lock_timeout
        internal_error fatal_error service_unavailable request_timeout""",
    Outcome.AUTH: """
        authentication_error permission_error invalid_api_key invalid_auth not_authed token_expired forbidden
        keyInvalid API_KEY_INVALID UNAUTHENTICATED PERMISSION_DENIED SERVICE_DISABLED API_KEY_SERVICE_BLOCKED""",
    Outcome.TOO_LARGE: "request_too_large context_length_exceeded MAX_COST_EXCEEDED",
    Outcome.INVALID: """
        invalid_request_error not_found_error model_not_found DeploymentNotFound invalid_model INVALID_ARGUMENT
        NOT_FOUND""",
}
UNKNOWN_MODEL = ("model_not_found", "DeploymentNotFound", "invalid_model")
"""Codes of errors that hold for every call to the same model."""

REFUSED_CONTENT = frozenset(
    ("content_filter", "content_policy_violation", "invalid_prompt", "bio_policy", "flagged_input")
)
"""Codes of errors about what was asked, which another model may answer."""

OUTCOME_OF = {code: outcome for outcome, codes in _CODES.items() for code in codes.split()}
"""Every known code. Where a body has several, the one that weighs most decides."""

WEIGHT = tuple(_CODES)
"""Most important first: a dead key decides over every other code, and a plain refusal gives way to its reason."""


def outcome_of_codes(*codes: object) -> Outcome | None:
    """The outcome that the codes found in one error stand for together."""
    known = {OUTCOME_OF[code] for code in codes if isinstance(code, str) and code in OUTCOME_OF}
    return next((outcome for outcome in WEIGHT if outcome in known), None)
