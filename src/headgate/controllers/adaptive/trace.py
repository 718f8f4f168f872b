"""What the controller learned and decided, as data, for a listener.

A simulation and ``headgate simulate --explain`` listen; ``lab/experiment.py`` makes the sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Step(StrEnum):
    """A turning point; ``KIND_OF`` groups them."""

    CUT = "cut"
    """Refused: what was let in since the last refusal, and the quota and pace made of it."""
    CUT_AGAIN = "cut_again"
    FELL_BACK = "fell_back"
    PROBING = "probing"
    CLIMBING = "climbing"
    BLOCKED = "blocked"
    RESUMED = "resumed"
    LEARNED_WINDOW = "learned_window"
    LEARNED_LOG = "learned_log"
    """The server keeps a log of the calls: over so many seconds, so many."""
    SHARED = "shared"
    """Measurements wander: others take from the quota too."""
    NOT_SHARED = "not_shared"
    FOLLOWING_HEADERS = "following_headers"
    CAPPED = "capped"
    SLOWED = "slowed"
    HEADERS_STOPPED = "headers_stopped"
    """From here on: a model of the limit is given up."""
    HEADERS_USELESS = "headers_useless"
    HEADERS_WRONG = "headers_wrong"
    NOT_A_CAP = "not_a_cap"


_KINDS = {
    "cut": (Step.CUT, Step.CUT_AGAIN, Step.FELL_BACK),
    "raise": (Step.PROBING, Step.CLIMBING),
    "hold": (Step.BLOCKED,),
    "resume": (Step.RESUMED,),
    "learn": (Step.LEARNED_WINDOW, Step.LEARNED_LOG, Step.SHARED, Step.NOT_SHARED),
}
KIND_OF = {step: kind for kind, steps in _KINDS.items() for step in steps}
"""Every other step is a change of ``mode``."""


class TraceEvent(NamedTuple):
    step: Step
    numbers: Mapping[str, float]

    @property
    def kind(self) -> str:
        """cut, raise, hold, resume, learn or mode."""
        return KIND_OF.get(self.step, "mode")


TraceListener = Callable[[float, TraceEvent], None]
"""Called with the instant and what happened."""


@dataclass(slots=True)
class Trace:
    listener: TraceListener | None = None

    def note(self, now: float, step: Step, **numbers: float) -> None:
        if self.listener is not None:
            self.listener(now, TraceEvent(step, numbers))
