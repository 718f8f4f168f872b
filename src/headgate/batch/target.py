"""Send one row and make its line of output: the worker of ``headgate run``.

    row ─> request ─> url, key, Idempotency-Key ─> exchange ─> ctx.report: what it means, what it cost ─> a line

Whatever the server answers becomes a line, an error too: what is to become of the row is the runner's to
decide, by what was reported. Only what is no answer at all is raised.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, cast
from urllib.parse import urlencode

from ..core.decision import Outcome
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
from ..wire.parse import vendor_of
from ..wire.token_usage import COUNTED_AT_ADMISSION, Usage, admitted, is_silent, settled, usage_of
from ..wire.tokens_per_call import TokenCounts
from .endpoints import InvalidPathError, endpoint_of
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
LARGEST_ANSWER = 64 << 20
"""Bytes, unpacked."""
LONGEST_TIMEOUT = 86_400.0
MOST_CONNECTIONS = 10_000
MOST_URLS = 1_000
LONGEST_REQUEST_ID = 200
MOST_LOOKS = 20
"""Answers of an unknown address that are looked at for the vendor's headers."""
_COUNTS_AS = {"anthropic": "anthropic", "azure": "azure-openai"}
"""Whose way of counting tokens a dialect has."""
_OURS = frozenset(("content-length", "content-type", "cookie", "host", "idempotency-key", "transfer-encoding"))
"""Headers that are not for a configuration to set."""
_QUERY = re.compile(r"(?a)[\w.~-]{1,200}")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """How rows are sent."""

    to: str
    """A known name, such as ``openai``, or a base URL."""
    path: str = ""
    """Where rows go that do not say; empty is the target's usual one."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every row, such as OpenAI-Organization. The key that rows are sent with belongs to the credentials."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Added to every URL, such as ``api-version`` for Azure. Never a credential: URLs are shown."""
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Values of headers that must not be seen where a server sends them back."""
    dialect: str = ""
    """Whose requests a base URL takes (``endpoints.DIALECTS``); empty is OpenAI's, or the named vendor's own."""
    timeout: float = 600.0
    """Seconds for one attempt."""
    largest_answer: int = LARGEST_ANSWER
    connections: int = 1_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", dict(self.headers))
        for name, value in self.headers.items():
            if not _is_header(name, value) or name.lower() in _OURS:
                raise ConfigError(f"target headers: {name[:80]!r} cannot be set")
        object.__setattr__(self, "query", dict(self.query))
        for name, value in self.query.items():
            if not _QUERY.fullmatch(name) or not _QUERY.fullmatch(value):
                raise ConfigError(f"target query: {name[:80]!r} is not a name and a value of letters, digits and - _ .")
            if is_credential(name):
                raise ConfigError(
                    f"target query: {name[:80]!r} may be a credential, and URLs are shown; send it as a header, or "
                    "with the keys"
                )
        for name, least, most in (
            ("timeout", 0.001, LONGEST_TIMEOUT),
            ("largest_answer", 1, 1 << 40),
            ("connections", 1, MOST_CONNECTIONS),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise ConfigError(f"target {name}={value!r} must be from {least:,} to {most:,}")


class RowAnswer(NamedTuple):
    """What the server answered to one row, an error included."""

    status_code: int
    request_id: str
    body: bytes
    """JSON, as the server sent it."""
    usage: Usage | None
    """The tokens it took, where the answer says so."""


class Target:
    """``async with Target(config) as target:`` keeps its connections open; ``await target(row, ctx)`` sends a row."""

    def __init__(self, config: TargetConfig, *, prices: Prices | None = None, run_id: str = "") -> None:
        """``run_id`` is the same whenever this batch goes on: with a row's place and content it makes the key by
        which a server can tell that it has done this row before."""
        self.config = config
        self.endpoint = endpoint_of(config.to, config.dialect)
        self.prices = (prices or Prices()).at("azure" if self.endpoint.dialect == "azure" else self.endpoint.name)
        self._salt = blake2b(run_id.encode()).digest()
        if self.endpoint.key_header.lower() in map(str.lower, config.headers):
            raise ConfigError(
                f"target headers: {self.endpoint.key_header!r} is set from the credentials; pass its value as a key"
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
        if isinstance(result.value, bytes) and result.error is None:
            return result.value
        row: InputRow = result.item
        return dead_line(row_id(row.index, row.digest), result.name, FailureReason.parse(result.reason))

    def cost(self, row: InputRow) -> dict[str, float]:
        """What the row is likely to take: requests, tokens and money. Of a broken one, nothing is known."""
        try:
            request = row.request()
        except BrokenRowError:
            return {"requests": 1}
        likely = self._likely(request)
        money = self.prices.cost(request.model, likely)
        cost = admitted(self._vendor, likely, request.template)
        if money is not None:
            cost["money"] = money
        return cost

    def _likely(self, request: Request) -> Usage:
        likely = request.estimate
        return Usage(likely.input) if self._is_silent and not request.path else likely

    async def __call__(self, row: InputRow, ctx: RowContext) -> bytes:
        """One line of output. Raises what is no answer, every one a ``Failed``."""
        answer = await self.fetch(row, ctx)
        return answer_line(
            row_id(row.index, row.digest), row.request().name, answer.status_code, answer.request_id, answer.body
        )

    async def fetch(self, row: InputRow, ctx: RowContext) -> RowAnswer:
        """Send the row and report what the answer means. Raises what is no answer, every one a ``Failed``."""
        if self._session is None:
            raise RuntimeError("this target is not open: use it as 'async with Target(...) as target'")
        request, name = row.request(), self.endpoint.name
        try:
            url = self._urls.get(request.path) or self._url(request.path)
        except InvalidPathError as error:
            raise row.reject(str(error)) from None
        secret, remaining = ctx.credential or "", ctx.remaining
        headers = self._fixed.copy() if request.body is None else self._with_body.copy()
        if secret:
            if not _is_header("x", secret):
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
            secret=secret,
            also_hidden=self._hidden,
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
        self._report(ctx, answer, read, usage, row)
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

    def _report(self, ctx: RowContext, answer: Answer, read: Any, usage: Usage | None, row: InputRow) -> None:
        """What the answer means and what it took; where it does not say, that is what was expected."""
        if 300 <= answer.status_code < 400:
            raise UnfitAnswerError(
                self.endpoint.name,
                f"sent a redirect ({answer.status_code}), which is not followed; check the URL",
            )
        if usage is None:
            if ctx.report(answer) is Outcome.OK:
                likely = self._likely(row.request())
                ctx.charge(tokens=likely.tokens, cost=self.prices.cost(row.request().model, likely) or 0.0)
            return
        tokens = usage.tokens
        if not self._vendor and self._looks_left:
            self._looks_left -= 1
            self._vendor = vendor_of(self.endpoint.base_url, answer.headers)
        allowed = row.request().output_limit if row.counts_tokens and self._vendor in COUNTED_AT_ADMISSION else None
        counted = settled(self._vendor, usage, allowed)
        if ctx.report(answer, cost={"requests": 1, **counted}) is Outcome.OK and ctx.permit is not None:
            per_call = self._tokens.of(ctx.permit.key)
            ctx.convert(per_call.in_calls)
            per_call.note(counted)
        money = None
        if self.prices:
            money = self.prices.cost(row.request().model, usage)
            if money is None and isinstance(said := read.get("model"), str):
                money = self.prices.cost(said, usage)
        ctx.charge(tokens=tokens, cost=money or 0.0)

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
    """The body as JSON, raw and read. What is no JSON is a text; but a good answer must be what was asked for."""
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


def _is_header(name: str, value: str) -> bool:
    return (
        name.replace("-", "").replace("_", "").isalnum() and name.isascii() and value.isprintable() and value.isascii()
    )
