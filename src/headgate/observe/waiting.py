"""Why it waits, in one look: one sentence for each blocked scope, what is really shut before what is merely paced.

What others get round holds nobody back, and stands last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ..core.words import brief
from .snapshot import MOST_WAITS, KeyLine, ProgressLine, WaitLine

if TYPE_CHECKING:
    from ..batch.standing import LaneStanding
    from ..crawl.crawler import HostLook

_PACED = (": paced at ", ": held under the operator's limit", ": waiting for a share")
_ORDINARY = (
    *_PACED,
    ": held under the known limit",
    " workers are busy",
    " calls in flight, ",
    " answers awaited",
)
"""How it goes while all is well: rows wait because everything is in use."""
_USUAL = ("pace", "workers", "answers", "crawl_delay")
"""What a lane waits for again as soon as a row has left."""
_NEXT = re.compile(r", [0-9.]+ (?:ms|s|min|h) to go$")


class Waits(NamedTuple):
    lines: list[WaitLine]
    behind: int
    """All who wait, each counted once: a row that stands behind two credentials is one row."""


def of_keys(keys: Iterable[KeyLine]) -> list[WaitLine]:
    """Callers of a limiter that stand in line."""
    return [
        WaitLine(
            scope=line.key,
            sentence=sentence(line.key, line.reason or paced(line.rate)),
            behind=line.waiting,
            seconds=line.not_before or None,
        )
        for line in keys
        if line.waiting
    ]


def of_pause(kind: str, progress: ProgressLine, callers: int) -> Waits:
    """An operator has paused it: all that is open waits for him, whatever else it would wait for."""
    known = max(progress.open, (progress.total or 0) - progress.done - progress.dead) - progress.in_flight
    behind = max(0, known, callers)
    return Waits([WaitLine(scope="run", sentence=f"the {kind} is paused by an operator", behind=behind)], behind)


def sentence(scope: str, reason: str) -> str:
    """A pace lets the next one go in some milliseconds and the last of a thousand much later: no time is told of it."""
    words = f"{scope}: {reason}"
    return _NEXT.sub("", words) if any(usual in words for usual in _PACED) else words


def paced(rate: float) -> str:
    """Where nothing else is said of rows that wait."""
    return f"paced at {brief(rate)} calls/s"


Lane = TypeVar("Lane", "LaneStanding", "HostLook")


class LastCauses(Generic[Lane]):
    """Where a row leaves at this very moment, those behind it wait all the same: for what their lane waited last."""

    def __init__(self, name_of: Callable[[Lane], str]) -> None:
        self._name_of: Callable[[Lane], str] = name_of
        self._last: dict[str, tuple[str, str]] = {}

    def of(self, lanes: Sequence[Lane]) -> list[Lane]:
        found = [self._settled(lane) for lane in lanes]
        self._last = {self._name_of(lane): (lane.waits_for, lane.reason) for lane in found if lane.waits_for in _USUAL}
        return found

    def _settled(self, lane: Lane) -> Lane:
        if lane.reason or lane.waits_for not in ("", "pace") or lane.rate is None:
            return lane
        waits_for, reason = self._last.get(self._name_of(lane), ("pace", paced(lane.rate)))
        return replace(lane, waits_for=waits_for, reason=reason)


def in_order(lines: Sequence[WaitLine]) -> tuple[WaitLine, ...]:
    """The gravest first; those that do not fit are counted in the last."""
    ranked = sorted(lines, key=lambda line: (not line.behind, is_ordinary(line), -line.behind, -(line.seconds or 0.0)))
    if len(ranked) <= MOST_WAITS:
        return tuple(ranked)
    shown, rest = ranked[: MOST_WAITS - 1], ranked[MOST_WAITS - 1 :]
    others = WaitLine(scope="others", sentence=f"{len(rest):,} others wait too", behind=sum(one.behind for one in rest))
    return (*shown, others)


def is_ordinary(line: WaitLine) -> bool:
    return is_usual(line.sentence)


def is_usual(sentence: str) -> bool:
    return any(words in sentence for words in _ORDINARY)
