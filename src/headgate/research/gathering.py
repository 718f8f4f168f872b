"""Ask several providers side by side, and make the most of what they can say in the time there is.

    circuit open ───────────────────────> skipped      nothing is sent
    circuit half open or closed ─> pages ─> complete   a half-open one is probed by this very call
                                     │ error, or the time is up
                                     ├──> partial      earlier pages stay
                                     └──> failed       there were none

No provider can spoil another's results, and none can hold up the whole for longer than the time budget. Only when
every circuit is open is there nothing to return: then ``CircuitOpenError`` is raised. Whoever listens to
the manager hears of it either way, as ``all_providers_circuit_open``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from ..core.decision import CircuitState
from ..errors import (
    AuthenticationError,
    CircuitOpenError,
    ConfigError,
    Failed,
    HeadgateError,
    NoCredentialError,
    ProviderError,
    RateLimitError,
    Refused,
    TimeBudgetExceededError,
    WaitTooLongError,
)
from ..providers.base import LONGEST_QUERY, SearchProvider
from ..providers.results import Page, SearchResult
from ..providers.tavily_extract import TavilyExtractProvider
from ..resilience import ProviderResilienceManager, get_resilience_manager
from ..resilience.switch import is_on, switch_of
from ..wire.redaction import redact
from .findings import Finding, ProviderReport, ResearchResult
from .merging import address_key, merge

log = logging.getLogger("headgate")

MOST_PROVIDERS = 32
"""How many may be asked side by side."""
MOST_RESULTS = 1000
LONGEST_BUDGET = 3600.0
LONGEST_REASON = 300
"""Characters."""

_ERROR_TYPES: tuple[tuple[type[Exception], str], ...] = (
    (CircuitOpenError, "circuit_open"),
    (NoCredentialError, "no_credential"),
    (TimeBudgetExceededError, "time_budget"),
    (WaitTooLongError, "wait_too_long"),
    (RateLimitError, "rate_limit"),
    (AuthenticationError, "auth"),
    (ProviderError, "provider"),
    (ConfigError, "configuration"),
)


class DeepResearch:
    """Several providers as one. Safe to use from many tasks at once; cancelling ``gather`` cancels every call.

    A ``TavilyExtractProvider`` among them is not asked the question: it reads the pages of the best findings of which
    no other provider gave the text.
    """

    def __init__(
        self,
        providers: Iterable[SearchProvider],
        *,
        manager: ProviderResilienceManager | None = None,
        time_budget: float = 60.0,
        on_progress: Callable[[ProviderReport], object] | None = None,
    ) -> None:
        """``manager`` is the one its providers were given; ``on_progress`` hears of each page and each end."""
        self.providers = list(providers)
        names = [provider.name for provider in self.providers]
        if not 1 <= len(names) <= MOST_PROVIDERS or len(set(names)) < len(names):
            raise ConfigError(f"providers={names} must be 1 to {MOST_PROVIDERS}, each of another name")
        if all(isinstance(provider, TavilyExtractProvider) for provider in self.providers):
            raise ConfigError(
                f"providers={names} must hold one that answers questions; this one reads what others find"
            )
        if not 0 < time_budget <= LONGEST_BUDGET:
            raise ConfigError(f"time_budget={time_budget!r} must be within 0 and {LONGEST_BUDGET:g} seconds")
        self.time_budget = time_budget
        self._manager = get_resilience_manager() if manager is None else manager
        self._on_progress = on_progress

    async def gather(self, question: str, max_results: int = 10) -> ResearchResult:
        """At most ``max_results`` works, best first, and what became of each provider.

        Raises ``CircuitOpenError`` if every circuit is open; otherwise what fails is told in the result.
        """
        import asyncio  # here, because a program without an event loop should not load one

        if not isinstance(question, str) or not 0 < len(question.strip()) <= LONGEST_QUERY:
            raise ConfigError(f"question must be a text of 1 to {LONGEST_QUERY:,} characters")
        if not isinstance(max_results, int) or not 1 <= max_results <= MOST_RESULTS:
            raise ConfigError(f"max_results={max_results!r} must be a whole number within 1 and {MOST_RESULTS:,}")
        started_at = self._manager.clock.now()
        ends_at = asyncio.get_running_loop().time() + self.time_budget
        harvests = [Harvest(provider) for provider in self.providers]
        searches = [harvest for harvest in harvests if not isinstance(harvest.provider, TavilyExtractProvider)]
        async with asyncio.TaskGroup() as group:
            for harvest in searches:
                group.create_task(self._harvest(harvest, question, max_results, ends_at))
        self._tell_if_nobody_is_left(searches)
        findings = merge([harvest.results for harvest in searches])[:max_results]
        for harvest in harvests:
            if harvest not in searches:
                findings = await self._read(harvest, findings, ends_at)
        return ResearchResult(
            question=question,
            findings=findings,
            providers=[_with_parts(self._report(harvest), findings) for harvest in harvests],
            seconds=self._manager.clock.now() - started_at,
        )

    async def _harvest(self, harvest: Harvest, query: str, wanted: int, ends_at: float) -> None:
        """All a provider has to say, until it fails or the time is up; raises nothing but a cancellation."""
        import asyncio

        provider, clock = harvest.provider, self._manager.clock
        started_at = clock.now()
        self._progress(harvest)
        try:
            self._check_circuit(provider.name)
            async with asyncio.timeout_at(ends_at) as limit, aclosing(provider.pages(query, wanted)) as pages:
                async for page in pages:
                    harvest.take(page)
                    self._progress(harvest)
        except TimeoutError as error:
            spent = f"did not come to an end within the time budget of {self.time_budget:g} s"
            harvest.error = TimeBudgetExceededError(provider.name, spent) if limit.expired() else error
        except Exception as error:
            harvest.error = error
            if not isinstance(error, HeadgateError):  # a provider's own bug; its words may hold anything
                log.warning("%s: broke off research with %s", provider.name, type(error).__name__)
        harvest.ended, harvest.seconds = True, clock.now() - started_at
        self._progress(harvest)

    async def _read(self, harvest: Harvest, findings: list[Finding], ends_at: float) -> list[Finding]:
        """The findings, with the text of those that had none."""
        bare = [each.url for each in findings if not each.content and len(each.url.split()) == 1]
        bare = bare[: harvest.provider.most_results]
        if not bare:
            harvest.ended = True
            return findings
        await self._harvest(harvest, " ".join(bare), len(bare), ends_at)
        texts = {address_key(result.url): result for result in harvest.results if result.content}
        read = ((each, None if each.content else texts.get(address_key(each.url))) for each in findings)
        return [replace(each, results=(*each.results, text)) if text else each for each, text in read]

    def _check_circuit(self, name: str) -> None:
        """Raises ``CircuitOpenError``, now rather than after a wait for a credential that could not be used.

        Looking takes no probe: if the circuit is half open, the call to come is the probe.
        """
        if is_on(switch_of(name)) and not self._manager.is_provider_available(name):
            self._manager.limiter.acquire(name, max_wait=0).abandon()

    def _tell_if_nobody_is_left(self, searches: list[Harvest]) -> None:
        names = [harvest.provider.name for harvest in searches]
        refused = all(harvest.outcome == "skipped" for harvest in searches)
        if refused or all(self._manager.get_breaker_state(name) is CircuitState.OPEN for name in names):
            told = ",".join(names)
            log.warning("every circuit is open: %s", told)
            self._manager.tell("all_providers_circuit_open", told, breaker_state=CircuitState.OPEN.value)
        if refused:
            waits = [wait for harvest in searches if (wait := getattr(harvest.error, "retry_after", None)) is not None]
            reason = "no provider can be asked, every circuit is open"
            raise CircuitOpenError(", ".join(names), reason, min(waits, default=None))

    def _report(self, harvest: Harvest) -> ProviderReport:
        name, error = harvest.provider.name, harvest.error
        return ProviderReport(
            provider=name,
            outcome=harvest.outcome,
            found=len(harvest.results),
            pages=harvest.pages,
            seconds=harvest.seconds,
            breaker_state=self._manager.get_breaker_state(name).value,
            error_type=harvest.error_type,
            reason=_told(error) if error else _unread(harvest.unread),
            retry_after=getattr(error, "retry_after", None),
        )

    def _progress(self, harvest: Harvest) -> None:
        """Tell whoever listens; a listener that raises costs nobody a result."""
        if self._on_progress is not None:
            try:
                self._on_progress(self._report(harvest))
            except Exception:
                log.exception("a listener failed on the progress of %s", harvest.provider.name)


@dataclass(slots=True, eq=False)
class Harvest:
    """What one provider has brought so far."""

    provider: SearchProvider
    results: list[SearchResult] = field(default_factory=list)
    pages: int = 0
    unread: int = 0
    """Addresses that a reader could not read."""
    error: Exception | None = None
    ended: bool = False
    seconds: float = 0.0

    def take(self, page: Page) -> None:
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
        return next((word for kind, word in _ERROR_TYPES if isinstance(self.error, kind)), "unexpected")


def _told(error: Exception) -> str:
    """Why, in words that name no secret."""
    if isinstance(error, Refused | Failed):
        answered = error.__cause__  # the last attempt, of a call that was then refused another
        before = f"{answered.reason.rstrip('.')}; " if isinstance(answered, Failed) else ""
        return redact(before + error.reason)[:LONGEST_REASON]
    if isinstance(error, HeadgateError):
        return redact(str(error))[:LONGEST_REASON]
    return f"broke off with an error of its own ({type(error).__name__})"


def _unread(addresses: int) -> str:
    return f"{addresses} of the pages could not be read" if addresses else ""


def _with_parts(report: ProviderReport, findings: list[Finding]) -> ProviderReport:
    """The report, with its part in the findings."""
    by = [{result.provider for result in finding.results} for finding in findings if finding.results]
    return replace(
        report,
        kept=sum(report.provider in names for names in by),
        alone=sum(names == {report.provider} for names in by),
    )
