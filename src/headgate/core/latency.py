"""Know how long answers take, in a few hundred bytes per key.

Two views of the same answers: a moving average that follows, and the 95th percentile
of the latest ``MOST_SAMPLES``, which shows the slow ones that an average hides. Samples
are kept as 4-byte floats in a ring that grows only as answers come in; sorting waits
until it is read.
"""

from __future__ import annotations

from array import array

from .decision import LONGEST_WAIT

WEIGHT = 0.2
"""How much the newest answer moves the average."""

MOST_SAMPLES = 64
"""How many of the latest answers the percentile looks at; a power of two."""

_NEXT_PLACE = MOST_SAMPLES - 1
_NO_SAMPLES = array("f")


class Latency:
    """What a key's answers took, in seconds."""

    __slots__ = ("_samples", "count", "ewma")

    def __init__(self) -> None:
        self.ewma = 0.0
        """The moving average; 0 before the first answer."""
        self.count = 0
        """Answers seen so far."""
        self._samples = _NO_SAMPLES

    def add(self, seconds: float) -> None:
        """Take one answer's time. What cannot be one (negative, NaN, above 31 days) is ignored."""
        if 0.0 <= seconds <= LONGEST_WAIT:
            count, samples = self.count, self._samples
            if count >= MOST_SAMPLES:
                self.ewma += WEIGHT * (seconds - self.ewma)
                samples[count & _NEXT_PLACE] = seconds
            elif count:
                self.ewma += WEIGHT * (seconds - self.ewma)
                samples.append(seconds)
            else:
                self.ewma = seconds
                self._samples = array("f", (seconds,))
            self.count = count + 1  # at last: a signal in between leaves a sample too many, never one too few

    def p95(self) -> float:
        """The time that 95 % of the latest answers did not exceed (nearest rank, 7 digits); 0 before the first."""
        ranked = sorted(self._samples)
        return ranked[(95 * len(ranked) + 99) // 100 - 1] if ranked else 0.0

    def to_state(self) -> tuple[float, int, bytes] | tuple[()]:
        """Small, for setting an idle key aside: empty if there was no answer yet."""
        return (
            () if not self.count else (self.ewma, self.count, self._samples[: min(self.count, MOST_SAMPLES)].tobytes())
        )

    @classmethod
    def from_state(cls, state: tuple[float, int, bytes] | tuple[()]) -> Latency:
        latency = cls()
        if state:
            samples = array("f")
            samples.frombytes(state[2])
            if not 1 <= len(samples) == min(state[1], MOST_SAMPLES):
                raise ValueError(f"{len(samples)} samples are no state of a latency with 1 to {MOST_SAMPLES}")
            latency.ewma, latency.count, latency._samples = state[0], state[1], samples
        return latency
