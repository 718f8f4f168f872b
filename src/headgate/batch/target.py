"""Send one row, and make its line of output of the answer: the worker of ``headgate run``.

    row ─> request ─> url, key, Idempotency-Key ─> exchange ─> ctx.report: what it means, what it cost ─> RowAnswer
    Result, once nothing more is to be sent ─> a line

Whatever the server answers is an answer, an error too: what is to become of the row is the runner's to
decide, by what was reported. Only what is no answer at all is raised.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, cast
from urllib.parse import urlencode

from ..core.decision import Outcome
from ..core.fallback import MoveReason
from ..core.row_state import FailureReason
from ..errors import AuthenticationError, ConfigError
from ..exchange import (
    Answer,
    NoAnswerError,
    NoAnswerInTimeError,
    UnfitAnswerError,
    exchange,
    new_session,
    why_no_answer,
)
from ..formatting import is_credential
from ..resilience.fallback import Fallback
from ..wire.fallback import adapt_bytes, refusal_in
from ..wire.parse import has_own_tiers, vendor_in, vendor_of
from ..wire.token_usage import (
    COUNTED_AT_ADMISSION,
    NO_TOKENS,
    TokenCounts,
    Usage,
    admitted,
    estimate,
    is_silent,
    output_limit,
    settled,
    template_of,
    usage_of,
)
from .endpoints import InvalidPathError, is_header
from .endpoints import TargetConfig as TargetConfig
from .input.rows import BrokenRowError, InputRow
from .input.shapes import Request, parse_json
from .item import Result
from .ledger import Row
from .output import answer_line, dead_line, row_id
from .pricing import Prices

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

    from ..core.signal import Signal
    from ..limiter.permit import Permit


T = TypeVar("T")
MOST_URLS = 1_000
LONGEST_REQUEST_ID = 200
MOST_LOOKS = 20
"""Answers of an unknown address that are looked at for the vendor's headers."""
_COUNTS_AS = {"anthropic": "anthropic", "azure": "azure-openai"}
"""Whose way of counting tokens a dialect has."""
_WITH_EFFECT = ("POST", "PUT", "PATCH", "DELETE")


class RowContext(Protocol):
    """What a worker is handed with its row, as far as it is used here."""

    @property
    def credential(self) -> str | None: ...
    @property
    def remaining(self) -> float | None: ...
    @property
    def permit(self) -> Permit | None: ...
    def report(self, answer: object = None, *, cost: float | Mapping[str, float] | None = None) -> Outcome: ...
    def convert(self, change: Callable[[Signal], Signal]) -> None: ...
    def charge(self, *, tokens: float = 0, cost: float = 0.0) -> None: ...
    def note_refusal(self, why: MoveReason) -> None: ...


class RowAnswer(NamedTuple):
    """What the server answered to one row, an error included."""

    status_code: int
    request_id: str
    body: bytes
    """JSON, as the server sent it."""
    usage: Usage | None
    """The tokens it took, where the answer says so."""


