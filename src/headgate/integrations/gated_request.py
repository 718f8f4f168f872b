"""One request of an HTTP client on its way: the seam between a client's own file and the call behind it.

    send ─> on_response ──fine──> open ─┬─ complete   the body has ended: what it took is settled, all goes back
                 │                      ├─ fail       it was cut off: that counts, and is not repeated: a part was seen
                 │ an error             └─ abandon    it is not read any further: sent, outcome unknown
                 └──> reported at once; sent again, or handed to the client as it is

A client's file says how to ``send`` the request once (with ``headers()`` on top of its own), how to ``receive`` its
response (which calls ``on_response`` with what it says), and how to ``close`` one. ``send_sync`` and ``send_async``
take it through the gate, as often as it may be tried. Each piece of the body of a good answer goes to ``on_chunk``;
then ``complete``, ``fail`` or ``abandon`` ends it. Ending twice is harmless.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeVar

from .. import wire
from ..core.decision import Outcome
from ..core.fallback import CAPACITY_REFUSALS
from ..core.signal import SILENT, Signal
from ..errors import Refused, WaitTooLongError
from ..reason_text import ACCOUNT_RESTS
from ..resilience.call import Call
from ..resilience.call_holdings import OPEN
from ..resilience.classify import AWAY_STATUSES, Verdict
from ..resilience.config import CallOptions
from ..resilience.execute import drive, drive_sync
from ..wire import Headers
from ..wire.token_usage import Usage, estimate, settled
from .host_manager import HostManager
from .origins import OriginCredentials
from .request import OutgoingRequest
from .response_reader import ResponseReader

Errors = tuple[type[Exception], ...]
R = TypeVar("R")
_TURNED_AWAY = (
    Outcome.RATE_LIMITED,
    Outcome.QUOTA_EXHAUSTED,
    Outcome.CAPACITY,
    Outcome.SPEND,
    Outcome.AUTH,
    Outcome.KEY_DEAD,
)
"""Refused before anything was done for it."""
CONFLICT = 409
"""A lock was not free in time, in the APIs of language models."""
_SHOULD_RETRY = {"true": True, "false": False}
_OK = SILENT[Outcome.OK]


class RepeatRule(NamedTuple):
    """What may be sent twice."""

    is_safe: bool
    """Whether sending the request twice does no more than sending it once."""
    when_turned_away: bool = True
    """Whether it may go again, safe or not, where nothing was done for it: 429 and refused credentials."""
    conflicts: bool = False
    """Whether a 409 goes again, as it does in the clients of language models."""
    unsent: Errors = ()
    """The client's errors after which nothing has been sent: no connection."""


