"""What every way of counting can be asked, and what it says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

ROUNDING = 1e-6
"""What is missing by this much is missing by rounding only: of an amount, and of an interval."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a quota stands at one instant. Times are seconds from then; ``None`` is for what cannot be known."""

    limit: float
    window: float | None
    used: float
    remaining: float
    reset: float | None
    """Until nothing of it is used."""
    retry: float | None
    """Until the next call would be let through; 0 when it would be now."""
    burst: float
    """What it lets through at once when nothing of it is used."""
    relief: float | None
    """As ``reset``, but of a log only until its oldest call leaves."""


class Quota(Protocol):
    def take(self, now: float, amount: float = 1.0) -> bool:
        """Let one call through, or not."""

    def wait(self, now: float, amount: float = 1.0) -> float | None:
        """Seconds until ``take`` would let it through, 0 for now, ``None`` if only the end of another call can tell."""

    def refuse(self, now: float, amount: float = 1.0) -> None:
        """The call was refused, here or by another limit that holds beside this one."""

    def yield_to(self, now: float, amount: float = 1.0) -> None:
        """Somebody with priority takes as well, whatever is left."""

    def end(self, now: float) -> None:
        """The answer to a call that was let through has gone out."""

    def scale(self, factor: float, now: float) -> None:
        """From ``now`` on allow ``factor`` times the configured amount."""

    def standing(self, now: float) -> Standing: ...


class Lenient:
    """Takes no notice of anything but calls that ask; each way of counting says what else matters to it."""

    __slots__ = ()

    def refuse(self, now: float, amount: float = 1.0) -> None:
        pass

    def yield_to(self, now: float, amount: float = 1.0) -> None:
        pass

    def end(self, now: float) -> None:
        pass


def scaled_count(amount: float, factor: float) -> float:
    """A multiple of a number of calls: 0.3 times 10 is 3, and not a little less."""
    return round(amount * factor, 6)
