"""The kinds of limit a server can have, asked in order of what is surest.

headers.py       the server says what is left: follow it while it proves right
concurrency.py   refused at one depth, or only in a crowd: hold the depth, leave the pace free
latency_model.py served, but slower and slower: hold less in flight
rate_search.py   refused at some pace: measure the quota and hold it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from ...core.decision import NEVER, ControllerNote, PaceReason
from ...core.policy import Cost, Ticket, requests_of
from ...core.signal import CALLS_BY_TOKENS, Limit
from .call_sizes import CallSizes, tokens_of
from .concurrency import SHALLOW, SHALLOWEST, ConcurrencyCap, Refusal, Verdict
from .headers import PLACES, HeaderModel, HeaderReading
from .latency_model import LatencyModel
from .rate_search import SKIP_AFTER_CUT, RateSearch
from .state import STEADY, Phase, Storable
from .told_wait import LONG_FLOOR
from .trace import Step
from .window_fit import full_until

CAPPED_HEADROOM = 4.0
"""At a cap on calls in flight the pace is this many times what gets done, so that it does not limit."""

TURNS, HALF = 2.0, 0.5
"""After so many times the calls in flight, those of the last cut are gone; and half of those that were deep."""

DOUBTED = 250
"""Answers for which a budget that is full is no news after a refusal."""

OVERLAP = 0.5
"""Calls in flight on average below which a single other one was there by chance, and is not what refuses."""

AGREED = 8
"""Measurements that agreed, after which a quota is not taken for a shallow cap any more: refusals at one such depth
happen to every quota."""

HELD, HELD_AT_MOST = 0.85, 0.7
"""A cap that passed its trial at less than this share of the quota passed because it held calls back; and where that is
what the quota is at most, as only the pace told it."""

YOUNG, LESS, LESS_AT_MOST = (64, 512), 0.88, 0.72
"""Calls since a cap began from which on, and up to which, a refusal asks whether less than this share of the quota gets
done, and a cap that has shrunk always: then calls that leave in bunches are refused, and it is no cap."""

SHORTEST_REST = 0.1
"""Seconds of rest after a refusal that the headers had not foreseen."""


@dataclass(slots=True, eq=False, kw_only=True)
class LimitModels(Storable):
    concurrency: ConcurrencyCap = field(default_factory=ConcurrencyCap)
    latency_model: LatencyModel = field(default_factory=LatencyModel)
    header_model: HeaderModel = field(default_factory=HeaderModel)
    search: RateSearch = field(default_factory=RateSearch.start)
    token_model: HeaderModel | None = None
    """What the server says of tokens, in calls: followed beside what it says of calls."""
    added = 1

    def load_state(self, state: tuple[Any, ...]) -> None:
        self.token_model = HeaderModel.of_tokens() if len(state) == len(self.stored) else None
        Storable.load_state(self, state)

    @property
    def told(self) -> HeaderModel:
        """The headers that the pace follows, those that leave the least; those on calls where it follows none."""
        return self.token_model if self.token_model is not None and self.token_model.steered else self.header_model

    def worth(self, cost: Cost) -> float:
        """How many calls' worth of pace a call takes: more than one where it is large and the server counts tokens."""
        sizes = None if self.told.steered else self.search.estimator.sizes
        return requests_of(cost) * (1.0 if sizes is None else sizes.worth(tokens_of(cost)))

    def take(self, cost: Cost) -> float:
        """The same of a call that leaves now. It changes the usual call, the unit of a quota that counts tokens."""
        tokens, estimator = tokens_of(cost), self.search.estimator
        if tokens:
            estimator.sizes = estimator.sizes or CallSizes()
            self.search.curve.quota *= estimator.sizes.note_sent(tokens)
        return self.worth(cost)

    def idle(self, seq: int, now: float) -> None:
        """No call waits for the pace: what is sent meanwhile measures the caller, not the server."""
        if self.search.phase is not Phase.BLOCK:
            self.search.estimator.forget()
            self.search.block.busy_from, self.search.block.busy_after = now, seq

    def rest(self) -> None:
        """Drop what matters only under load: a sketch of the history stays, a measurement under way does not."""
        search = self.search
        search.history.sends.rest()
        search.history.refusals.rest()
        search.estimator.forget()
        search.window_fit.forget()
        search.turn_fit.forget()
        search.curve.sharing.measures = ()
        self.concurrency.rest()
        self.header_model.gauge.forget()

    def advance(self, dt: float, seq: int, depth: int, wanted: bool, now: float) -> None:
        """``dt`` seconds passed; ``wanted`` says that a call waited for the pace meanwhile."""
        self.search.history.sends.mark(now, seq)
        self.search.turn_fit.sent(seq, now)
        if self.concurrency.on:
            passed = self.concurrency.grow(dt, depth, seq, self.search.trip)
            shrunk = self.concurrency.cap < self.concurrency.found
            if (passed and self._is_held_back(now)) or (shrunk and self._gets_less_done(seq, now)):
                self.concurrency.let_go(now)
                self.search.cruise_from(seq)
                self.search.trace.note(now, Step.NOT_A_CAP, pace=self.search.pace)
        elif wanted:
            if self.header_model.is_full and self.search.phase is Phase.CRUISE:
                self.header_model.full = 0
                self.search.look(now, seq)
            self.search.grow(dt, now, seq, self.latency_model.mean or inf)

    def _is_held_back(self, now: float) -> bool:
        """Whether a cap passed its trial because less gets done than the quota that was measured; what is guessed of a
        deep one, or measured of one that is shared, may be too much."""
        search, curve = self.search, self.search.curve
        if curve.sharing.on or (curve.rough and self.concurrency.cap > SHALLOW):
            return False
        held = HELD_AT_MOST if curve.is_at_most else HELD
        return search.history.lately(search.pace, now) < held * curve.quota

    def _gets_less_done(self, seq: int, now: float) -> bool:
        """Whether a young cap, at which nothing deeper was let in than at first, stays below the quota known before."""
        search, curve, concurrency = self.search, self.search.curve, self.concurrency
        calls = seq - concurrency.refused_since
        if curve.sharing.on or concurrency.trial or concurrency.told or concurrency.fine > concurrency.found:
            return False
        if not YOUNG[0] <= calls <= YOUNG[1] or (curve.rough and concurrency.cap > SHALLOW):
            return False
        since = search.history.sends.instant_of(concurrency.refused_since)
        least = (LESS_AT_MOST if curve.is_at_most else LESS) * curve.quota * (now - since)
        return search.history.accepted_calls(concurrency.refused_since, seq) < least

    def verdict(self, seq: int, depth: int, now: float) -> tuple[float, float, float]:
        """The pace, the instant before which nothing starts, and the calls in flight at most."""
        search, headers, concurrency = self.search, self.header_model, self.concurrency
        hold, cap = max(search.floor_until, search.probe_until), self.latency_model.cap
        if search.phase is not Phase.BLOCK:
            hold = max(hold, headers.empty_until)
            if headers.seq or self.token_model is not None:
                hold = max(hold, self._follow_headers(seq, depth, now))
        if search.curve.log and search.phase is Phase.CRUISE and not self.told.steered:  # a look asks for more
            hold = max(hold, full_until(search.curve, search.history, seq))
        pace = search.pace
        if concurrency.on:
            cap = min(cap, concurrency.cap)
            pace = max(pace, CAPPED_HEADROOM * self.latency_model.throughput)
        return pace, hold, cap

    def _follow_headers(self, seq: int, depth: int, now: float) -> float:
        """Pace by the headers while they lead. Returns the instant before which they leave nothing."""
        search, led = self.search, self.told.steered
        narrowest, pace, empty_until = None, inf, NEVER
        for model in self._told_models():
            if not model.steers(depth, now):
                model.steered = False
                continue
            asked, none_before = model.pace(seq, search.history.sends, now)
            empty_until = max(empty_until, none_before)
            wider = model if asked >= pace else narrowest
            if asked < pace:
                narrowest, pace = model, asked
            if wider is not None:
                wider.yield_to_another(now)
        if narrowest is None:
            if led:
                self._give_up(Step.HEADERS_STOPPED, seq, now)
            return NEVER
        if not led:
            search.trace.note(now, Step.FOLLOWING_HEADERS, limit=narrowest.limit)
        search.pace = pace
        return empty_until

    def read_headers(self, ticket: Ticket, limits: tuple[Limit, ...], now: float) -> None:
        headers, search, led = self.header_model, self.search, self.told.steered
        if self.token_model is None and any(limit.dimension == CALLS_BY_TOKENS for limit in limits):
            self.token_model = HeaderModel.of_tokens()
        reading = HeaderReading(limits, ticket, search.history, self.latency_model.mean, search.trip, now)
        is_useful = headers.read(reading)
        if not (is_useful and headers.leads):
            headers.steered = False
        if self.token_model is not None and not (self.token_model.read(reading) and self.token_model.leads):
            self.token_model.steered = False
        if headers.places >= PLACES:
            self.concurrency.hear(int(headers.limit), ticket.gate.seq, now)
        if led and not self.told.steered:
            self._give_up(Step.HEADERS_USELESS, ticket.gate.seq, now)
        elif headers.is_spent and not self.concurrency.on:
            search.told_spent(ticket, now)

    def _told_models(self) -> Iterator[HeaderModel]:
        """What headers have told so far, of calls and of tokens."""
        if self.header_model.seq:
            yield self.header_model
        if self.token_model is not None and self.token_model.seq:
            yield self.token_model

    def served(self, ticket: Ticket, latency: float, done: int, now: float) -> bool:
        """A sampled call was served, the ``done``-th. True if that may have changed the verdict."""
        slowdown, search, latest = self.latency_model, self.search, ticket.gate.seq
        if search.phase in STEADY and self._turned_over(ticket):
            self.concurrency.served(self._crowd(ticket))
        median = slowdown.sample(ticket.seq, latest, latency, done, now)
        if median is None:
            return False
        free = not self.concurrency.on and search.phase is not Phase.BLOCK
        searching = search.phase is Phase.START and not self.told.steered
        overload = slowdown.judge(median, ticket.depth + 1, done, free, searching, now)
        slowdown.begin(latest, done, now)
        if overload is not None:
            if search.curve.rough or search.phase not in STEADY:  # else the quota is known, whatever slows the answers
                search.go_on_from(overload, latest)
            search.trace.note(now, Step.SLOWED, cap=slowdown.cap)
        return True

    def refused(self, ticket: Ticket, latency: float, floor: float, deepest: int, now: float) -> float:
        """Find the model whose refusal this is. ``floor`` is the Retry-After, or 0. Returns the slots to skip."""
        latest, search, headers, concurrency = ticket.gate.seq, self.search, self.header_model, self.concurrency
        is_blocked = search.phase is Phase.BLOCK
        if (headers.seq or self.token_model is not None) and not is_blocked:
            self._follow_headers(latest, ticket.depth, now)
        search.note(ticket, latency, floor)
        if is_blocked:
            if search.block.probe_seq:
                concurrency.refuse_shallower(ticket.depth)
            search.refused_blocked(ticket, floor, now)
            return 0.0
        if self.told.leads:
            if self.told.refused(ticket.seq, latest, floor, now):
                search.hold(now + (floor or max(SHORTEST_REST, 2.0 * search.trip)), now)
                return 0.0
            self._give_up(Step.HEADERS_WRONG, latest, now)
        if headers.full or (headers.seq and search.phase is Phase.PROBE):
            headers.full, headers.doubted = 0, DOUBTED
        verdict = Verdict.NOT_MINE
        if concurrency.on:
            throughput, cost = search.history.lately(search.pace, now), search.curve.cost
            refusal = Refusal(
                ticket.seq, latest, ticket.depth, throughput, cost, floor, search.trip, self.latency_model.mean
            )
            no_cap = self._gets_less_done(ticket.seq, ticket.sent_at)
            verdict = concurrency.let_go(now) if no_cap else concurrency.refused(refusal, now)
            if verdict is Verdict.LET_GO:
                self._give_up(Step.NOT_A_CAP, latest, now)
            elif verdict is Verdict.NOT_MINE:  # it was on trial, at a pace that says nothing about the quota
                if search.phase is Phase.START:
                    self._give_up(Step.NOT_A_CAP, latest, now)
                else:
                    search.estimator.restart(ticket.seq, ticket.sent_at)
                    search.cruise_from(latest)
                if floor > 0.0:
                    search.hold(now + floor, now)
                return SKIP_AFTER_CUT
        elif self._may_be_capped(ticket, floor):
            if search.phase is Phase.CRUISE and self._turned_over(ticket):
                concurrency.weigh(self._crowd(ticket), ticket.depth)
            curve = search.curve
            doubts = int(curve.sharing.on or floor > 0.0)
            if search.phase is Phase.START and 0 < search.burst.volley <= SHALLOW:  # as many were let in at once
                concurrency.depths, doubts = (int(search.history.accepted_calls(0, search.burst.volley)),), 0
            verdict = concurrency.suspect(ticket.depth, deepest, curve.exact, latest, now, doubts)
            if verdict is Verdict.MINE:
                concurrency.allow_for(search.history.lately(search.pace, now) * search.trip)
                search.trace.note(now, Step.CAPPED, cap=concurrency.cap)
                if search.phase not in STEADY:
                    return search.refused(ticket, floor, now)
                search.cruise_from(latest)
        return 0.0 if verdict is Verdict.MINE else search.refused(ticket, floor, now)

    def _may_be_capped(self, ticket: Ticket, floor: float) -> bool:
        """Whether the depth of this refusal tells: a shallow one is as deep as the calls that were sent at once."""
        search, curve = self.search, self.search.curve
        if curve.window or curve.log or ticket.seq <= search.cut_seq:
            return False
        if ticket.depth < SHALLOW and curve.agreed >= AGREED:
            return False
        if ticket.depth < SHALLOWEST and search.pace * self.latency_model.mean < OVERLAP:
            return False
        if floor >= LONG_FLOOR and search.phase not in STEADY:
            return False
        return self._turned_over(ticket, HALF if ticket.depth >= SHALLOW else TURNS)

    def _turned_over(self, ticket: Ticket, turns: float = TURNS) -> bool:
        """Whether all that was in flight at the last cut, when the pace was another, is gone."""
        return ticket.seq - self.search.cut_seq > turns * ticket.depth

    def _crowd(self, ticket: Ticket) -> float:
        """How deep it was when the call left, for the pace at which it did."""
        return (ticket.depth + 0.5) / self.search.pace

    def _give_up(self, why: Step, latest: int, now: float) -> None:
        """A model that led is left: go on from what got through recently, or search where nothing was measured yet."""
        search = self.search
        if search.phase is not Phase.BLOCK:
            gauged = self.told.told_rate if self.told.is_gauged else 0.0
            lately = max(search.history.lately(search.pace, now), gauged)
            if search.phase is Phase.START and why is not Step.HEADERS_WRONG:
                search.pace, search.cut_seq = max(lately, min(search.pace, search.initial)), latest
            else:
                search.go_on_from(lately, latest)
        search.trace.note(now, why, pace=search.pace)

    def why_cap(self) -> ControllerNote:
        """What keeps calls from being in flight."""
        if self.concurrency.on and self.concurrency.cap <= self.latency_model.cap:
            return ControllerNote(PaceReason.CONCURRENCY, self.concurrency.cap)
        return ControllerNote(PaceReason.SLOW_ANSWERS, self.latency_model.cap)

    def why(self, now: float) -> ControllerNote:
        """What the pace goes by."""
        search = self.search
        if search.phase is Phase.BLOCK:
            return ControllerNote(PaceReason.WINDOW if search.curve.window else PaceReason.BLOCKED)
        if self.header_model.empty_until > now:
            return ControllerNote(PaceReason.EMPTY)
        if self.told.steered:
            return ControllerNote(PaceReason.HEADERS)
        if self.concurrency.on:
            return ControllerNote(PaceReason.CONCURRENCY, self.concurrency.cap)
        if self.latency_model.cap < inf:
            return ControllerNote(PaceReason.SLOW_ANSWERS, self.latency_model.cap)
        if search.phase not in STEADY:
            return ControllerNote(PaceReason.SEARCHING)
        quota = search.curve.quota
        if search.curve.sharing.on:
            return ControllerNote(PaceReason.SHARED, quota)
        return ControllerNote(PaceReason.PROBING if search.pace > 1.01 * quota else PaceReason.HOLDING, quota)
