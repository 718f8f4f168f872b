"""A lane: the way of one gate key, or of one credential of it, along which rows leave.

    a row is there? ─> a worker is free? ─> no pause, credential free, within the caps ─> ramp ─> permit ─> the row, go
          └──────────────── no: sleep until something rings or the time comes ────────────────┘

A lane gets leave first and takes a row then. So one that has to wait holds neither a row nor
a worker, and what it cannot send goes by another lane of the same key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.decision import NEVER, UNKNOWN
from ..core.words import span
from ..credentials import Lease
from ..errors import CircuitOpenError, Refused
from ..limiter.permit import Permit
from .attempt import Attempt
from .bell import Bell
from .item import Item
from .window import Shelf

if TYPE_CHECKING:
    from .run import Run

LOOK_AGAIN = 5.0
"""Seconds after which a lane looks whether its credential was freed by somebody else."""
OF_A_CREDENTIAL = ("credential", "credential_held")
"""What a lane waits for that its credential alone can end."""
REFUSED_FOR = 1.0
"""Seconds to wait after a refusal that does not say for how long."""


class Lane:
    def __init__(self, run: Run, shelf: Shelf, label: str | None, gate_key: str) -> None:
        self.run = run
        self.shelf = shelf
        self.label = label
        self.gate_key = gate_key
        self.pause = run.pauses.of(shelf.key, self.gate_key)
        self.bell = Bell(run.clock)
        self.in_flight = 0
        self.last_sent_at: float = NEVER
        self.was_refused = False
        """Whether its circuit has been open since its last success."""
        self.last_failure = ""
        """What its last call that failed was told, in the server's own words, redacted; empty after a success."""
        self.waits_for = "rows"
        self.waits_since = run.clock.now()
        self.opens_at = NEVER
        """Before this instant nothing can start here, as far as is known; UNKNOWN: never, as it is now."""
        if self.pause.until > self.waits_since:
            run.limiter.pause(self.gate_key, self.pause.until - self.waits_since)

    async def go(self) -> None:
        """Send rows along for as long as the run lasts."""
        run = self.run
        while not run.stopping:
            now = run.clock.now()
            obstacle = self._obstacle(now)
            if obstacle is None:
                self.opens_at = NEVER
                obstacle = await self._send(now)
            if obstacle is not None:
                await self._wait(*obstacle)

    async def _wait(self, what: str, seconds: float) -> None:
        run = self.run
        now = run.clock.now()
        if what != self.waits_for:
            self.waits_for, self.waits_since = what, now
        if what != "workers":
            run.crew.pass_on()
        self.opens_at = NEVER
        if what not in ("rows", "workers"):
            self.opens_at = now + seconds
            run.timekeeper.consider_standstill()
        await self.bell.wait(min(seconds, LOOK_AGAIN) if what in OF_A_CREDENTIAL else seconds)

    # ------------------------------------------------------------------ may a row go?

    def _obstacle(self, now: float) -> tuple[str, float] | None:
        """What stands in the way and for how many seconds, as far as can be told without asking the limiter."""
        run = self.run
        if run.is_paused:
            return "paused", UNKNOWN
        first = self.shelf.first(now)
        if first is None:
            if len(self.shelf):
                run.report.retries_held += 1
                return "retry_budget", UNKNOWN  # until one of the retries in flight has ended
            return "rows", UNKNOWN
        if not run.crew.is_free:
            run.crew.want(self)
            return "workers", UNKNOWN
        if self.pause.until > now:
            return "cooldown", self.pause.until - now
        if self.label is not None and run.credentials is not None:
            back_in = run.credentials.back_in(self.label)
            if back_in is None or back_in > 0.0:
                return "credential", UNKNOWN if back_in is None else back_in
        if run.spending.is_capped and not run.spending.allows(first.cost):
            run.caps_reached()
            return "caps", UNKNOWN
        if run.pauses.ramp is not None:
            wait = run.pauses.ramp_wait()
            if wait > 0.0:
                return "ramp", wait
        return None

    async def _send(self, now: float) -> tuple[str, float] | None:
        """Get leave, then let a row go. Returns what came in between, if something did."""
        run, shelf = self.run, self.shelf
        chosen = shelf.first(now)
        assert chosen is not None
        try:
            permit = await self._leave_for(chosen, now)
        except CircuitOpenError as refusal:
            if not self.was_refused:
                run.tell("circuit_open", self.gate_key, reason=refusal.reason)
            self.was_refused = shelf.probing = True
            return "circuit", REFUSED_FOR if refusal.retry_after is None else refusal.retry_after
        except Refused as refusal:  # too large for this lane, perhaps; it fits another, or would not be here
            return "limiter", REFUSED_FOR if refusal.retry_after is None else refusal.retry_after
        now = run.clock.now()
        if not run.crew.is_free or self.pause.until > now or run.is_paused:
            permit.abandon()
            return None
        lease = self._lease()
        if lease is None and self.label is not None:
            permit.abandon()
            return "credential_held", LOOK_AGAIN  # or until a call of this run gives it back
        attempt = self._attempt_at(permit, lease, now)
        if attempt is not None:
            self.waits_for = ""
            run.crew.start(attempt)
        return None

    def next_at_once(self) -> Attempt | None:
        """For a worker that is free again: the next row, if nothing whatever stands in its way. Never waits.

        It is the way of nearly all rows while a run is in full swing; whatever is less plain is left to ``go``.
        """
        run = self.run
        now = run.clock.now()
        first = self.shelf.first(now)
        if first is None or first.size > run.least_cost or self.pause.until > now or run.pauses.ramp is not None:
            return None
        if run.is_paused:
            return None
        if run.spending.is_capped and not run.spending.allows(first.cost):
            return None
        try:
            permit = run.limiter.try_acquire(self.gate_key, first.asks)
        except Refused:
            return None
        if permit is None:
            return None
        lease = self._lease()
        if lease is None and self.label is not None:
            permit.abandon()
            return None
        return self._attempt_at(permit, lease, now)

    def _lease(self) -> Lease | None:
        """This lane's credential, if it has one and nobody else holds it."""
        keys = self.run.credentials
        return None if self.label is None or keys is None else keys.try_acquire(self.label, only=True)

    async def _leave_for(self, first: Item, now: float) -> Permit:
        """A permit for the first row, or for a smaller one where the first would have to wait.

        It waits in line for as long as a run may stand still. What comes meanwhile and takes longer, such as the end
        of a day's quota, is told at once, and the run can say when to come back.
        """
        run = self.run
        smaller = self.shelf.smaller(now) if first.size > run.least_cost else None
        if smaller is not None:
            permit = run.limiter.try_acquire(self.gate_key, first.asks)
            if permit is not None:
                return permit
            first = smaller
        run.crew.pass_on()
        self.waits_for, self.waits_since = "pace", now
        return await run.limiter.acquire_async(self.gate_key, first.asks, max_wait=run.config.standstill)

    def _attempt_at(self, permit: Permit, lease: Lease | None, now: float) -> Attempt | None:
        """Take a row for this permit, and make a call of it; None if there is none any more."""
        run = self.run
        item = self.shelf.take(permit.cost, now)
        if item is None:
            permit.abandon()
            if lease is not None:
                lease.release()
            return None
        run.pauses.resumed(self, now)
        item.place, item.put_aside = "", False
        self._note_waits(item, permit, now)
        if item.parked:
            item.parked = False
            run.report.rate_limited_items_redistributed += 1
        attempt = Attempt(item, self, permit, lease, run.config, run.clock, run.classify_error)
        self.last_sent_at, self.opens_at = now, NEVER
        self.in_flight += 1
        run.report.calls += 1
        run.timekeeper.last_start_at = now
        if run.spending.is_capped:
            run.spending.reserve(item.cost)
        return attempt

    def _note_waits(self, item: Item, permit: Permit, now: float) -> None:
        """Of a row's wait, what its lane waited for a permit is the pace's; the rest is what it waited for before."""
        waited = now - item.since
        if waited > 0.0:
            if permit.waited:
                pace = min(permit.waited, waited)
                item.note_wait("pace", pace)
                waited -= pace
            item.note_wait(item.why, waited)

    # ------------------------------------------------------------------ looking

    def why(self, now: float) -> str:
        """Why nothing leaves here at this moment, in a few words; empty if something does."""
        if self.waits_for in ("pace", "limiter"):
            seen = self.run.limiter.look(self.gate_key)
            return "" if seen is None else seen.reason
        left = (
            "" if self.opens_at in (NEVER, UNKNOWN) or self.opens_at <= now else f", {span(self.opens_at - now)} to go"
        )
        words = {
            "": "",
            "rows": "no rows",
            "workers": "all workers are busy",
            "paused": "paused by an operator",
            "cooldown": "pausing after a rate limit",
            "credential": "its key is retired" if self.opens_at == UNKNOWN else "its key rests",
            "credential_held": "its key is in use (at_once)",
            "circuit": "its circuit is open after failures",
            "ramp": "coming back slowly",
            "retry_budget": "the retry budget is spent",
            "caps": "the cap on tokens or cost is reached",
        }
        return words.get(self.waits_for, self.waits_for) + left
