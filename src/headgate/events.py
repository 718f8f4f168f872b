"""What happened, as data: one internal record, and the public event classes made of it for listeners.

    limiter ─────┐                                   ┌──> a listener of the user's: Event, BatchEvent, ...
    credentials ─┤                                   │
    calls ───────┼──> EventRecord ──> deliver ───────┤
    batch ───────┤                                   │
    crawl ───────┘                                   └──> logs, metrics, pages: the record itself

A record says what happened by codes and numbers; its sentence is made when a person is to read it. A hook is asked
instead of told: ``call_hook``. An event names a key, never a credential. With the same seed and the same answers on a
virtual clock, two runs give the same events.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from datetime import datetime

    from .clock import Clock
    from .core.signal import Signal

from .reason_text import event_reason

log = logging.getLogger("headgate")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened to one key."""

    at: float
    """On the limiter's clock."""
    kind: str
    """rate_changed, circuit_changed, held, refused, limited, key_evicted, cannot_learn, store_lost or store_back."""
    key: str
    reason: str
    rate: float
    """The pace after it, in calls a second."""
    state: str
    """The circuit after it: closed, open or half_open."""


class CallEvent(NamedTuple):
    """One call that was let through and has been answered, for observers of calls (``limiter.watch``).

    There is one for every call, so it is as light as can be and is made only for observers that ask for it.
    """

    at: float
    """When its end was reported, on the limiter's clock."""
    key: str
    sent_at: float
    """When it was let through ..."""
    waited: float
    """... after so many seconds in the queue."""
    latency: float
    status: int | None
    """Of HTTP, where it is known."""
    signal: Signal
    """What the answer said."""
    cost: float | Mapping[str, float] = 1
    draw: float = 0.0
    """What chance added to the wait that the answer asks for, as a share of the most it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResilienceEvent:
    """One thing that happened to one call to one provider, for telemetry that can be queried."""

    event_type: str
    """rate_limit_wait, retry_attempt, circuit_state_change, budget_exceeded, request_success, request_failure,
    all_providers_circuit_open, credential_wait, credential_pool_exhausted, credential_rested, credential_back,
    credential_retired, store_failed or store_back."""
    provider: str
    timestamp: datetime
    """In UTC, by the wall clock."""
    attempt: int | None = None
    max_attempts: int | None = None
    wait_ms: int | None = None
    breaker_state: str | None = None
    error_type: str | None = None
    error_classification: str | None = None
    budget_remaining_ms: int | None = None
    correlation_id: str | None = None
    credential: str | None = None
    """The label of the credential, never the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEvent:
    """One thing that happened in a batch."""

    at: float
    """On the runner's clock."""
    kind: str
    """cooldown_started, cooldown_extended, cooldown_ended, item_parked, item_failed, item_done, item_dead, item_lost,
    ramp_started, circuit_open, caps_reached or stopped."""
    key: str = ""
    """The gate key, with the credential's label behind it where there is one."""
    index: int | None = None
    reason: str = ""
    seconds: float | None = None
    attempts: int = 0
    rate_limited: int = 0
    tokens: int = 0
    cost: float = 0.0
    waited: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    """The four counters of rate limits, with events of a cooldown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlEvent:
    """One thing that happened in a crawl."""

    at: float
    """On the crawler's clock."""
    kind: str
    """call, page, failed, refused, put_off, sent_on, robots, sitemap, capped, host_shut or stopped."""
    host: str = ""
    url: str = ""
    status: int | None = None
    reason: str = ""
    seconds: float | None = None
    """For how long it is put off, or the host is shut; of a call, what the server asked for (Retry-After)."""
    attempts: int = 0
    waited: Mapping[str, float] = field(default_factory=dict)
    """Seconds it has waited in front of a stage ..."""
    worked: Mapping[str, float] = field(default_factory=dict)
    """... and been worked on there; of the extraction that is the fetch."""
    credential: str = ""
    """Of a call: the label of the one it was made with."""


PublicEvent: TypeAlias = Event | ResilienceEvent | BatchEvent | CrawlEvent

_SCOPES: dict[type[Any], str] = {Event: "key", ResilienceEvent: "provider", BatchEvent: "key", CrawlEvent: "host"}
"""The public classes, and what each calls the thing it is about."""
_CODE = re.compile(r"([A-Za-z0-9_.-]{1,60})(?:: (.*))?", re.DOTALL)
_OWN = frozenset(("at", "timestamp", "kind", "event_type", "reason"))


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One thing that happened, as every part of Headgate says it."""

    form: type[Event | ResilienceEvent | BatchEvent | CrawlEvent]
    """The public class for listeners of the user's."""
    kind: str
    at: float
    """On the clock of the part that says it ..."""
    unix_at: float
    """... and in Unix time."""
    scope: str = ""
    """What it happened to: a key, a provider, a host."""
    reason: str = ""
    """Why, as a code: of a wait, a refusal, a stop or a failure."""
    detail: object = ""
    """What belongs to the code: data that can be worded, or words from outside, such as a server's."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The remaining fields of the public class."""

    @property
    def text(self) -> str:
        """The public ``reason``."""
        return event_reason(self.reason, self.detail)

    def public(self) -> PublicEvent:
        values: dict[str, Any] = {**self.fields, _SCOPES[self.form]: self.scope}
        form: Callable[..., PublicEvent] = self.form
        if self.form is ResilienceEvent:
            from datetime import UTC, datetime  # here, because most programs do not listen

            when = datetime.fromtimestamp(self.unix_at, UTC)
            return form(event_type=self.kind, timestamp=when, **values)
        return form(at=self.at, kind=self.kind, reason=self.text, **values)


