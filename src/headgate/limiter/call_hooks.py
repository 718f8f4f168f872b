"""Observers of every single call: metrics, spans, recordings.

Events say what changes; a call that went as the last one did is none. An observer sees all calls, and only where there
is one does a call cost anything for it:

    permit ──around──> the call ──ended──> what came back
                          └─────dropped──> the outcome is unknown, or nothing was sent

``around`` is entered by the parts that make the call themselves: ``limiter.permit(...)``, resilience, batch, crawl. A
caller that acquires and reports by hand has an end without it.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from ..core.decision import Outcome
from ..wire import response_behind

if TYPE_CHECKING:
    from ..events import CallEvent
    from .permit import Permit

log = logging.getLogger("headgate")

_NOTHING: AbstractContextManager[object] = nullcontext()


class CallInfo(NamedTuple):
    """What is known of a call before it is made."""

    attempt: int = 1
    method: str = ""
    url: str = ""
    credential: str = ""
    """Its label."""


EndedCall = tuple[str, Outcome, float, float]
"""A call's key, how it ended, its latency, and how long it waited for its permit."""
MOST_KEPT = 1_000
"""Calls that wait in an inbox."""


class CallObserver:
    """Base of observers. Its methods run in the caller's thread and must not wait; what they raise is logged."""

    inbox: deque[EndedCall] | None = None
    """An observer that only counts has one: calls are put there instead of calling ``ended`` for each, which costs a
    fraction, and ``take_inbox`` is called before there are too many."""

    def take_inbox(self) -> None:
        """Empty the inbox. May be called by several threads at once."""

    def around(self, permit: Permit, about: CallInfo) -> AbstractContextManager[object]:
        """Entered right before the call is made, left when it is over; ``ended`` or ``dropped`` comes after that."""
        return _NOTHING

    def ended(self, permit: Permit, call: CallEvent) -> None:
        """An answer came, or an error that says as much."""

    def dropped(self, permit: Permit, sent: bool) -> None:
        """It ended without an outcome."""


def around(observers: tuple[CallObserver, ...], permit: Permit, about: CallInfo) -> AbstractContextManager[object]:
    """Enter all observers, the first outermost."""
    stack = ExitStack()
    for observer in observers:
        try:
            stack.enter_context(observer.around(permit, about))
        except Exception:  # an observer must not fail a call
            log.exception("an observer failed on a call of %s", permit.key)
    return stack


def status_of(answer: object) -> int | None:
    """The HTTP status of an answer: a response, an exception, the number itself."""
    if answer is None or isinstance(answer, int):
        return answer
    if isinstance(answer, BaseException):
        answer = response_behind(answer)
    status = getattr(answer, "status_code", None)
    if not isinstance(status, int):
        status = getattr(answer, "status", None)
    return status if isinstance(status, int) else None
