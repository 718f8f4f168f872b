"""The result of research: works, and the outcome of each provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from ..providers.results import SearchResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One work, however many providers found it."""

    results: tuple[SearchResult, ...]
    """The results for it, best rank first."""
    places: Mapping[str, int]
    """Its rank, from 1, among the results of each provider that found it."""
    score: float
    """Higher where more providers rank it early; see ``rank_fusion``."""

    @property
    def title(self) -> str:
        return next((result.title for result in self.results if result.title), self.url)

    @property
    def url(self) -> str:
        return self.results[0].url

    @property
    def snippet(self) -> str:
        return next((result.snippet for result in self.results if result.snippet), "")

    @property
    def content(self) -> str | None:
        """The text itself, from the first that has it."""
        return next((result.content for result in self.results if result.content), None)

    @property
    def published_at(self) -> datetime | None:
        return next((result.published_at for result in self.results if result.published_at), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderReport:
    """What one provider returned, and why it was not more. Has no secret."""

    provider: str
    outcome: str
    """asking (in progress), complete, partial (failed midway), failed, or skipped (its circuit is open)."""
    found: int = 0
    kept: int = 0
    """Findings that it has found ..."""
    alone: int = 0
    """... and no other provider."""
    pages: int = 0
    seconds: float = 0.0
    breaker_state: str = "closed"
    """Of its circuit at the end: closed, open or half_open."""
    error_type: str = ""
    """circuit_open, no_credential, rate_limit, auth, time_budget, ...; empty if nothing went wrong."""
    reason: str = ""
    """A sentence."""
    retry_after: float | None = None
    """Seconds until a retry makes sense, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResearchResult:
    question: str
    findings: list[Finding]
    providers: list[ProviderReport]
    """In the order in which they were given."""
    seconds: float

    @property
    def is_complete(self) -> bool:
        """Whether every provider returned all its results."""
        return all(report.outcome == "complete" for report in self.providers)

    @property
    def breaker_states(self) -> dict[str, str]:
        return {report.provider: report.breaker_state for report in self.providers}

    @property
    def metadata(self) -> dict[str, Any]:
        """All but the findings, ready for JSON."""
        return {
            "question": self.question,
            "seconds": round(self.seconds, 3),
            "breaker_states": self.breaker_states,
            "providers": [
                {**asdict(report), "seconds": round(report.seconds, 3), "retry_after": _rounded(report.retry_after)}
                for report in self.providers
            ],
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