class GatedRequest:
    """One request, from the queue of its host to the end of its body."""

    _reader: ResponseReader | None = None
    _should_retry: bool | None = None
    """What the server says about it in ``x-should-retry``."""
    _status = 0

    def __init__(
        self,
        request: OutgoingRequest,
        key: str,
        options: CallOptions,
        hosts: HostManager,
        *,
        rule: RepeatRule,
        credentials: OriginCredentials | None = None,
        client_errors: Errors = (),
    ) -> None:
        self.request = request
        self._most_capacity_refusals: int | None = None
        self._capacity_refusals = 0
        self._hosts, self._rule, self._credentials = hosts, rule, credentials
        self.call = Call(
            key, options, holds_answer=True, retry_rule=self._apply_repeat_rule, client_errors=client_errors
        )

    def bound_waits(self, *, refuses_open: bool, max_wait: float | None, stops_at_capacity: bool) -> None:
        """Bound its waits, before it is sent, where another target can take it."""
        if refuses_open:
            self.call.when_open = "refuse"
        if max_wait is not None:
            self.call.max_wait = min(self.call.max_wait, max_wait)
        self._most_capacity_refusals = CAPACITY_REFUSALS if stops_at_capacity else None

    # ------------------------------------------------------------------ sending

    @property
    def secret(self) -> str:
        """The secret of the credential that is leased for this attempt; empty if there is none."""
        return "" if self.call.lease is None or self._credentials is None else self.call.lease.secret

    def headers(self) -> dict[str, str]:
        """What this attempt carries on top of the request's own headers: the credential that was leased for it."""
        lease = self.call.lease
        return {} if lease is None or self._credentials is None else self._credentials.headers(lease.secret)

    def time_left(self) -> float:
        """Seconds of the time budget; infinite without one."""
        return self.call.time_left()

    def send_sync(
        self,
        send: Callable[[], R],
        receive: Callable[[R], R],
        close: Callable[[R], None],
        as_error: Callable[[Refused], Exception] | None = None,
    ) -> R:
        """Take the request through the gate, as often as it may be tried.

        Raises a ``Refused`` if it may not pass, as the client's own kind of error where ``as_error`` makes one of it.
        """
        last: R | None = None

        def attempt() -> R:
            nonlocal last
            if last is not None:
                close(last)
            last = send()
            last = receive(last)
            return last

        try:
            self._check_account()
            response: R = drive_sync(self.call, attempt)
        except BaseException as error:
            if last is not None:
                close(last)
            if as_error is not None and isinstance(error, Refused):
                raise as_error(error) from error.__cause__
            raise
        return response

    async def send_async(
        self,
        send: Callable[[], Awaitable[R]],
        receive: Callable[[R], Awaitable[R]],
        close: Callable[[R], Awaitable[None]],
        as_error: Callable[[Refused], Exception] | None = None,
    ) -> R:
        """The same with ``await``."""
        last: R | None = None

        async def attempt() -> R:
            nonlocal last
            if last is not None:
                await close(last)
            last = await send()
            last = await receive(last)
            return last

        try:
            self._check_account()
            response: R = await drive(self.call, attempt)
        except BaseException as error:
            if last is not None:
                await close(last)
            if as_error is not None and isinstance(error, Refused):
                raise as_error(error) from error.__cause__
            raise
        return response

    # ------------------------------------------------------------------ the response

    def on_response(self, status: int, headers: Headers | None, body: bytes | str | None = None) -> Outcome:
        """The answer has begun. ``body`` is what is known of an error's, unpacked. Returns what it counts as."""
        call = self.call
        signal = wire.read(status, headers, body, wall=call.clock.wall(), tier=self.request.tier)
        if signal.dialect and not self.request.vendor and self.request.for_model:
            self._hosts.note_vendor(self.request.url, signal.dialect)
        call.reported = self._hosts.tokens.of(self._pace_key).in_calls(signal)
        if signal.outcome is Outcome.RATE_LIMITED and self.request.for_model:
            self._hosts.note_limited(call.provider.name)
        if signal.outcome is not Outcome.OK:
            self._should_retry = _SHOULD_RETRY.get(_value(headers, "x-should-retry").lower())
        self._status = status
        self._note_account(signal.outcome)
        self._reader = self._reader_for(headers) if signal.outcome is Outcome.OK else None
        return signal.outcome

    def on_chunk(self, data: bytes) -> None:
        """A piece of the body has come, as it was sent."""
        if self._reader is not None:
            self._reader.feed(data)

    def complete(self) -> None:
        """All of the body has come."""
        call, reader = self.call, self._reader
        if call.state is not OPEN:
            return
        signal = call.reported or _OK
        if reader is not None:
            reader.finish()
            signal = reader.error or signal
            usage = reader.usage or self._estimated_usage(reader)
            if usage is not None:
                vendor = self.request.vendor or self._hosts.vendor_at(self.request.url)
                counted = settled(vendor, usage, self.request.output_limit)
                call.real_cost = counted
                self._hosts.tokens.of(self._pace_key).note(counted)
        call.complete(signal)

    def fail(self, error: Exception) -> None:
        """The body was cut off."""
        self.call.fail(error)

    def abandon(self, error: BaseException | None = None) -> None:
        """The body is not read any further; a reader that leaves without an error has seen how it began."""
        self.call.abandon(error, self.call.reported if error is None else None)

    # ------------------------------------------------------------------ inside

    def _check_account(self) -> None:
        """Refuse at once what an account cannot pay for that has no credentials of ours."""
        if self._hosts.spend and self._credentials is None:
            wait = self._hosts.spend_wait(self.request.account)
            if wait > 0.0:
                refusal = WaitTooLongError(self.call.provider.key, ACCOUNT_RESTS, wait)
                refusal.code = Outcome.SPEND.value
                raise refusal

    def _note_account(self, outcome: Outcome) -> None:
        spend, call = self._hosts.spend, self.call
        sent_at = call.held.sent_at or call.started_at
        if outcome is Outcome.SPEND and self._credentials is None:
            spend.stopped(self.request.account, sent_at, call.clock.now())
        elif spend and outcome is Outcome.OK:
            spend.worked(self.request.account, sent_at)

    @property
    def _pace_key(self) -> str:
        return self.call.provider.key if self.call.permit is None else self.call.permit.key

    def _apply_repeat_rule(self, verdict: Verdict, error: Exception | None) -> Verdict:
        """Whether this request may be sent again after a failure, by what it is and what the server says."""
        retryable, says_away = verdict.retryable, False
        if error is None:  # what the vendors' own clients repeat too
            retryable |= self._should_retry is True or (self._rule.conflicts and self._status == CONFLICT)
            says_away = self._status in AWAY_STATUSES
        retryable = retryable and self._may_repeat(verdict.signal, error)
        if verdict.signal.outcome is Outcome.CAPACITY:
            self._capacity_refusals += 1
            retryable = retryable and self._capacity_refusals != self._most_capacity_refusals
        return verdict._replace(retryable=retryable, says_away=says_away)

    def _may_repeat(self, signal: Signal, error: Exception | None) -> bool:
        call, rule = self.call, self._rule
        if not self.request.can_repeat_body:
            return False
        is_turned_away = signal.outcome in _TURNED_AWAY
        goes_elsewhere = is_turned_away and call.credentials is not None
        should = self._should_retry if error is None else None
        if not goes_elsewhere and (should is False or (signal.retry_after or 0.0) > call.max_wait):
            return False
        if should or rule.is_safe or isinstance(error, rule.unsent):
            return True
        return rule.when_turned_away and is_turned_away

    def _reader_for(self, headers: Headers | None) -> ResponseReader | None:
        if not self.request.for_model:
            return None
        kind = _value(headers, "content-type").lower()
        streams = kind.startswith("text/event-stream")
        if not streams and "json" not in kind:
            return None
        encoding = _value(headers, "content-encoding")
        return ResponseReader(streams=streams, encoding=encoding, wall=self.call.clock.wall())

    def _estimated_usage(self, reader: ResponseReader) -> Usage | None:
        """For a stream that did not say what it took: what was asked, and the text that came."""
        if not reader.written:
            return None
        asked = estimate(self.request.parsed(), self.request.path)
        return Usage(asked.input, reader.written_tokens)


def _value(headers: Headers | None, name: str) -> str:
    if headers is None:
        return ""
    pairs: Iterable[tuple[str, str]] = headers.items() if isinstance(headers, Mapping) else headers
    return next((value for given, value in pairs if given.lower() == name), "")


MOST_LEAKED = 10_000
leaked_requests: deque[GatedRequest] = deque(maxlen=MOST_LEAKED)
"""Requests whose responses were thrown away unread, until the next request gives back what they hold.

The garbage collector finds such a response anywhere, also in the middle of a decision: no place to take locks.
"""


def release_leaked() -> None:
    """Give back what leaked requests hold."""
    while leaked_requests:
        with suppress(IndexError):  # another thread was faster
            leaked_requests.popleft().abandon()
