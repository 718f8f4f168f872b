"""Notice that nobody answers any more.

A circuit that is open still lets a probe through now and then, so a run against a server that has vanished never
stands quite still: it would lose a row to each few probes, for as long as it is left alone.
"""

from __future__ import annotations

from ..clock import Clock
from ..core.words import span
from .config import BatchConfig
from .report import BatchReport

NEVER_ANSWERED = 60.0
"""Seconds after which a run is stopped that has had no answer at all."""
FEWEST_FAILURES = 5
_NO_FAULT_OF_ROWS = ("transient", "overloaded")


class Silence:
    def __init__(self, config: BatchConfig, timeout: float, clock: Clock) -> None:
        self._clock = clock
        self._patience = None if config.standstill is None else max(config.standstill, 2 * timeout)
        self._since = clock.now()
        """When a row was last done, or the run began."""
        self._progress = 0
        self._answers = 0
        self._unanswered = 0
        self.last = ""
        """What went wrong with the last call that had no answer."""

    @property
    def is_silent(self) -> bool:
        """Whether the last call had no answer."""
        return self._unanswered > 0

    def heard(self) -> None:
        """An answer came, good or bad."""
        self._answers += 1
        self._unanswered = 0

    def heard_nothing(self, why: str) -> None:
        self._unanswered += 1
        self.last = why

    def trouble(self, report: BatchReport, *, is_paused: bool = False) -> str:
        """Why it is no use to go on; empty while it is."""
        now = self._clock.now()
        progress = report.done + report.dead - sum(report.reasons[word] for word in _NO_FAULT_OF_ROWS)
        if progress != self._progress or not report.calls or is_paused:
            self._progress, self._since = progress, now
        if self._patience is None:
            return ""
        waited = now - self._since
        if not self._answers and self._unanswered >= FEWEST_FAILURES and waited >= NEVER_ANSWERED:
            return f"silent: {self.last}"
        if waited >= self._patience:
            hint = f" ({self.last})" if self._unanswered else ""
            return f"silent: no row was done for {span(waited)}{hint}"
        return ""
