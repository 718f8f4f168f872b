"""Language models: OpenAI, and the vendors that took over its headers or its error object, each with an accent.

    {"error": {"message": ..., "type": "tokens", "code": "rate_limit_exceeded"}}      OpenAI, Groq
    {"error": {"code": "429", "message": "... Please retry after 6 seconds."}}        Azure
    {"error": {"code": 429, "metadata": {"headers": {...}}}}                          OpenRouter
    {"type": "error", "error": {"type": "overloaded_error"}}                          Anthropic
    {"type": "error", "error": {"type": ..., "details": {"error_code": ...}}}         ... with the code proper
    {"error": {"type": "invalid_request_error", "code": "lock_timeout"}}              Stripe
    {"type": "response.failed", "response": {"error": {"code": "server_error"}}}      OpenAI, in a stream
    {"type": "error", "code": "server_error", "param": null, "sequence_number": 7}    OpenAI, in a stream

The message of a rate limit has one fixed form, and only its numbers are read:
``... on tokens per min (TPM): Limit 30000, Used 15532, Requested 14655. Please try again in 374ms.``
More requested than the limit can never pass. A limit whose sign ends in D is counted by the day.

Three of Anthropic's errors have no code of their own. Their messages, too, have one fixed beginning: ``model: NAME``
of a 404; of a 400 ``You have reached your specified ... API usage limits``, which is a limit on spending, and
``prompt is too long: 219898 tokens > 200000 maximum``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from ...core.decision import Outcome
from ...core.signal import SUBSCRIPTION, Limit
from ..dialect import Dialect, read_flat_error
from ..error_body import UNKNOWN_MODEL, ErrorDetails, Json, code_text, outcome_of_codes, status_in
from ..headers import WINDOWS, scan_headers
from ..limits import count_of, limits_of
from ..retry_after import EPOCH_MILLISECONDS_FROM, Arrival, duration, number, within_bounds

LONGEST_MESSAGE = 1024

_NUMBERS = r"(?a)\(([A-Z]{3,5})\): Limit (\d[\d,]{0,19}), (?:Used (\d[\d,]{0,19}), )?Requested (\d[\d,]{0,19})"
_MODEL = r"(?:Rate limit reached|Request too large) for (?:model )?`?([^`\s]{1,80})`? in organization"
_TRY_AGAIN = (
    r"(?a)Please (?:try again in|retry after) "
    r"(?:((?:\d{1,12}(?:\.\d{1,12})?(?:ms|h|m|s))+)|(\d{1,12}(?:\.\d{1,12})?) (second|minute|hour|day)s?)\b"
)
_COUNTED = {"T": "tokens", "R": "requests", "I": "input_tokens", "O": "output_tokens"}
_WINDOWS = {"S": 1.0, "M": 60.0, "H": 3600.0, "D": 86400.0}
_LIMIT_CODES = ("rate_limit_exceeded", "tokens", "requests", "429")
_USAGE_LIMIT = r"You have reached your specified (?:\w{1,20} ){0,2}API usage limits"
_TOO_LONG = r"prompt is too long: \d"
_OPENROUTER_LIMIT = "Rate limit exceeded: "


def read_error(body: Json, arrival: Arrival) -> ErrorDetails | None:
    error = body.get("error")
    event = None if isinstance(error, Mapping) else _failed_event(body)
    error = event or error
    if not isinstance(error, Mapping):
        return None
    code, kind = error.get("code"), error.get("type")
    anthropic = event is None and body.get("type") == "error"
    if anthropic and isinstance(more := error.get("details"), Mapping):
        code = more.get("error_code") or code
    details = ErrorDetails(
        outcome=outcome_of_codes(code, kind) or (Outcome.INVALID if event else None),
        reason=code_text(code) or code_text(kind),
        dialect="anthropic" if anthropic else "azure-openai" if code == "429" else "",
        status=status_in(code),
        is_unknown_model=code in UNKNOWN_MODEL,
    )
    message = error.get("message")
    if anthropic and isinstance(message, str):
        details.is_unknown_model = kind == "not_found_error" and message.startswith("model: ")
        if kind == "invalid_request_error" and re.match(_USAGE_LIMIT, message):
            details.outcome = Outcome.SPEND
        elif kind == "invalid_request_error" and re.match(_TOO_LONG, message):
            details.outcome = Outcome.TOO_LARGE
    if isinstance(message, str) and (code in _LIMIT_CODES or kind in _LIMIT_CODES):
        _read_message(message[:LONGEST_MESSAGE], details)
    if isinstance(code, int) and isinstance(metadata := error.get("metadata"), Mapping):
        _read_metadata(metadata, message, details, arrival)
    return details


def _failed_event(body: Json) -> Json | None:
    """The error with which OpenAI's Responses end a stream. Neither shape can be data of a caller's."""
    response = body.get("response")
    if body.get("type") == "response.failed" and isinstance(response, Mapping):
        error = response.get("error")
        return error if isinstance(error, Mapping) and error else {"code": "server_error"}
    return body if body.get("type") == "error" and "code" in body and "sequence_number" in body else None


def _read_message(message: str, details: ErrorDetails) -> None:
    if found := re.search(_MODEL, message):
        details.scope = code_text(found[1]) or None
    if again := re.search(_TRY_AGAIN, message):
        seconds = duration(again[1]) if again[1] else float(again[2]) * WINDOWS[again[3]]
        details.floor = None if seconds is None else within_bounds(seconds)
    if not (numbers := re.search(_NUMBERS, message)):
        return
    details.dialect = "groq" if " for model " in message else "openai"
    sign, *written = numbers.groups(default="")
    allowed, used, requested = (count_of(digits.replace(",", "")) for digits in written)
    details.limits = (
        Limit(
            dimension=_COUNTED.get(sign[0], "requests"),
            limit=allowed,
            remaining=None if used is None or allowed is None else max(0.0, allowed - used),
            window=_WINDOWS.get(sign[-1]),
            name=sign,
        ),
    )
    if requested is not None and allowed is not None and requested > allowed:
        details.outcome = Outcome.TOO_LARGE
    elif sign[-1] == "D" and details.outcome not in (Outcome.KEY_DEAD, Outcome.SPEND):
        details.outcome = Outcome.QUOTA_EXHAUSTED


def _read_metadata(metadata: Json, message: object, details: ErrorDetails, arrival: Arrival) -> None:
    """OpenRouter repeats the headers in the body, where a proxy or a 200 has lost them."""
    details.dialect = "openrouter"
    if "flagged_input" in metadata or "reasons" in metadata:
        # Moderation refuses this input with a 403; the key is as good as before.
        details.outcome, details.reason = Outcome.INVALID, "flagged_input"
        return
    details.limits = tuple(limits_of(scan_headers(metadata.get("headers")), OPENROUTER, arrival))
    spent = [limit.reset for limit in details.limits if not limit.remaining and limit.reset is not None]
    details.floor = max(spent, default=None)
    if isinstance(message, str) and message.startswith(_OPENROUTER_LIMIT) and details.status == 429:
        details.reason = code_text(message.removeprefix(_OPENROUTER_LIMIT).split(".")[0].strip())
        if "per-day" in details.reason:
            details.outcome = Outcome.QUOTA_EXHAUSTED


# ---------------------------------------------------------------------- Anthropic's subscriptions
# anthropic-ratelimit-unified-status: allowed, allowed_warning, rejected; -reset: Unix seconds; and for each window
# -5h-status, -5h-reset, -5h-utilization (a share of 1) and the same for 7d.

_UNIFIED = "anthropic-ratelimit-unified"
_PLAN_WINDOWS = {"5h": 5 * 3600.0, "7d": 7 * 86400.0}
_UNIFIED_HEADERS = [f"{_UNIFIED}-{part}" for part in ("status", "reset", "representative-claim")]
_UNIFIED_HEADERS += [
    f"{_UNIFIED}-{name}-{part}" for name in _PLAN_WINDOWS for part in ("status", "reset", "utilization")
]


def _read_unified(marks: Mapping[str, str], arrival: Arrival) -> list[Limit]:
    found = [_plan_limit(marks, arrival, f"-{name}", window, name) for name, window in _PLAN_WINDOWS.items()]
    limits = [limit for limit in found if limit is not None]
    if marks.get(f"{_UNIFIED}-status") == "rejected" and not any(limit.remaining == 0 for limit in limits):
        overall = _plan_limit(marks, arrival, "", None, code_text(marks.get(f"{_UNIFIED}-representative-claim")))
        limits += [overall] if overall is not None else []
    return limits


def _plan_limit(marks: Mapping[str, str], arrival: Arrival, part: str, window: float | None, name: str) -> Limit | None:
    status, used = marks.get(f"{_UNIFIED}{part}-status"), number(marks.get(f"{_UNIFIED}{part}-utilization", ""))
    if status is None and used is None:
        return None
    left = None if used is None else 100.0 * max(0.0, 1.0 - used)
    return Limit(
        dimension=SUBSCRIPTION,
        limit=100.0,
        remaining=0.0 if status == "rejected" else left,
        reset=arrival.until(marks.get(f"{_UNIFIED}{part}-reset", "")),
        window=window,
        name=name,
    )


_chat_dialect = partial(Dialect, read_error=read_error, hides_errors=True)

OPENAI = _chat_dialect(
    name="openai",
    reads={"openai-organization": False, "openai-project": False},
    title="OpenAI",
    hosts=("api.openai.com",),
    owns_budget=lambda budget: budget.meaning.family == "x-" and budget.meaning.budget in ("requests", "tokens"),
    windows={"requests": 60.0, "tokens": 60.0},
    implies_window=True,
    reset_when_full=True,
)
AZURE_OPENAI = _chat_dialect(
    name="azure-openai",
    title="Azure OpenAI",
    hosts=("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com"),
    marks={"apim-request-id": False, "x-ms-region": False, "x-ratelimit-type": True},
    owns_budget=lambda budget: budget.meaning.family == "x-" and "renewal" in budget.parts,
    reset_when_free=True,
)
ANTHROPIC = _chat_dialect(
    name="anthropic",
    reads={"anthropic-organization-id": False, "anthropic-workspace-id": False},
    title="Anthropic",
    hosts=("api.anthropic.com",),
    owns_budget=lambda budget: budget.meaning.family == "anthropic-",
    marks=dict.fromkeys(_UNIFIED_HEADERS, True),
    read_limits=_read_unified,
    windows=dict.fromkeys(("requests", "tokens", "input-tokens", "output-tokens"), 60.0),
    reset_when_full=True,
)
GROQ = _chat_dialect(
    name="groq",
    title="Groq",
    hosts=("api.groq.com",),
    marks={"x-groq-region": False},
    windows={"requests": 86400.0, "tokens": 60.0},
    implies_window=True,
    reset_when_full=True,
    has_own_tiers=True,
)
OPENROUTER = _chat_dialect(
    name="openrouter",
    title="OpenRouter",
    hosts=("openrouter.ai",),
    owns_budget=lambda budget: (
        (budget.meaning.family, budget.meaning.budget) == ("x-", "")
        and (number(budget.parts.get("reset", "")) or 0.0) >= EPOCH_MILLISECONDS_FROM
    ),
)
MISTRAL = Dialect(
    name="mistral",
    title="Mistral",
    hosts=("api.mistral.ai",),
    owns_budget=lambda budget: (
        budget.meaning.family == "x-" and budget.meaning.budget in ("req-minute", "tokens-minute")
    ),
    read_error=read_flat_error,
)
