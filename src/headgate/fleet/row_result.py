"""What became of one row, as columns have it and as it is remembered."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ..batch.input.rows import BrokenRowError
from ..batch.item import Result
from ..batch.target import RowAnswer
from ..core.decision import Outcome
from ..core.row_state import FailureReason, RowState
from ..engine.supervisor import Stop

PACKED = b"1"
"""The first byte of a packed result, for versions to come."""
REPEATS_ALIKE = frozenset((Outcome.INVALID.value, Outcome.TOO_LARGE.value))
"""Failures that are the request's own: calling it again would end in the same way."""


class RowEnd(Enum):
    """What became of a row, as the column ``headgate_state`` says it."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    """It was not done: the run was stopped, or a cap or the memory was full."""


@dataclass(slots=True, kw_only=True)
class RowResult:
    """The columns of one row."""

    response: str | None = None
    """The body of the answer: JSON, as the server sent it."""
    error: str | None = None
    attempts: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None
    state: RowEnd = RowEnd.DONE
    target: str | None = None
    """Which of several targets it was sent to last."""

    def pack(self) -> bytes:
        fields: list[object] = [self.response, self.error, self.attempts, self.tokens_in, self.tokens_out, self.cost]
        fields += [self.state.value] if self.target is None else [self.state.value, self.target]
        text = json.dumps(fields, ensure_ascii=False)
        return PACKED + zlib.compress(text.encode("utf-8", "surrogatepass"), 1)

    @classmethod
    def unpack(cls, packed: bytes) -> RowResult:
        """Raises ``ValueError`` where it is none."""
        if packed[:1] != PACKED:
            raise ValueError("another version")
        try:
            text = zlib.decompress(packed[1:]).decode("utf-8", "surrogatepass")
        except zlib.error as damage:
            raise ValueError(str(damage)) from None
        response, error, attempts, tokens_in, tokens_out, cost, state, *target = json.loads(text)
        return cls(
            response=response,
            error=error,
            attempts=attempts,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost=cost,
            state=RowEnd(state),
            target=target[0] if target else None,
        )


def is_final(done: Result) -> bool:
    """Whether another call would end in the same way, so that it is worth remembering."""
    return done.state is RowState.DONE or (done.attempts > 0 and done.category in REPEATS_ALIKE)


def result_of(done: Result, *, has_prices: bool, targets: Sequence[str] = ()) -> RowResult:
    """``targets``: what they are called; told where there are several."""
    answer = done.value if isinstance(done.value, RowAnswer) and done.error is None else None
    usage = None if answer is None else answer.usage
    error = None
    if done.state is not RowState.DONE:
        error = done.reason
        if isinstance(done.error, BrokenRowError):
            error = str(FailureReason(Outcome.INVALID.value, done.error.what))
    return RowResult(
        response=None if answer is None else answer.body.decode("utf-8", "replace"),
        error=error,
        attempts=done.attempts,
        tokens_in=None if usage is None else usage.input,
        tokens_out=None if usage is None else usage.output,
        cost=done.cost if has_prices else None,
        state=RowEnd.DONE if done.state is RowState.DONE else RowEnd.FAILED,
        target=targets[done.target] if len(targets) > 1 else None,
    )


def stopped(why: Stop | str) -> RowResult:
    return RowResult(error=str(why), state=RowEnd.STOPPED)
