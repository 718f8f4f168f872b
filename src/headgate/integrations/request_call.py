"""One request on its way: a ``Call`` that knows what may be sent twice, and whose permit lasts as long as its body.

heard ──fine──> held ─┬─ over    the body has ended: what it took is settled, all goes back
  │                   ├─ broke   it was cut off: that counts, and is not repeated, since a part of it was seen
  │ an error          └─ left    nobody reads on: sent, outcome unknown
  └──> reported at once; sent again, or handed to the client as it is
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .. import wire
from ..batch.tokens import Usage, estimate
from ..core.decision import Outcome
from ..core.signal import SILENT, Signal
from ..limiter.checks import Cost, WhenOpen
from ..resilience.call import Call
from ..resilience.config import ProviderResilienceConfig
from ..resilience.context import Credentials
from ..resilience.story import tell_failure, tell_left, tell_success
from ..resilience.taxonomy import AWAY_STATUSES, Verdict, judge
from ..wire import Headers
from .binding import Bound
from .keeper import Keeper
from .outgoing import Outgoing
from .reading import AnswerReader

Errors = tuple[type[Exception], ...]
_TURNED_AWAY = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.AUTH, Outcome.KEY_DEAD)
"""Refused before anything was done for it."""
CONFLICT = 409
"""A lock was not free in time, in the APIs of language models."""
_SHOULD_RETRY = {"true": True, "false": False}
_OK = SILENT[Outcome.OK]


class RequestCall(Call):
    manager: Keeper
    _reader: AnswerReader | None = None
    _first_after: float | None = None
    """Seconds until the answer began: how long its body takes says nothing about the server."""
    _should_retry: bool | None = None
    """What the server says about it in ``x-should-retry``."""
    _status = 0

    def __init__(
        self,
        request: Outgoing,
        bound: Bound | None,
        key: str,
        *,
        cost: Cost,
        max_wait: float | None,
        max_attempts: int | None,
        credentials: Credentials | None,
        manager: Keeper,
        resilience_config: ProviderResilienceConfig,
        when_open: WhenOpen = "refuse",
        may_repeat: bool,
        may_repeat_refused: bool,
        repeats_conflicts: bool = False,
        unsent: Errors = (),
        not_theirs: Errors = (),
    ) -> None:
        super().__init__(
            key,
            max_wait_seconds=max_wait,
            max_attempts=max_attempts,
            cost=cost,
            credentials=credentials,
            manager=manager,
            resilience_config=resilience_config,
            when_open=when_open,
        )
        self.request_sent = request
        self._bound = bound
        self._may_repeat, self._may_repeat_refused = may_repeat, may_repeat_refused
        self._repeats_conflicts = repeats_conflicts
        self._unsent, self._not_theirs = unsent, not_theirs

    # ------------------------------------------------------------------ for an attempt

    def headers(self) -> dict[str, str]:
        """What this attempt carries on top of the request's own headers: the credential that was leased for it."""
        return {} if self.lease is None or self._bound is None else self._bound.headers(self.lease.secret)

    def heard(self, status: int, headers: Headers | None, body: bytes | str | None = None) -> Outcome:
        """The answer has begun. ``body`` is what is known of an error's, unpacked. Returns what it counts as."""
        signal = wire.read(status, headers, body, wall=self.manager.clock.wall())
        self.reported = self.manager.token_pace(self._pace_key).in_calls(signal)
        self._should_retry = _SHOULD_RETRY.get(_value(headers, "x-should-retry").lower())
        self._status = status
        self._reader = self._reader_for(headers) if signal.outcome is Outcome.OK else None
        return signal.outcome

    def piece(self, data: bytes) -> None:
        """A piece of the body has come, as it was sent."""
        if self._reader is not None:
            self._reader.feed(data)

    # ------------------------------------------------------------------ the ends of an answer

    def over(self) -> None:
        """All of the body has come."""
        if not self._left:
            return
        reader, signal = self._reader, self.reported or _OK
        if reader is not None:
            reader.finish()
            signal = reader.error or signal
            usage = reader.usage or self._guessed(reader)
            if usage is not None:
                self.real_cost = {"tokens": usage.tokens}
                self.manager.token_pace(self._pace_key).note(usage)
        if signal.outcome is Outcome.OK:
            self._report(signal, self._first_after)
            tell_success(self)
        else:
            self._failed(signal, None)

    def broke(self, error: Exception) -> None:
        """The body was cut off. That it began well is no longer the point."""
        if not self._left:
            return
        if isinstance(error, self._not_theirs):
            self.left(error)
        else:
            self._failed(None, error)

    def left(self, error: BaseException | None = None) -> None:
        """Nobody reads on; without effect where the end has come before. Whoever goes freely has seen enough."""
        held = self._left
        if held and error is None and self.reported is not None:
            self._report(self.reported, self._first_after)
        self.close()
        self._left = False
        if held:
            tell_left(self, error)

    # ------------------------------------------------------------------ what the driver asks

    def answered(self, result: object) -> float | None:
        if self.reported is None or self.reported.outcome is not Outcome.OK:
            return super().answered(result)
        self._first_after = self.manager.clock.now() - self.sent_at
        return None

    def failed(self, error: Exception) -> float | None:
        if self._left and isinstance(error, self._not_theirs):  # nothing was sent, and no server is to blame
            self._left = False
            self._give_back_permits()
            return None
        return super().failed(error)

    def _again(self, verdict: Verdict, error: Exception | None) -> float | None:
        retryable = verdict.retryable
        if error is None:  # what the vendors' own clients repeat too
            retryable |= self._should_retry is True or (self._repeats_conflicts and self._status == CONFLICT)
        may = retryable and self._may_go_again(verdict.signal, error)
        return super()._again(verdict._replace(retryable=may), error)

    def _is_away(self, verdict: Verdict, error: Exception | None) -> bool:
        return super()._is_away(verdict, error) or (error is None and self._status in AWAY_STATUSES)

    def _may_go_again(self, signal: Signal, error: Exception | None) -> bool:
        elsewhere = self.credentials is not None and signal.outcome in _TURNED_AWAY
        if not self.request_sent.can_repeat_body:
            return False
        should = self._should_retry if error is None else None
        if not elsewhere and (should is False or (signal.retry_after or 0.0) > self.max_wait):
            return False
        if should or self._may_repeat or isinstance(error, self._unsent):
            return True
        return self._may_repeat_refused and signal.outcome in _TURNED_AWAY

    # ------------------------------------------------------------------ inside

    @property
    def _pace_key(self) -> str:
        return self.target.key if self.permit is None else self.permit.key

    def _failed(self, signal: Signal | None, error: Exception | None) -> None:
        self.verdict = judge(signal, None, error, None, self.manager.clock.wall())
        self._report(self.verdict.signal, self._first_after)
        tell_failure(self, error)

    def _reader_for(self, headers: Headers | None) -> AnswerReader | None:
        if not self.request_sent.for_model:
            return None
        kind = _value(headers, "content-type").lower()
        streams = kind.startswith("text/event-stream")
        if not streams and "json" not in kind:
            return None
        encoding = _value(headers, "content-encoding").strip().lower()
        packed = "" if encoding == "identity" else encoding
        return AnswerReader(streams=streams, encoding=packed, wall=self.manager.clock.wall())

    def _guessed(self, reader: AnswerReader) -> Usage | None:
        """For a stream that did not say what it took: what was asked, and the text that came."""
        if not reader.written:
            return None
        asked = estimate(self.request_sent.parsed(), self.request_sent.path)
        return Usage(asked.input, reader.written_tokens)


def _value(headers: Headers | None, name: str) -> str:
    if headers is None:
        return ""
    pairs: Iterable[tuple[str, str]] = headers.items() if isinstance(headers, Mapping) else headers
    return next((value for given, value in pairs if given.lower() == name), "")
