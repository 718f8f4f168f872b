"""What a member has seen since its last request, for the leader: calls that left, and how they ended.

    text  {"s": [number, ago, ...], "a": [[number, ago, latency, outcome, ...], ...],
           "w": ago, "o": count, "v": [word, calls, word], "n": request}

Times are seconds before the request, by the member's own clock. ``"w"`` says when a caller last waited for the
pace. A strategy that never learns from success gets only how many there were, which its circuit must know ("o").
``"v"`` says by which word of the leader's the calls left: the first so many by one, the rest by another. ``"n"`` is
the member's request in which it was reported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any

from ..core.decision import LONGEST_WAIT, NEVER, Outcome
from ..core.signal import SILENT, Limit, Signal
from .protocol import LARGEST_NOTE

MOST_EVENTS = 1_000
"""Calls in one note, and answers; a member with more exchanges sooner."""
LATEST = 20
"""Answers that are reported in full in any case."""
MOST_OKS = 1_000_000
MOST_LIMITS = 32
LONGEST_NAME = 200
"""Limits kept of one answer, and characters of their names."""
RELEASED, ABANDONED = "released", "abandoned"
"""Ends without an outcome: sent, and not known; not sent at all."""
_OK = SILENT[Outcome.OK]
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


End = tuple[int, float, float, Signal | None, str]
"""Of a call: its number, when it ended, its latency, its answer, or how it ended without one."""


@dataclass(slots=True)
class Observation:
    """One call that left (``signal`` and ``end`` empty), or its end."""

    at: float
    member: str
    number: int
    latency: float = 0.0
    signal: Signal | None = None
    end: str = ""
    word: int = 0
    """What the leader had published when it left, as far as its member knew."""


class ObservationLog:
    """Collects between two exchanges."""

    __slots__ = ("before", "ends", "oks", "sends", "waited_at", "word", "word_before")

    def __init__(self) -> None:
        self.sends: list[tuple[int, float]] = []
        self.ends: list[End] = []
        self.waited_at = NEVER
        self.oks = 0
        """Successes that are only counted."""
        self.word = self.word_before = self.before = 0
        """What the leader says now; what it said when the first ``before`` calls left."""

    def __len__(self) -> int:
        return len(self.sends) + len(self.ends)

    def send(self, number: int, at: float) -> None:
        if len(self.sends) < MOST_EVENTS:
            self.sends.append((number, at))

    def end(self, number: int, at: float, latency: float, signal: Signal | None, how: str) -> None:
        if len(self.ends) < MOST_EVENTS:
            self.ends.append((number, at, latency, signal, how))

    def note_word(self, word: int) -> None:
        """From now on calls leave by this word of the leader's."""
        if word != self.word:
            self.word_before, self.word, self.before = self.word, word, len(self.sends)

    def seen(self, member: str, shift: float) -> list[Observation]:
        """All of it, for a leader that reads its own notes; ``shift`` is the coordinator's time minus the member's."""
        seen = [
            Observation(at + shift, member, number, word=self.word_before if index < self.before else self.word)
            for index, (number, at) in enumerate(self.sends)
        ]
        return seen + [
            Observation(at + shift, member, number, latency, signal, end)
            for number, at, latency, signal, end in self.ends
        ]

    def text(self, now: float, number: int = 0) -> str:
        """... and for another. If that is too much, what most answers said beside their outcome is left out."""
        if not len(self) and self.waited_at == NEVER and not self.oks:
            return ""
        text = self._text(now, number, self.ends)
        if len(text) > LARGEST_NOTE:
            text = self._text(now, number, [*map(_in_short, self.ends[:-LATEST]), *self.ends[-LATEST:]])
        return text

    def _text(self, now: float, number: int, reported: list[End]) -> str:
        sends: list[float] = []
        for call, at in self.sends:
            sends += call, round(now - at, 6)
        ends = [_end_as_list(now, *end) for end in reported]
        content: dict[str, Any] = {"s": sends, "a": ends, "v": [self.word_before, self.before, self.word], "n": number}
        if self.waited_at != NEVER:
            content["w"] = round(now - self.waited_at, 6)
        if self.oks:
            content["o"] = self.oks
        return json.dumps(content, separators=(",", ":"))

    def clear(self) -> None:
        self.sends.clear()
        self.ends.clear()
        self.waited_at = NEVER
        self.oks = self.before = 0


def read(text: str, member: str, at: float) -> tuple[list[Observation], float, int]:
    """What a note says in the coordinator's time, when its writer last waited, and its plain successes.

    A note that is none says nothing.
    """
    if len(text) > LARGEST_NOTE:
        return [], NEVER, 0
    try:
        content = json.loads(text)
        sends, ends, waited = content["s"], content["a"], content.get("w")
        word_before, before, word = (int(number) for number in content["v"])
        seen = [
            Observation(at - _ago(sends[i + 1]), member, int(sends[i]), word=word_before if i < 2 * before else word)
            for i in range(0, len(sends), 2)
        ]
        seen += [_end_from_list(member, at, end) for end in ends]
        oks = min(max(0, int(content.get("o", 0))), MOST_OKS)
        return seen[: 2 * MOST_EVENTS], NEVER if waited is None else at - _ago(waited), oks
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return [], NEVER, 0


def request_of(text: str) -> int:
    """In which of its writer's requests a note was reported; 0 if it does not say."""
    try:
        return int(json.loads(text)["n"])
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return 0


def _in_short(end: End) -> End:
    number, at, latency, signal, how = end
    if signal is None or signal.retry_after is not None:
        return end
    return number, at, latency, SILENT[signal.outcome], how


def _end_as_list(now: float, number: int, at: float, latency: float, signal: Signal | None, end: str) -> list[Any]:
    line = [number, round(now - at, 6), round(latency, 6), end if signal is None else signal.outcome.value]
    if signal is None or signal is _OK:
        return line
    limits = [[one.dimension, one.limit, one.remaining, one.reset, one.window, one.name] for one in signal.limits]
    return [*line, signal.retry_after, limits, signal.scope]


def _end_from_list(member: str, at: float, line: list[Any]) -> Observation:
    number, ago, latency, outcome = line[:4]
    if len(line) == 4 and outcome in (RELEASED, ABANDONED):
        return Observation(at - _ago(ago), member, int(number), end=outcome)
    if len(line) == 4:
        signal = SILENT[_OUTCOMES[outcome]]
    else:
        retry_after, limits, scope = line[4:]
        signal = Signal(
            outcome=_OUTCOMES[outcome],
            retry_after=None if retry_after is None else _ago(retry_after),
            limits=tuple(_limit_from_list(*limit) for limit in limits[:MOST_LIMITS]),
            scope=None if scope is None else str(scope)[:LONGEST_NAME],
        )
    return Observation(at - _ago(ago), member, int(number), _ago(latency), signal)


def _limit_from_list(dimension: str, limit: Any, remaining: Any, reset: Any, window: Any, name: str) -> Limit:
    return Limit(
        dimension=str(dimension)[:LONGEST_NAME],
        limit=_amount(limit),
        remaining=_amount(remaining),
        reset=None if reset is None else _ago(reset),
        window=None if window is None else _ago(window),
        name=str(name)[:LONGEST_NAME],
    )


def _amount(value: Any) -> float | None:
    if value is None:
        return None
    amount = float(value)
    if not isfinite(amount):
        raise ValueError(f"{amount!r} is not a finite amount")
    return amount


def _ago(seconds: float) -> float:
    return min(max(0.0, float(seconds)), LONGEST_WAIT)