class Target:
    """``async with Target(config) as target:`` keeps its connections open; ``target.fetch(row, ctx)`` sends a row."""

    def __init__(
        self,
        config: TargetConfig,
        *,
        prices: Prices | None = None,
        fallback: Fallback | None = None,
    ) -> None:
        """``fallback``: rows were made for another target, and are adapted."""
        self.config = config
        self._fallback = fallback
        self._adapted: tuple[InputRow, Request] | None = None
        """The row that was adapted last: it is needed a few times."""
        self.endpoint = config.endpoint
        self.prices = (prices or Prices()).at("azure" if self.endpoint.dialect == "azure" else self.endpoint.name)
        self.for_run("")
        if self.endpoint.key_header.lower() in map(str.lower, config.headers):
            raise ConfigError(
                f"target headers: {self.endpoint.key_header!r} carries the key; name where it is with --keys"
            )
        self._fixed = {**dict(self.endpoint.headers), **config.headers}
        self._with_body = {**self._fixed, "Content-Type": "application/json"}
        self._is_silent = is_silent(config.path or self.endpoint.path)
        self._session: aiohttp.ClientSession | None = None
        self._timeout = SharedTimeout()
        self._hidden = (*config.hidden, *(value for name, value in config.headers.items() if is_credential(name)))
        self._vendor = vendor_of(self.endpoint.base_url) or _COUNTS_AS.get(config.dialect, "")
        """Whose way of counting tokens it is; of an address that is not known, found out by the first answers."""
        self._looks_left = MOST_LOOKS
        self._tokens = TokenCounts()
        self._urls: dict[str, URL] = {}
        """Of the paths that rows have asked for; most ask for the same."""
        try:
            self._url("")
        except InvalidPathError as error:
            raise ConfigError(f"target path={config.path[:80]!r}: {error}") from None

    def for_run(self, run_id: str) -> None:
        """Send rows of this run. Its id is the same whenever the batch goes on: with a row's place and content it makes
        the key by which a server can tell that it has done this row before."""
        label = "" if self._fallback is None else f"\n{self.endpoint.name}/{self._fallback.model}"
        self._salt = blake2b(f"{run_id}{label}".encode()).digest()

    @property
    def identity(self) -> dict[str, str]:
        """What must stay the same from run to run for the results to belong together."""
        return {"target": self.url("")}

    def url(self, path: str) -> str:
        """Where a row with this path goes. Raises ``InvalidPathError``."""
        url = self.endpoint.url(path or self.config.path)
        if not self.config.query:
            return url
        return f"{url}{'&' if '?' in url else '?'}{urlencode(self.config.query)}"

    @staticmethod
    def row(index: int, row: InputRow) -> Row:
        """The row as the ledger knows it: it has all that a ``Row`` has, and its key is read when it is asked for."""
        return cast("Row", row)

    @staticmethod
    def line(result: Result) -> bytes:
        """A row's line of output, whatever became of it."""
        row: InputRow = result.item
        answer, line_id = result.value, row_id(row.index, row.digest)
        if isinstance(answer, RowAnswer) and result.error is None:
            return answer_line(line_id, result.name, answer.status_code, answer.request_id, answer.body)
        return dead_line(line_id, result.name, FailureReason.parse(result.reason))

    @property
    def has_own_tiers(self) -> bool:
        """Whether the tiers of its models have limits of their own."""
        return has_own_tiers(self._vendor)

    def model_of(self, request: Request) -> str:
        """The model that a row's request asks for here."""
        return (self._fallback is not None and self._fallback.model) or request.model

    def request(self, row: InputRow) -> Request:
        """What a row asks for here. Raises ``BrokenRowError``."""
        asked = row.request()
        if self._fallback is None or asked.body is None:
            return asked
        if self._adapted is None or self._adapted[0] is not row:
            name, path = self.endpoint.name, asked.path or self.config.path or self.endpoint.path
            body = adapt_bytes(asked.body, model=self._fallback.model, vendor=name, path=path)
            model = self._fallback.model or asked.model
            self._adapted = row, asked._replace(body=body or asked.body, model=model, tier="")
        return self._adapted[1]

    def cost(self, row: InputRow) -> dict[str, float]:
        """What the row is likely to take: requests, tokens and money. Of a broken one, nothing is known."""
        try:
            request = self.request(row)
        except BrokenRowError:
            return {"requests": 1}
        content = request.content()
        likely = self._likely(request, content)
        money = self.prices.cost(request.model, likely)
        cost = admitted(self._vendor, likely, template_of(content))
        if money is not None:
            cost["money"] = money
        return cost

    def _likely(self, request: Request, content: Any) -> Usage:
        """The tokens that a request with this content will take, more or less."""
        if content is None:
            return NO_TOKENS
        likely = estimate(content, request.path)
        return Usage(likely.input) if self._is_silent and not request.path else likely

    async def fetch(self, row: InputRow, ctx: RowContext) -> RowAnswer:
        """Send the row and report what the answer means. Raises a ``Failed`` if there is no usable answer."""
        if self._session is None:
            raise RuntimeError("this target is not open: use it as 'async with Target(...) as target'")
        request, name = self.request(row), self.endpoint.name
        try:
            url = self._urls.get(request.path) or self._url(request.path)
        except InvalidPathError as error:
            raise row.reject(str(error)) from None
        secret, remaining = ctx.credential or "", ctx.remaining
        headers = self._fixed.copy() if request.body is None else self._with_body.copy()
        if secret:
            if not is_header("x", secret):
                raise AuthenticationError(name, "the key contains characters that are not allowed in a header")
            headers[self.endpoint.key_header] = self.endpoint.key_prefix + secret
        if request.method in _WITH_EFFECT:
            headers["Idempotency-Key"] = self.idempotency_key(row)
        within = self.config.timeout if remaining is None else max(0.001, min(self.config.timeout, remaining))
        sending = exchange(
            self._session,
            request.method,
            url,
            request.body,
            headers,
            name=name,
            within=inf,
            largest=self.config.largest_answer,
            secrets=(secret, *self._hidden),
        )
        try:
            answer = await self._timeout.run(sending, within)
        except TimeoutError as error:
            if isinstance(error, NoAnswerError):
                raise
            raise NoAnswerInTimeError(name, why_no_answer(error, within)) from None
        answer.requested_tier = request.tier
        body, read = _json_of(answer, name)
        usage = usage_of(read)
        self._report(ctx, answer, read, usage, request)
        if answer.status_code < 300 and (why := refusal_in(read)) is not None:
            ctx.note_refusal(why)
        return RowAnswer(answer.status_code, _request_id(answer), body, usage)

    def idempotency_key(self, row: InputRow) -> str:
        """The same for every attempt at this row, in this run and in the ones that go on with it."""
        return blake2b(b"%d:%b" % (row.index, row.digest), digest_size=16, key=self._salt).hexdigest()

    def _url(self, path: str) -> URL:
        from yarl import URL

        if len(self._urls) >= MOST_URLS:
            self._urls.clear()
        found = self._urls[path] = URL(self.url(path), encoded=True)
        return found

    def _report(self, ctx: RowContext, answer: Answer, read: Any, usage: Usage | None, request: Request) -> None:
        """What the answer means and what it took; where it does not say, that is what was expected."""
        if 300 <= answer.status_code < 400:
            raise UnfitAnswerError(
                self.endpoint.name,
                f"sent a redirect ({answer.status_code}), which is not followed; check the URL",
            )
        if usage is None:
            if ctx.report(answer) is Outcome.OK:
                likely = self._likely(request, request.content())
                ctx.charge(tokens=likely.tokens, cost=self.prices.cost(request.model, likely) or 0.0)
            return
        if not self._vendor and self._looks_left:
            self._looks_left -= 1
            self._vendor = vendor_in(answer.headers)
        allowed = output_limit(request.content()) if self._vendor in COUNTED_AT_ADMISSION else None
        counted = settled(self._vendor, usage, allowed)
        outcome, permit = ctx.report(answer, cost={"requests": 1, **counted}), ctx.permit
        if outcome is Outcome.OK and permit is not None:
            per_call = self._tokens.of(permit.key)
            ctx.convert(per_call.in_calls)
            per_call.note(counted)
        money = None
        if self.prices:
            money = self.prices.cost(request.model, usage)
            if money is None and isinstance(said := read.get("model"), str):
                money = self.prices.cost(said, usage)
        ctx.charge(tokens=usage.tokens, cost=money or 0.0)

    async def __aenter__(self) -> Self:
        if self._session is None:
            self._session = new_session(self.config.connections)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        self._timeout.close()
        if session is not None:
            await session.close()

    def __repr__(self) -> str:
        return f"<Target {self.endpoint.base_url}>"


