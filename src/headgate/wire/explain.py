"""Say in plain sentences what an answer says about its limits, and what Headgate would make of it.

429: rate limited (rate_limit_exceeded).
Format: OpenAI.
30,000 tokens a minute ("TPM"), 14,468 left.
Retry after 374 ms (gpt-4o).
Headgate would start no calls for 374 ms, then continue at a lower rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from ..core.decision import Outcome
from ..core.signal import Limit, Signal
from ..formatting import redact
from .dialects import BY_NAME
from .headers import scan_headers
from .parse import outcome_of_status, read
from .retry_after import Arrival

_HAPPENED = {
    Outcome.OK: "the call went through",
    Outcome.RATE_LIMITED: "rate limited",
    Outcome.QUOTA_EXHAUSTED: "quota used up",
    Outcome.CAPACITY: "this service tier has no capacity left",
    Outcome.SPEND: "the account has no credit, or has reached a limit on spending",
    Outcome.OVERLOADED: "the server is overloaded",
    Outcome.TRANSIENT: "the server failed, or its answer was incomplete",
    Outcome.AUTH: "the credential was rejected",
    Outcome.KEY_DEAD: "the credential is no longer valid",
    Outcome.TOO_LARGE: "the call is larger than the limit and can never succeed",
    Outcome.INVALID: "the server rejected the request",
}

_WINDOWS = {1.0: "a second", 60.0: "a minute", 3600.0: "an hour", 86400.0: "a day"}
_UNITS = ((86400, "day"), (3600, "h"), (60, "min"), (1, "s"))
_COUNTED = {
    "requests": ("request", "requests"),
    "tokens": ("token", "tokens"),
    "input_tokens": ("input token", "input tokens"),
    "output_tokens": ("output token", "output tokens"),
    "content-bytes": ("byte", "bytes"),
    "concurrency": ("call at a time", "calls at a time"),
    "subscription": ("percent of the subscription", "percent of the subscription"),
    "cost": ("point of query cost", "points of query cost"),
}

_BY_ITSELF = "Headgate would learn the rate from which calls succeed and how long they take."


def explain(
    status: int,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
    body: bytes | str | Mapping[str, object] | None = None,
    *,
    wall: float,
    url: str | None = None,
) -> list[str]:
    """What one answer says, sentence by sentence. Shows no secret and, like ``read``, never raises."""
    signal = read(status, headers, body, wall=wall, url=url)
    sentences = [_happened(status, signal)]
    if signal.dialect:
        sentences.append(f"Format: {BY_NAME[signal.dialect].title}.")
    sentences += [_of_limit(limit) for limit in signal.limits]
    if signal.retry_after is not None:
        sentences.append(_of_pause(signal, signal.retry_after))
    if signal.outcome is Outcome.OK and not signal.limits and _is_garbled(headers, wall):
        sentences.append(f"Its rate-limit headers cannot be parsed. {_BY_ITSELF}")
    else:
        sentences.append(_what_headgate_does(signal))
    return [redact(sentence) for sentence in sentences]


def in_words(seconds: float) -> str:
    """A span of time as people say it: 12 ms, 7.7 s, 3 min, 16 min 18 s, 5 h 12 min, 3 days."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    (larger, name), (smaller, smaller_name) = next(pair for pair in pairwise(_UNITS) if whole >= pair[0][0])
    count, rest = divmod(whole, larger)
    unit = f"{name}s" if name == "day" and count != 1 else name
    return f"{count} {unit} {rest // smaller} {smaller_name}" if rest >= smaller else f"{count} {unit}"


def _happened(status: object, signal: Signal) -> str:
    happened, reason = _HAPPENED.get(signal.outcome, signal.outcome.value), signal.reason
    code = f" ({reason})" if reason and reason != str(status) else ""
    if status == 0:
        return f"No answer: {happened}{code}."
    if signal.outcome is not Outcome.OK and outcome_of_status(status) is Outcome.OK:
        return f"{status}, but the body has an error: {happened}{code}."
    return f"{status}: {happened}{code}."


