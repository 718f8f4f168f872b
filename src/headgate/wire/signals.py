"""One signal out of whatever a caller has: a response, an exception, or the bare facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..core.decision import LONGEST_WAIT, Outcome
from ..core.signal import SILENT, Signal
from .reading import read
from .responses import facts_of
from .status import body_behind, outcome_of_exception, response_behind

_NOTHING = SILENT[Outcome.OK]
Headers = Mapping[str, str] | Iterable[tuple[str, str]]


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