class SharedTimeout:
    """Bounds the time of many calls with one timer, for the tasks of one event loop that each make one call at a time.

    A timer for each call, as HTTP libraries have it, costs a tenth of the whole exchange and hardly ever fires. Here
    calls are only noted; when the first of them would be late, the one timer looks which really are. It works as
    ``asyncio.timeout`` does: the task is cancelled from outside, and that is taken back on the way out.
    """

    def __init__(self) -> None:
        self._due_at: dict[asyncio.Task[object], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = inf

    async def run(self, call: Awaitable[T], seconds: float) -> T:
        """Await the call; ``TimeoutError`` if it takes longer."""
        task = asyncio.current_task()
        assert task is not None
        loop, cancelling = task.get_loop(), task.cancelling()
        due_at = self._due_at[task] = loop.time() + seconds
        if due_at < self._fires_at:
            self._set(loop, due_at)
        try:
            return await call
        except asyncio.CancelledError:
            if task in self._due_at or task.cancelling() > cancelling + 1:  # it is to end for another reason
                raise
        finally:
            if self._due_at.pop(task, None) is None:  # it was late
                task.uncancel()
        raise TimeoutError

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._fires_at = None, inf

    def _set(self, loop: asyncio.AbstractEventLoop, instant: float) -> None:
        self.close()
        self._timer, self._fires_at = loop.call_at(instant, self._fire, loop), instant

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        now, self._timer, self._fires_at = loop.time(), None, inf
        for task in [task for task, due_at in self._due_at.items() if due_at <= now]:
            del self._due_at[task]
            task.cancel()
        if self._due_at:
            self._set(loop, min(self._due_at.values()))


def _json_of(answer: Answer, name: str) -> tuple[bytes, Any]:
    """The body as JSON, raw and read. Another body becomes a JSON string; but a successful answer must be JSON."""
    content = answer.content.strip().removeprefix(b"\xef\xbb\xbf")
    if not content:
        return b"null", None
    try:
        return content, parse_json(content)
    except (ValueError, RecursionError):
        pass
    if answer.status_code < 300:
        if "json" in answer.headers.get("Content-Type", ""):
            raise NoAnswerError(name, "sent JSON that is damaged or truncated")
        raise UnfitAnswerError(name, "sent a response that is not JSON; check the URL")
    return json.dumps(content.decode("utf-8", "replace")).encode(), None


def _request_id(answer: Answer) -> str:
    headers = answer.headers
    return (headers.get("x-request-id") or headers.get("request-id") or "")[:LONGEST_REQUEST_ID]
