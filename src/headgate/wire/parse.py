"""Read one answer: status, headers and body become one ``Signal``.

Three parts are read, and each may correct the one before it::

    status   429                        how it ended, as HTTP has it
    headers  retry-after, ratelimit     what is left, and when to come back
    body     {"error": {...}}           why: a dead key, a spent day, a call that can never fit

Good answers are nearly all answers, so their way through this file is short: without a
word about limits it ends at the first question. All others go on in ``classify``, which is
loaded with the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..core.decision import LONGEST_WAIT, Outcome
from ..core.signal import SILENT, Signal
from .error_body import may_hold_error
from .headers import scan_headers
from .responses import body_behind, facts_of, response_behind
from .retry_after import Arrival

_NOTHING = SILENT[Outcome.OK]

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


def read(
    status: int,
    headers: Headers | None = None,
    body: bytes | str | Mapping[str, object] | None = None,
    *,
    wall: float,
    url: str | None = None,
) -> Signal:
    """What the answer says about its limits. ``wall`` is the Unix time it came in.

    Never raises and never works longer than its bounds allow, whatever it is given; every wait and
    every reset lies within [0, 31 days]. Where nothing can be read, the status speaks alone.
    """
    try:
        return read_strictly(status, headers, body, wall, url)
    except Exception:
        return SILENT[outcome_of_status(status)]


def read_strictly(status: object, headers: object, body: object, wall: object, url: object) -> Signal:
    """``read`` without its safety net: what only a mapping that itself raises can make raise."""
    outcome = outcome_of_status(status)
    fine = outcome is Outcome.OK
    limits = scan_headers(headers, only_limits=fine)
    reads_body = body is not None and (not fine or may_hold_error(body))
    if fine and not limits.has_limits and not reads_body:
        return _NOTHING
    from .classify import classify

    return classify(status, outcome, limits, body if reads_body else None, Arrival(wall, limits.marks.get("date")), url)


def signal_of(
    answer: object,
    status_code: int | None,
    headers: Headers | None,
    body: Any,
    retry_after: float | None,
    wall: float,
) -> Signal:
    """What was learned from a response, an exception or the bare facts, as one signal.

    An exception says most by the response behind it. Without one it may name its ``outcome`` itself,
    with the ``retry_after`` it was told.
    """
    if answer is not None and not isinstance(answer, (Signal, BaseException)):
        signal = _of_response(answer, wall)
    elif isinstance(answer, Signal):
        signal = answer
    elif isinstance(answer, BaseException):
        signal = _of_exception(answer, wall)
        if retry_after is None and isinstance(getattr(answer, "outcome", None), Outcome):
            retry_after = getattr(answer, "retry_after", None)
    elif status_code is not None:
        signal = read(status_code, headers, body, wall=wall)
    else:
        raise TypeError("report() needs a response, an exception or status_code=")
    if retry_after is not None and retry_after > 0:
        signal = replace(signal, retry_after=min(max(retry_after, signal.retry_after or 0.0), LONGEST_WAIT))
    return signal


def _of_exception(error: BaseException, wall: float) -> Signal:
    response, body = response_behind(error), body_behind(error)
    if response is not None:
        return _of_response(response, wall, body)
    named = getattr(error, "outcome", None)
    if not isinstance(named, Outcome):
        signal = _NOTHING if body is None else read(200, None, body, wall=wall)
        if signal.outcome is not Outcome.OK:
            return signal
        named = outcome_of_exception(error)
    return SILENT[named]


def _of_response(response: object, wall: float, parsed: Mapping[str, object] | None = None) -> Signal:
    status, headers, body = facts_of(response)
    return read(status, headers, body or parsed, wall=wall)
