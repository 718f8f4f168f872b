"""Who wants to hear of every single call: metrics, spans, recordings.

Events tell what changes; a call that went as the last one did is none. Whoever needs all of them watches, and only
then does a call cost anything for it:

    permit ──around──> the call ──ended──> what came back
                          └─────dropped──> nobody will know, or nothing was sent

``around`` is entered by those parts of the house that make the call themselves: ``with limiter.permit(...)``, the
executor, a batch, a crawl. Who acquires and reports by hand has an end without it.
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


class About(NamedTuple):
    """What is known of a call before it is made, as far as it is."""

    attempt: int = 1
    method: str = ""
    url: str = ""
    credential: str = ""
    """Its label."""


Ended = tuple[str, Outcome, float, float]
"""A call's key, how it ended, its latency, and how long it waited for its permit."""
MOST_KEPT = 1_000
"""Calls that wait in an inbox."""


class CallWatcher:
    """To be made more of. Nothing here may take long or wait: the caller's thread does it. What it raises is logged."""

    inbox: deque[Ended] | None = None
    """Whoever only counts has one: calls are put there instead of being told to ``ended`` one by one, which costs each
    a fraction, and ``take_inbox`` is called before there are too many."""

    def take_inbox(self) -> None:
        """Take what is in the inbox. May be called by several threads at once."""

    def around(self, permit: Permit, about: About) -> AbstractContextManager[object]:
        """Entered right before the call is made, left when it is over; ``ended`` or ``dropped`` comes after that."""
        return _NOTHING

    def ended(self, permit: Permit, call: CallEvent) -> None:
        """An answer came, or an error that says as much."""

    def dropped(self, permit: Permit, sent: bool) -> None:
        """It ended without an outcome."""


def around(watchers: tuple[CallWatcher, ...], permit: Permit, about: About) -> AbstractContextManager[object]:
    """All of them, the first outermost."""
    stack = ExitStack()
    for watcher in watchers:
        try:
            stack.enter_context(watcher.around(permit, about))
        except Exception:  # it must not cost anybody a call
            log.exception("a watcher failed on a call of %s", permit.gate.key)
    return stack


def status_of(answer: object) -> int | None:
    """The status of whatever an answer was read from: a response, an exception, the number itself."""
    if answer is None or isinstance(answer, int):
        return answer
    if isinstance(answer, BaseException):
        answer = response_behind(answer)
    status = getattr(answer, "status_code", None)
    if not isinstance(status, int):
        status = getattr(answer, "status", None)
    return status if isinstance(status, int) else None
