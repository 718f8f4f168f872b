"""Answers and refusals, as the file of any client needs them: what an error says, and a refusal in the client's words.

an error's body    worth a look before the client has one, if it is JSON or short; read to its end it keeps no
                   connection busy while a wait goes on
a refusal          raised as the client's own kind of error and as Headgate's at once
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import CircuitOpenError, Refused, TimeBudgetExceededError, WaitTooLongError
from .reading import LARGEST_ERROR

Refusals = Mapping[type[Refused], type[Refused]]
"""A client's own kinds of refusal, by the family of ours that each is raised for."""
_FAMILIES = (WaitTooLongError, TimeBudgetExceededError, CircuitOpenError, Refused)


def explains_itself(status: int, headers: Mapping[str, str]) -> bool:
    """Whether this is an error whose body is worth a look. Of a long one only the start is read."""
    if status < 400:
        return False
    length = headers.get("content-length", "")
    return "json" in headers.get("content-type", "").lower() or (
        length.isdecimal() and len(length) < 10 and int(length) <= LARGEST_ERROR
    )


def unpacked_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers of an answer whose body the client unpacks before anyone sees it."""
    return [(name, value) for name, value in headers.items() if name.lower() != "content-encoding"]


def in_their_words(error: Refused, kinds: Refusals) -> Refused:
    """The refusal as the client's own kind of error, with all that is known of it."""
    kind = next(kinds[family] for family in _FAMILIES if isinstance(error, family))
    told = kind(error.key, error.reason, error.retry_after)
    vars(told).update(vars(error))
    told.__cause__ = error.__cause__
    return told
