"""The base of every provider: a leased key, pages of results, checked answers, and the gate around each call.

    search ─> pages ─> ask(question) ─> [ the gate: pace, circuit, retries, credential ]
                                              │ each attempt
                                              v
                      read(answer) <── check <── send(signed(request, key))

A provider defines four things: its name, its address, how a question is asked and how an answer is read. It raises
``RateLimitError``, ``AuthenticationError`` or ``ProviderError`` for calls that were sent, and a ``Refused`` for those
that were not.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from .. import wire
from ..core.decision import UNKNOWN, Outcome
from ..credentials import CredentialCoordinator
from ..errors import (
    AuthenticationError,
    ConfigError,
    Failed,
    NoCredentialError,
    ProviderError,
    RateLimitError,
    Refused,
    TimeBudgetExceededError,
    WaitTooLongError,
)
from ..exchange import USUAL_HEADERS, Answer, NoAnswerError, UnfitAnswerError, exchange, new_session
from ..formatting import HIDDEN, redact
from ..resilience import (
    GLOBAL_DEFAULTS,
    PROVIDER_CONFIGS,
    ErrorClassification,
    ProviderResilienceConfig,
    classify_error,
    execute_with_resilience,
)
from ..resilience.context import check_credentials
from .results import Json, Page, SearchResult

if TYPE_CHECKING:
    import aiohttp

    from ..resilience.context import CallContext, Credentials
    from ..resilience.manager import ProviderResilienceManager

MOST_PAGES = 50
"""Calls of one search, however many further pages a server announces."""
LONGEST_QUERY = 100_000
"""Characters."""

LARGEST_ANSWER = 8 << 20
"""Bytes, decompressed; a page of search results is a thousandth of it, extracted pages a tenth."""
LONGEST_MESSAGE = 200
"""Characters of a server's error message that are repeated."""

