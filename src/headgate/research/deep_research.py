"""Query several providers at once, and return what they have found within a time budget.

    circuit open ───────────────────────> skipped      nothing is sent
    circuit half open or closed ─> pages ─> complete   a half-open one is probed by this very call
                                     │ error, or the time is up
                                     ├──> partial      earlier pages stay
                                     └──> failed       there were none

A provider affects no other's results, and cannot delay the whole for longer than the time budget. Only if every circuit
is open is ``CircuitOpenError`` raised. The manager's listeners get ``all_providers_circuit_open`` either way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..core.decision import CircuitState
from ..errors import CircuitOpenError, ConfigError, Failed, HeadgateError, Refused, TimeBudgetExceededError
from ..formatting import redact
from ..providers.base import LONGEST_QUERY, SearchProvider
from ..providers.results import Page, SearchResult
from ..providers.tavily import TavilyExtractProvider
from ..resilience import ProviderResilienceManager, get_resilience_manager
from ..resilience.manager import KillSwitch
from .rank_fusion import Finding, address_key, merge

log = logging.getLogger("headgate")

MOST_PROVIDERS = 32
"""Providers at once."""
MOST_RESULTS = 1000
LONGEST_BUDGET = 3600.0
LONGEST_REASON = 300
"""Characters."""


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


class DeepResearch:
    """Several providers as one. Safe to use from many tasks at once; cancelling ``gather`` cancels every call.

    A ``TavilyExtractProvider`` among them does not search: it reads the pages of the best findings without a text.
    """

    def __init__(
        self,
        providers: Iterable[SearchProvider],
        *,
        manager: ProviderResilienceManager | None = None,
        time_budget: float = 60.0,
        on_progress: Callable[[ProviderReport], object] | None = None,
    ) -> None:
        """``manager`` is that of its providers; ``on_progress`` is called at each page and each end."""
        self.providers = list(providers)
        names = [provider.name for provider in self.providers]
        if not 1 <= len(names) <= MOST_PROVIDERS or len(set(names)) < len(names):
            raise ConfigError(f"providers={names} must be 1 to {MOST_PROVIDERS}, with different names")
        if all(isinstance(provider, TavilyExtractProvider) for provider in self.providers):
            raise ConfigError(f"providers={names} must include one that searches; these only read found pages")
        if not 0 < time_budget <= LONGEST_BUDGET:
            raise ConfigError(f"time_budget={time_budget!r} must be above 0 and at most {LONGEST_BUDGET:g} seconds")
        self.time_budget = time_budget
        self._manager = get_resilience_manager() if manager is None else manager
        self._on_progress = on_progress

    async def gather(self, question: str, max_results: int = 10) -> ResearchResult:
        """At most ``max_results`` works, best first, and the outcome of each provider.

        Raises ``CircuitOpenError`` if every circuit is open; other failures are in the result.
        """
        import asyncio  # here, because a program without an event loop should not load one

        if not isinstance(question, str) or not 0 < len(question.strip()) <= LONGEST_QUERY:
            raise ConfigError(f"question must be a string of 1 to {LONGEST_QUERY:,} characters")
        if not isinstance(max_results, int) or not 1 <= max_results <= MOST_RESULTS:
            raise ConfigError(f"max_results={max_results!r} must be a whole number from 1 to {MOST_RESULTS:,}")
        started_at = self._manager.clock.now()
        ends_at = asyncio.get_running_loop().time() + self.time_budget
        all_searches = [ProviderSearch(provider) for provider in self.providers]
        searches = [search for search in all_searches if not isinstance(search.provider, TavilyExtractProvider)]
        async with asyncio.TaskGroup() as group:
            for search in searches:
                group.create_task(self._run(search, question, max_results, ends_at))
        self._check_all_circuits_open(searches)
        findings = merge([search.results for search in searches])[:max_results]
        for search in all_searches:
            if search not in searches:
                findings = await self._read(search, findings, ends_at)
        return ResearchResult(
            question=question,
            findings=findings,
            providers=[_with_shares(self._report(search), findings) for search in all_searches],
            seconds=self._manager.clock.now() - started_at,
        )

    async def _run(self, search: ProviderSearch, query: str, wanted: int, ends_at: float) -> None:
        """All pages of a provider, until it fails or the time is up; raises only a cancellation."""
        import asyncio

        provider, clock = search.provider, self._manager.clock
        started_at = clock.now()
        self._progress(search)
        try:
            self._check_circuit(provider.name)
            async with asyncio.timeout_at(ends_at) as limit, aclosing(provider.pages(query, wanted)) as pages:
                async for page in pages:
                    search.add(page)
                    self._progress(search)
        except TimeoutError as error:
            spent = f"did not finish within the time budget of {self.time_budget:g} s"
            search.error = TimeBudgetExceededError(provider.name, spent) if limit.expired() else error
        except Exception as error:
            search.error = error
            if not isinstance(error, HeadgateError):  # a bug of the provider; its message may contain anything
                log.warning("%s: research failed with %s", provider.name, type(error).__name__)
        search.ended, search.seconds = True, clock.now() - started_at
        self._progress(search)

    async def _read(self, search: ProviderSearch, findings: list[Finding], ends_at: float) -> list[Finding]:
        """The findings, with a text for those without one."""
        unread_urls = [each.url for each in findings if not each.content and len(each.url.split()) == 1]
        unread_urls = unread_urls[: search.provider.most_results]
        if not unread_urls:
            search.ended = True
            return findings
        await self._run(search, " ".join(unread_urls), len(unread_urls), ends_at)
        texts = {address_key(result.url): result for result in search.results if result.content}
        read = ((each, None if each.content else texts.get(address_key(each.url))) for each in findings)
        return [replace(each, results=(*each.results, text)) if text else each for each, text in read]

    def _check_circuit(self, name: str) -> None:
        """Raises ``CircuitOpenError`` now, instead of after a wait for a credential that could not be used.

        This takes no probe: if the circuit is half open, the call that follows is the probe.
        """
        if KillSwitch(name).is_enabled() and not self._manager.is_provider_available(name):
            self._manager.limiter.acquire(name, max_wait=0).abandon()

    def _check_all_circuits_open(self, searches: list[ProviderSearch]) -> None:
        names = [search.provider.name for search in searches]
        refused = all(search.outcome == "skipped" for search in searches)
        if refused or all(self._manager.get_breaker_state(name) is CircuitState.OPEN for name in names):
            joined = ",".join(names)
            log.warning("every circuit is open: %s", joined)
            self._manager.emit("all_providers_circuit_open", joined, breaker_state=CircuitState.OPEN.value)
        if refused:
            waits = [wait for search in searches if (wait := getattr(search.error, "retry_after", None)) is not None]
            reason = "every circuit is open, so no provider can be queried"
            raise CircuitOpenError(", ".join(names), reason, min(waits, default=None))

    def _report(self, search: ProviderSearch) -> ProviderReport:
        name, error = search.provider.name, search.error
        return ProviderReport(
            provider=name,
            outcome=search.outcome,
            found=len(search.results),
            pages=search.pages,
            seconds=search.seconds,
            breaker_state=self._manager.get_breaker_state(name).value,
            error_type=search.error_type,
            reason=_error_text(error) if error else _unread_text(search.unread),
            retry_after=getattr(error, "retry_after", None),
        )

    def _progress(self, search: ProviderSearch) -> None:
        """Call the listener; one that raises affects no result."""
        if self._on_progress is not None:
            try:
                self._on_progress(self._report(search))
            except Exception:
                log.exception("a listener failed on the progress of %s", search.provider.name)


@dataclass(slots=True, eq=False)
class ProviderSearch:
    """The search of one provider, so far."""

    provider: SearchProvider
    results: list[SearchResult] = field(default_factory=list)
    pages: int = 0
    unread: int = 0
    """Addresses that could not be read."""
    error: Exception | None = None
    ended: bool = False
    seconds: float = 0.0

    def add(self, page: Page) -> None:
        self.results += page.results
        self.unread += len(page.failed)
        self.pages += 1

    @property
    def outcome(self) -> str:
        if self.error is None:
            return "complete" if self.ended else "asking"
        if self.pages:
            return "partial"
        return "skipped" if isinstance(self.error, CircuitOpenError) else "failed"

    @property
    def error_type(self) -> str:
        if self.error is None:
            return ""
        if isinstance(self.error, Refused | Failed):
            return self.error.code
        return "configuration" if isinstance(self.error, ConfigError) else "unexpected"


def _error_text(error: Exception) -> str:
    """Why, without secrets."""
    if isinstance(error, Refused | Failed):
        answered = error.__cause__  # of the last attempt, before a retry was refused
        before = f"{answered.reason.rstrip('.')}; " if isinstance(answered, Failed) else ""
        return redact(before + error.reason)[:LONGEST_REASON]
    if isinstance(error, HeadgateError):
        return redact(str(error))[:LONGEST_REASON]
    return f"failed with an internal error ({type(error).__name__})"


def _unread_text(addresses: int) -> str:
    return f"{addresses} of the pages could not be read" if addresses else ""


def _with_shares(report: ProviderReport, findings: list[Finding]) -> ProviderReport:
    """The report, with its share of the findings."""
    by = [{result.provider for result in finding.results} for finding in findings if finding.results]
    return replace(
        report,
        kept=sum(report.provider in names for names in by),
        alone=sum(names == {report.provider} for names in by),
    )