def _of_limit(limit: Limit) -> str:
    name = f' ("{limit.name}")' if limit.name else ""
    state = [part for part in (_left(limit), _whole_again(limit)) if part]
    if limit.limit is None:
        what = _counted(None, limit.dimension)
        return f"{what[0].upper()}{what[1:]}{name}: {', '.join(state) or 'limited, amount not given'}."
    allowed = f"{_counted(limit.limit, limit.dimension)}{_per(limit)}{name}"
    return f"{', '.join([allowed, *state])}." if state else f"At most {allowed}."


def _left(limit: Limit) -> str:
    if limit.remaining is None:
        return ""
    return "none left" if limit.remaining < 1 else f"{_number(limit.remaining)} left"


def _whole_again(limit: Limit) -> str:
    if limit.reset is None:
        return ""
    return f"resets in {in_words(limit.reset)}" if limit.reset else "resets now"


def _counted(amount: float | None, dimension: str) -> str:
    one, many = _COUNTED.get(dimension, (dimension or "unit", dimension or "units"))
    return many if amount is None else f"{_number(amount)} {one if amount == 1 else many}"


def _per(limit: Limit) -> str:
    if limit.dimension == "concurrency":
        return ""
    if limit.window is None:
        return " (window not given)"
    return f" {_WINDOWS[limit.window]}" if limit.window in _WINDOWS else f" every {in_words(limit.window)}"


def _of_pause(signal: Signal, seconds: float) -> str:
    if seconds == 0.0:
        return "Retry at once."
    if signal.outcome is Outcome.QUOTA_EXHAUSTED:
        return f"The quota resets in {in_words(seconds)}."
    whom = f" ({signal.scope})" if signal.scope else ""
    return f"Retry after {in_words(seconds)}{whom}."


def _is_garbled(headers: object, wall: object) -> bool:
    """Whether there are headers about limits that hold nothing readable, not even a pause."""
    try:
        said = scan_headers(headers, only_limits=True)
    except Exception:  # a mapping that itself raises
        return False
    arrival = Arrival(wall)
    return said.has_limits and all(arrival.until(text, milliseconds=is_ms) is None for text, is_ms in said.retries)


def _what_headgate_does(signal: Signal) -> str:
    """What a limiter would do by itself, which is to hold calls back; to send one again is its caller's business."""
    pause = signal.retry_after
    rest = f"start no calls for {in_words(pause)}" if pause else ""
    match signal.outcome:
        case Outcome.OK if signal.limits:
            return "Headgate would pace the next calls by these numbers to stay under the limit."
        case Outcome.OK:
            return f"It says nothing about limits. {_BY_ITSELF}"
        case Outcome.RATE_LIMITED:
            return f"Headgate would {rest + ', then ' if rest else ''}continue at a lower rate."
        case Outcome.QUOTA_EXHAUSTED if rest:
            return f"Headgate would {rest}; until then, use another credential."
        case Outcome.CAPACITY:
            return f"Headgate would {rest or 'rest the tier for a moment'}, then try again."
        case Outcome.SPEND:
            return "Headgate would send one call every 15 min with this account until one succeeds; use another."
        case Outcome.OVERLOADED | Outcome.TRANSIENT:
            return f"Headgate would {rest + ', then ' if rest else ''}continue; consecutive failures open the circuit."
        case Outcome.QUOTA_EXHAUSTED | Outcome.AUTH | Outcome.KEY_DEAD:
            return "A retry with this credential would fail the same way; use another."
        case Outcome.TOO_LARGE:
            return "A retry would fail the same way; make the call smaller."
        case _:
            return "A retry would fail the same way."


def _number(amount: float) -> str:
    return f"{amount:,.0f}" if amount == int(amount) else f"{amount:,.2f}"
