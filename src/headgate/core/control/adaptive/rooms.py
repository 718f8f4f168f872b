"""The kinds of limit a server can have, asked in order of what is surest.

headers.py       the server says what is left: follow it while it proves right
concurrency.py   refused at one depth, or only in a crowd: hold the depth, leave the pace free
seeker.py        refused at some pace: measure the quota and hold it
delay.py         served, but slower and slower: hold less in flight
"""

from __future__ import annotations

from math import inf

from ...signal import Limit
from ...ticket import Ticket
from ...words import brief
from .blocked import Phase
from .concurrency import ConcurrencyCap, Verdict
from .delay import DelayWatch
from .headers import HeaderLaw
from .room import Room
from .seeker import QuotaSeeker
from .story import Telling

CAPPED_HEADROOM = 4.0
"""At a cap on calls in flight the pace is this many times what gets done, so that it does not limit."""

TURNS = 2.0
"""After so many times the calls in flight, those of the last cut are gone."""

SHORTEST_REST = 0.1
"""Seconds of rest after a refusal that the headers had not foreseen."""


class Rooms(Room):
    __slots__ = ("concurrency", "delay", "law", "seeker")

    def __init__(self, initial: float = 1.0, pace: float = 1.0, opened_at: float = 0.0, least: float = 0.0) -> None:
        self.seeker = QuotaSeeker(initial, pace, opened_at, least)
        self.law = HeaderLaw()
        self.concurrency = ConcurrencyCap()
        self.delay = DelayWatch()

    @property
    def blocked(self) -> bool:
        return self.seeker.phase is Phase.BLOCK

    @property
    def searching(self) -> bool:
        """Whether the pace is moving fast."""
        return not self.seeker.steady

    def listen(self, telling: Telling) -> None:
        """Tell what is learned from now on, and why."""
        self.seeker.tell = telling

    def _tell(self, now: float, sentence: str) -> None:
        if self.seeker.tell:
            self.seeker.tell(now, "mode", sentence)

    def idle(self, seq: int, now: float) -> None:
        """Nobody waits for the pace: what is sent meanwhile measures the caller, not the server."""
        if not self.blocked:
            self.seeker.meter.forget()
            self.seeker.block.busy_from, self.seeker.block.busy_after = now, seq

    def rest(self) -> None:
        """Let go of what matters only in the heat: a sketch of the books stays, a measurement under way does not."""
        seeker = self.seeker
        seeker.books.sends.rest()
        seeker.books.refusals.rest()
        seeker.meter.forget()
        seeker.curve.sharing.measures = ()
        self.concurrency.rest()

    def advance(self, dt: float, seq: int, depth: int, wanted: bool, now: float) -> None:
        """``dt`` seconds passed; ``wanted`` says that somebody waited for the pace meanwhile."""
        self.seeker.books.sends.mark(now, seq)
        if self.concurrency.on:
            self.concurrency.grow(dt, depth, seq, self.seeker.trip)
        elif wanted:
            self.seeker.grow(dt, now, seq)

    def verdict(self, seq: int, depth: int, now: float) -> tuple[float, float, float]:
        """The pace, the instant before which nothing starts, and the calls in flight at most."""
        seeker, law, concurrency, delay = self.seeker, self.law, self.concurrency, self.delay
        pace, hold, cap = seeker.pace, max(seeker.floor_until, seeker.probe_until), delay.cap
        if not self.blocked:
            hold = max(hold, law.empty_until)
            if law.steered and not law.steers(depth, now):
                law.steered = False
                self._go_on_blind("no headers come any more", seq, now)
                pace = seeker.pace
            if law.steers(depth, now):
                if not law.steered:
                    self._tell(now, f"the headers say what is left of {law.limit:g}: following them")
                pace, empty_until = law.pace(seq, seeker.books.sends, now)
                hold = max(hold, empty_until)
                seeker.pace = pace
        if concurrency.on:
            cap = min(cap, concurrency.cap)
            pace = max(pace, CAPPED_HEADROOM * delay.throughput)
        return pace, hold, cap

    def read_headers(self, ticket: Ticket, limits: tuple[Limit, ...], now: float) -> None:
        steered = self.law.steered
        useful = self.law.read(limits, ticket, self.seeker.books.sends, self.delay.mean, self.seeker.trip, now)
        if steered and not (useful and self.law.leads):
            self.law.steered = False
            self._go_on_blind("the headers are of no use any more", ticket.gate.seq, now)

    def served(self, ticket: Ticket, latency: float, done: int, now: float) -> bool:
        """A sampled call was served, the ``done``-th. True if that may have changed the verdict."""
        delay, seeker, latest = self.delay, self.seeker, ticket.gate.seq
        if seeker.steady and self._turned_over(ticket):
            self.concurrency.served(self._crowd(ticket))
        median = delay.sample(ticket.seq, latest, latency, done, now)
        if median is None:
            return False
        free = not self.concurrency.on and not self.blocked
        searching = self.searching and not self.law.steered
        overload = delay.judge(median, ticket.depth + 1, done, free, searching, now)
        delay.begin(latest, done, now)
        if overload is not None:
            seeker.go_on_from(overload, latest)
            self._tell(now, f"answers take twice as long and no more get done: at most {delay.cap:.0f} in flight")
        return True

    def refused(self, ticket: Ticket, latency: float, floor: float, deepest: int, now: float) -> float:
        """Find the room whose refusal this is. ``floor`` is the Retry-After, or 0. Returns the slots to skip."""
        latest, seeker, law, concurrency = ticket.gate.seq, self.seeker, self.law, self.concurrency
        seeker.note(ticket, latency)
        if self.blocked:
            seeker.refused_blocked(ticket, floor, now)
            return 0.0
        if law.leads:
            if law.refused(latest, floor, now):
                seeker.hold(now + (floor or max(SHORTEST_REST, 2.0 * seeker.trip)), now)
                return 0.0
            self._go_on_blind("the headers do not describe what refuses us", latest, now)
        verdict = Verdict.NOT_MINE
        if concurrency.on:
            throughput = seeker.books.lately(seeker.pace, now)
            verdict = concurrency.refused(ticket.seq, latest, throughput, seeker.curve.cost, now)
            if verdict is Verdict.LET_GO:
                self._go_on_blind("refused where it was fine: no cap after all", latest, now)
        elif not seeker.curve.window and ticket.seq > seeker.cut_seq:
            if seeker.phase is Phase.CRUISE and self._turned_over(ticket):
                concurrency.weigh(self._crowd(ticket), ticket.depth)
            verdict = concurrency.suspect(ticket.depth, deepest, seeker.curve.exact, seeker.steady, latest, now)
            if verdict is Verdict.MINE:
                seeker.cruise_from(latest)
                self._tell(now, f"always refused with {concurrency.cap} in flight: a cap, keeping to it")
        return 0.0 if verdict is Verdict.MINE else seeker.refused(ticket, floor, now)

    def _turned_over(self, ticket: Ticket) -> bool:
        """Whether all that was in flight at the last cut, when the pace was another, is gone."""
        return ticket.seq - self.seeker.cut_seq > TURNS * ticket.depth

    def _crowd(self, ticket: Ticket) -> float:
        """How deep it was when the call left, for the pace at which it did."""
        return (ticket.depth + 0.5) / self.seeker.pace

    def _go_on_blind(self, why: str, latest: int, now: float) -> None:
        """A rule that led has proved wrong: go on from what got through lately."""
        if not self.blocked:
            self.seeker.go_on_from(self.seeker.books.lately(self.seeker.pace, now), latest)
        self._tell(now, f"{why}; going on at {brief(self.seeker.pace)}/s")

    def why_cap(self) -> str:
        if self.concurrency.on and self.concurrency.cap <= self.delay.cap:
            return "more at once have been refused"
        return "more at once have only made answers slower"

    def why(self) -> str:
        if self.blocked:
            return "waiting for a window to reopen" if self.seeker.curve.window else "waiting until a probe is let in"
        if self.law.steered:
            return "following the server's headers"
        if self.concurrency.on:
            return f"keeping to {self.concurrency.cap} calls at a time"
        if self.delay.cap < inf:
            return f"keeping to {self.delay.cap:.0f} calls at a time since answers got slow"
        if self.searching:
            return "looking for the limit"
        quota = self.seeker.curve.quota
        if self.seeker.curve.sharing.on:
            return f"sharing the quota with others, {quota:.{1 if quota >= 1.0 else 3}f}/s at the last refusal"
        doing = "testing above" if self.seeker.pace > 1.01 * quota else "holding"
        return f"{doing} the measured {quota:.{1 if quota >= 1.0 else 3}f}/s"