def record_of(event: EventRecord | PublicEvent, clock: Clock | None = None) -> EventRecord:
    """A public event as a record again: a listener of the user's may have passed it on. ``clock``, that of the part it
    comes from, is needed only for the time."""
    if isinstance(event, EventRecord):
        return event
    form = type(event)
    rest = {one.name: getattr(event, one.name) for one in fields(event) if one.name not in (*_OWN, _SCOPES[form])}
    scope = getattr(event, _SCOPES[form])
    if isinstance(event, ResilienceEvent):
        unix_at = event.timestamp.timestamp()
        at = unix_at if clock is None else clock.now() - (clock.wall() - unix_at)
        return EventRecord(form, event.event_type, at, unix_at, scope, fields=rest)
    unix_at = event.at if clock is None else clock.wall() - (clock.now() - event.at)
    code, detail = split_reason(event.reason)
    return EventRecord(form, event.kind, event.at, unix_at, scope, code, detail, rest)


def split_reason(text: str) -> tuple[str, str]:
    """A public reason as its code and the rest: ``"invalid: HTTP 400"`` has the code ``invalid``. It is empty where the
    reason is a sentence."""
    found = _CODE.fullmatch(text)
    return ("", text) if found is None else (found[1], found[2] or "")


# ---------------------------------------------------------------------- handing it over

Listener: TypeAlias = Callable[[Any], None]
"""Called with each event. It may have ``wants(kind)``, asked before an event is made, ``missed(kind, count)``, told of
those that were not, ``takes_records = True`` if it reads ``EventRecord`` instead of the public classes, and
``when_heard(emitter)`` if it has listeners itself, to call ``emitter.set_heard`` when that changes (``Hub`` does)."""


def is_wanted(listener: object, kind: str) -> bool:
    """Whether to make an event of this kind now. If not, the listener is told that it missed one, so the caller must
    make it or not, as the answer says."""
    wants = getattr(listener, "wants", None)
    try:
        if wants is None or wants(kind):
            return True
    except Exception:
        log.exception("listener %s failed in wants(%s)", name_of(listener), kind)
    note_missed(listener, kind, 1)
    return False


def note_missed(listener: object, kind: str, count: int) -> None:
    """So many events of this kind were not made, because the listener did not want them."""
    missed = getattr(listener, "missed", None)
    if callable(missed):
        try:
            missed(kind, count)
        except Exception:
            log.exception("listener %s failed in missed(%s)", name_of(listener), kind)


def deliver(listener: Listener, event: EventRecord | PublicEvent) -> None:
    """Call a listener, with no lock held. One that raises is logged, and otherwise ignored."""
    try:
        if isinstance(event, EventRecord) and not getattr(listener, "takes_records", False):
            listener(event.public())
        else:
            listener(event)
    except Exception:
        what = f"{event.kind} of {event.scope}" if isinstance(event, EventRecord) else type(event).__name__
        log.exception("a listener failed on %s (%s)", what, name_of(listener))


def call_hook(hook: Callable[..., Any], kind: type[T], *facts: object) -> T | None:
    """What the hook returns; None, and a warning in the log, if it raises or returns something that is no ``kind``."""
    try:
        found = hook(*facts)
    except Exception as error:  # its message may hold anything, so it is not logged
        log.warning("Ignoring hook %s: it raised %s", name_of(hook), type(error).__name__)
        return None
    if found is None or isinstance(found, kind):
        return found
    log.warning("Ignoring hook %s: it returned %s instead of %s", name_of(hook), type(found).__name__, kind.__name__)
    return None


def name_of(listener: object) -> str:
    return str(getattr(listener, "__qualname__", type(listener).__qualname__))


class EventDispatcher:
    """Makes the records of one part and hands them to its listener, if it has one that wants them.

    Events of a kind that ends in batches (rows) are not asked about one by one: once a listener does not want one, the
    rest of the batch is only counted.
    """

    def __init__(
        self,
        form: type[Event | ResilienceEvent | BatchEvent | CrawlEvent],
        clock: Clock,
        listener: Callable[[], Listener | None],
    ) -> None:
        """``listener`` returns the present one."""
        self._form, self._clock, self._listener = form, clock, listener
        self._unwilling: Listener | None = None
        """The listener that did not want ..."""
        self._unwanted: dict[str, int] = {}
        """... these kinds, and how many there have been since."""

    def dispatch(
        self,
        kind: str,
        scope: str = "",
        reason: str = "",
        detail: object = "",
        make: Callable[[], Mapping[str, Any]] = dict,
        **values: Any,
    ) -> bool:
        """False says that the listener did not want it. ``make`` gives further fields, and is called if it does."""
        listener = self._listener()
        if listener is None:
            return True
        self.end_batch()  # they came first
        if not is_wanted(listener, kind):
            return False
        clock, given = self._clock, {**make(), **values}
        deliver(listener, EventRecord(self._form, kind, clock.now(), clock.wall(), scope, reason, detail, given))
        return True

    def dispatch_in_batch(
        self, kind: str, scope: str, reason: str, detail: object, make: Callable[[], Mapping[str, Any]]
    ) -> None:
        """One of many that end together."""
        listener = self._listener()
        if listener is None:
            return
        if kind in self._unwanted and listener is self._unwilling:
            self._unwanted[kind] += 1
        elif not self.dispatch(kind, scope, reason, detail, make):
            self._unwilling, self._unwanted[kind] = listener, 0

    def end_batch(self) -> None:
        """The listener is asked again for the next batch, and told how many it missed."""
        if self._unwanted:
            unwanted, self._unwanted = self._unwanted, {}
            for kind, count in unwanted.items():
                if count:
                    note_missed(self._unwilling, kind, count)