_RAISED: dict[Outcome, type[Failed]] = {
    Outcome.RATE_LIMITED: RateLimitError,
    Outcome.QUOTA_EXHAUSTED: RateLimitError,
    Outcome.CAPACITY: RateLimitError,
    Outcome.SPEND: AuthenticationError,
    Outcome.AUTH: AuthenticationError,
    Outcome.KEY_DEAD: AuthenticationError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str = "GET"
    path: str
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Json | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def with_header(self, name: str, value: str) -> Self:
        return replace(self, headers={**self.headers, name: value})

    def with_query(self, name: str, value: str) -> Self:
        return replace(self, query={**self.query, name: value})


@dataclass(frozen=True, slots=True)
class Question:
    """What one call should return."""

    query: str
    wanted: int
    """How many more results are wanted."""
    start: int = 0
    """How many came before, by the provider's own count."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The API's own parameters, as the caller gave them."""


class SearchProvider(ABC):
    """One search API. Safe to use from many tasks at once.

    ``await provider.search(...)`` opens and closes its connections; ``async with provider:`` keeps them open
    between searches.
    """

    name: ClassVar[str]
    address: ClassVar[str]
    """The URL of the real API; ``base_url`` replaces it."""
    most_results: ClassVar[int]
    """Most results of one query; a larger request returns this many."""
    key_variable: ClassVar[str] = ""
    """The usual environment variable of the key; nothing here reads it."""
    needs_key: ClassVar[bool] = True

    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        credentials: Credentials | None = None,
        manager: ProviderResilienceManager | None = None,
        session: aiohttp.ClientSession | None = None,
        timeout: float = 30.0,
        resilience_config: ProviderResilienceConfig | None = None,
    ) -> None:
        """``credentials`` is a ``CredentialCoordinator``, for several keys. ``timeout`` is for each attempt."""
        if api_key is not None and credentials is not None:
            raise ConfigError(f"{self.name}: pass api_key or credentials, not both")
        if self.needs_key and not api_key and credentials is None:
            raise ConfigError(f"{self.name}: needs an api_key or credentials (usually from {self.key_variable})")
        if credentials is not None:
            check_credentials(credentials)
        if not 0 < timeout < UNKNOWN:
            raise ConfigError(f"{self.name}: timeout={timeout!r} must be a number of seconds above 0")
        self.base_url = (base_url or self.address).rstrip("/")
        if not self.base_url.startswith(("http://", "https://")) or not {"@", "?", "#"}.isdisjoint(self.base_url):
            raise ConfigError(f"{self.name}: base_url must be http://... or https://..., without credentials or query")
        if api_key:  # a pool of one, so that a key whose quota is used up rests until it resets
            credentials = CredentialCoordinator([api_key], provider=self.name)
        self._credentials = credentials
        self._manager = manager
        self._session = session
        self._own_session: aiohttp.ClientSession | None = None
        self._blocks = 0
        self._timeout = timeout
        self._config = resilience_config

    # ------------------------------------------------------------------ what a provider defines

    @abstractmethod
    def ask(self, question: Question) -> Request:
        """The request for this question, without the key."""

    @abstractmethod
    def read(self, answer: Json, question: Question) -> Page:
        """The results; ``next_start`` is the ``start`` of the next question."""

    def signed(self, request: Request, key: str) -> Request:
        """The request with the key where this API expects it."""
        return request.with_header("Authorization", f"Bearer {key}")

    def classify_error(self, response: object | None, exception: Exception | None) -> ErrorClassification | None:
        """What an error means: the usual table. Override it where an API differs."""
        return classify_error(response, exception)

    @property
    def resilience_config(self) -> ProviderResilienceConfig:
        """How calls are paced and retried: the given config, else that of ``PROVIDER_CONFIGS``."""
        return self._config or PROVIDER_CONFIGS.get(self.name) or GLOBAL_DEFAULTS

    @property
    def credentials(self) -> CredentialCoordinator | None:
        """Its keys, if a coordinator has them: ``provider.credentials.free("key-1")`` frees a retired one."""
        return self._credentials if isinstance(self._credentials, CredentialCoordinator) else None

    # ------------------------------------------------------------------ searching

    async def search(self, query: str, max_results: int = 10, **options: Any) -> list[SearchResult]:
        """At most ``max_results``, best first; ``options`` are the API's own parameters."""
        results: list[SearchResult] = []
        async with aclosing(self.pages(query, max_results, **options)) as pages:
            async for page in pages:
                results += page.results
        return results

    async def pages(self, query: str, max_results: int = 10, **options: Any) -> AsyncGenerator[Page]:
        """The same page by page: the first ones stay if a later one fails."""
        if not isinstance(query, str) or not 0 < len(query.strip()) <= LONGEST_QUERY:
            raise ConfigError(f"{self.name}: query must be a string of 1 to {LONGEST_QUERY:,} characters")
        if not (isinstance(max_results, int) and max_results >= 1):
            raise ConfigError(f"{self.name}: max_results={max_results!r} must be a whole number, 1 or more")
        wanted, start = min(max_results, self.most_results), 0
        async with self._session_for_search() as session:
            for _ in range(MOST_PAGES):
                question = Question(query, wanted, start, options)
                page = self.read(await self._call(session, self.ask(question)), question)
                found = [result for result in page.results if result.url][:wanted]
                yield Page(found, page.next_start, page.failed)
                wanted -= len(found)
                brought = page.results or page.failed
                if not (wanted and brought and start < (page.next_start or 0) < self.most_results):
                    return  # beyond its limit an API answers with an error, though it announces a next page
                start = page.next_start or 0

    async def __aenter__(self) -> Self:
        if self._own_session is None:
            self._own_session = new_session()
        self._blocks += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocks -= 1
        if not self._blocks and self._own_session is not None:
            own, self._own_session = self._own_session, None
            await own.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.base_url}>"

    # ------------------------------------------------------------------ one call

    async def _call(self, session: aiohttp.ClientSession, request: Request) -> Json:
        """The answer to one request, after as many attempts as the gate allows."""

        async def attempt(context: CallContext) -> Answer:
            key = context.credential or ""
            signed = self.signed(request, key) if key else request
            answer = await self._send(session, signed, key)
            self._check(answer, key)
            return answer

        try:
            answer = await execute_with_resilience(
                attempt,
                self.name,
                credentials=self._credentials,
                classify_error=self.classify_error,
                manager=self._manager,
                resilience_config=self.resilience_config,
            )
        except (NoCredentialError, WaitTooLongError, TimeBudgetExceededError) as refusal:
            failure = self._failure_before(refusal)
            if failure is None:
                raise
            raise failure from None
        except (NoAnswerError, UnfitAnswerError) as error:
            raise ProviderError(self.name, error.reason) from None
        except TimeoutError:
            raise ProviderError(self.name, "did not answer within the timeout of an attempt") from None
        body = json_of(answer)
        if body is None:
            raise ProviderError(self.name, f"answered {answer.status_code} without a JSON object")
        return body

    async def _send(self, session: aiohttp.ClientSession, request: Request, key: str) -> Answer:
        """Raises as ``exchange`` does. The usual headers go along, since the session may be the caller's own."""
        headers = {**USUAL_HEADERS, **request.headers}
        body = None
        if request.body is not None:
            body = json.dumps(request.body).encode()
            headers["Content-Type"] = "application/json"
        return await exchange(
            session,
            request.method,
            self.base_url + request.path,
            body,
            headers,
            query=request.query,
            name=self.name,
            within=self._timeout,
            largest=LARGEST_ANSWER,
            secrets=(key,),
        )

    def _failure_before(self, refusal: Refused) -> Failed | None:
        """The provider's answer before a retry was refused, if that says more than the refusal."""
        failure = refusal.__cause__
        if not isinstance(failure, RateLimitError | AuthenticationError) or refusal.retry_after is None:
            return failure if isinstance(failure, Failed) and isinstance(refusal, NoCredentialError) else None
        retry_after = max(failure.retry_after or 0.0, refusal.retry_after)
        again = type(failure)(self.name, failure.reason, status_code=failure.status_code, retry_after=retry_after)
        again.response = failure.response
        return again

    def _check(self, answer: Answer, key: str) -> None:
        """Raise the error that the answer means, if any; a 200 may have an error inside."""
        status, headers, body = wire.facts_of(answer)
        signal = wire.read(status, headers, body, wall=time.time(), url=self.base_url)
        if signal.outcome is Outcome.OK:
            if status >= 300:
                what = f"answered {status}, a redirect, which is not followed; check base_url"
                raise UnfitAnswerError(self.name, what)
            return
        detail = read_error(answer, key) or signal.reason
        message = f"answered {status} ({signal.outcome.value.replace('_', ' ')})" + (f": {detail}" if detail else "")
        kind = _RAISED.get(signal.outcome, ProviderError)
        failure = kind(self.name, message, status_code=status, retry_after=signal.retry_after)
        failure.response = answer  # where the gate finds headers and body
        raise failure

    @asynccontextmanager
    async def _session_for_search(self) -> AsyncIterator[aiohttp.ClientSession]:
        kept = self._session or self._own_session
        if kept is not None:
            yield kept
            return
        async with new_session() as session:
            yield session


def json_of(answer: Answer) -> Json | None:
    """The JSON object it holds, or None."""
    try:
        value = json.loads(answer.content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_error(answer: Answer, secret: str) -> str:
    """The server's error message: short, printable and without the secret."""
    message = wire.error_sentence(answer.content)
    shown = redact(message.replace(secret, HIDDEN) if secret else message)
    return shown if len(shown) <= LONGEST_MESSAGE else f"{shown[: LONGEST_MESSAGE - 3]}..."
