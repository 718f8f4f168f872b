"""Why it waits, in one look: one sentence for each blocked scope, what is really shut before what is merely paced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .snapshot import MOST_WAITS, KeyLine, WaitLine

_ORDINARY = (
    ": paced at ",
    ": held under the known limit",
    ": waiting for a share",
    " workers are busy",
    " in flight, as many",
)
"""How it goes while all is well: rows wait because everything is in use."""


def of_keys(keys: Iterable[KeyLine]) -> list[WaitLine]:
    """Callers of a limiter that stand in line."""
    return [
        WaitLine(
            scope=line.key,
            sentence=f"{line.key}: {line.reason}",
            behind=line.waiting,
            seconds=line.not_before or None,
        )
        for line in keys
        if line.reason and line.waiting
    ]


def in_order(lines: Sequence[WaitLine]) -> tuple[WaitLine, ...]:
    """The gravest first; those that do not fit are counted in the last."""
    ranked = sorted(lines, key=lambda line: (is_ordinary(line), -line.behind, -(line.seconds or 0.0)))
    if len(ranked) <= MOST_WAITS:
        return tuple(ranked)
    shown, rest = ranked[: MOST_WAITS - 1], ranked[MOST_WAITS - 1 :]
    others = WaitLine(scope="others", sentence=f"{len(rest):,} others wait too", behind=sum(one.behind for one in rest))
    return (*shown, others)


def is_ordinary(line: WaitLine) -> bool:
    return any(words in line.sentence for words in _ORDINARY)
