"""When an answer came in, by our clock and, if it says so, by the server's own."""

from __future__ import annotations

from .times import EPOCH_SECONDS_FROM, duration, longest_of, number, sane_wall, server_now, within_bounds


class Arrival:
    """The one moment against which every instant in an answer is judged.

    Reading the ``Date`` header costs more than reading most limits, so it is put off until
    something in the answer really is an instant.
    """

    __slots__ = ("_date", "_now", "_wall")

    def __init__(self, wall: object, date: str | None = None) -> None:
        self._wall = sane_wall(wall)
        self._date = date
        self._now = self._wall if date is None else None

    @property
    def now(self) -> float:
        if self._now is None:
            self._now = server_now(self._date, wall=self._wall)
        return self._now

    def until(self, text: str, *, milliseconds: bool = False) -> float | None:
        """Seconds from this moment that a hint speaks of, within [0, 31 days]; None if it says nothing."""
        span = number(text)
        if span is None:
            span = duration(text)
        elif milliseconds:
            span /= 1e3
        elif span >= EPOCH_SECONDS_FROM:
            span = None
        if span is not None:
            return within_bounds(span)
        return longest_of(text, now=self.now, milliseconds=milliseconds)
