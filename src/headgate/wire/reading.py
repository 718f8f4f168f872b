"""Read one answer: status, headers and body become one ``Signal``.

Three witnesses are heard, and each may correct the one before it::

    status   429                        how it ended, as HTTP has it
    headers  retry-after, ratelimit     what is left, and when to come back
    body     {"error": {...}}           why: a dead key, a spent day, a call that can never fit

Good answers are nearly all answers, so their way through this file is short: without a
word about limits it ends at the first question. What concerns errors is in ``judging``,
which is loaded with the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..core.decision import Outcome
from ..core.signal import SILENT, Signal
from .arrival import Arrival
from .bodies import may_complain
from .headers import listen
from .limits import limits_of
from .speakers import by_convention, by_headers, by_host, by_pace
from .status import outcome_of_status
from .urls import host_key

LONGEST_URL = 2048
"""Characters of an address that may tell who is speaking."""

_NOTHING_TO_SAY = SILENT[Outcome.OK]


def read(
    status: int,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
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
    spoken = listen(headers, idly=fine)
    listen_to_body = body is not None and (not fine or may_complain(body))
    if fine and not spoken.speaks and not listen_to_body:
        return _NOTHING_TO_SAY
    arrival = Arrival(wall, spoken.marks.get("date"))
    at_home = by_host(host_key(url)) if isinstance(url, str) and len(url) <= LONGEST_URL else ""
    if not fine or listen_to_body:
        from .judging import judge

        judged = judge(status, outcome, spoken, body if listen_to_body else None, arrival, at_home)
        if judged is not None:
            return judged
    dialect = at_home or by_headers(spoken) or by_convention(spoken)
    limits = limits_of(spoken, dialect, arrival)
    if not limits:
        return _NOTHING_TO_SAY
    return Signal(outcome=outcome, limits=tuple(limits), dialect=at_home or by_pace(dialect, limits))
