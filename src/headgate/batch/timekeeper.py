"""What is due in a run: rows to be tried again, rows that are late, the end of its time, notes for the next run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.decision import NEVER, UNKNOWN
from ..core.words import span
from .bell import Bell

if TYPE_CHECKING:
    from .lanes import Lane
    from .run import Run

NOTE = "runner"
NOTE_EVERY = 1.0
"""Seconds between two notes about pauses and ramps for the next run."""


class Timekeeper:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._alarm = Bell(run.clock)
        self._wakes_at = UNKNOWN
        self._note_at = NEVER
        self.began_at = self.last_start_at = run.clock.now()
        self._patience = UNKNOWN if run.config.standstill is None else run.config.standstill
        self.deadline_at = UNKNOWN if run.config.deadline is None else self.began_at + run.config.deadline

    async def keep_time(self) -> None:
        run = self._run
        while True:
            now = run.clock.now()
            for item in run.window.due(now):
                run.put(item, now)
            for item in run.window.late(now):
                run.fates.bury(item, f"deadline: not done within {span(run.config.item_deadline or 0.0)}")
            if now >= self.deadline_at:
                run.stop(f"deadline: {span(now - self.began_at)} are over", now=True)
            if run.is_paused:  # somebody is there, and wants it so
                self.last_start_at = now
            if now >= self.last_start_at + self._patience and not run.crew.working and run.unfinished:
                self._stand_still(None, None)
            if run.pauses.changed and now >= self._note_at:
                self._note_at = now + NOTE_EVERY
                await self.take_note()
            until = min(run.window.next_at(), self.deadline_at, self.last_start_at + self._patience)
            if run.pauses.changed:
                until = min(until, self._note_at)
            self._wakes_at = until if until > now else now + NOTE_EVERY
            await self._alarm.wait(self._wakes_at - now)

    def wake_by(self, instant: float) -> None:
        if instant < self._wakes_at:
            self._alarm.ring()

    # ------------------------------------------------------------------ standing still

    def consider_standstill(self) -> None:
        """A lane has to wait: if all have to, and for too long, waiting is no use."""
        run = self._run
        if run.crew.working or run.stopping or run.is_paused:
            return
        lanes = [lane for lane in run.all_lanes() if len(lane.shelf)]
        if not lanes:
            return
        first = min(lanes, key=lambda lane: lane.opens_at)
        opens_in = first.opens_at - run.clock.now()
        if opens_in == UNKNOWN and all(lane.waits_for == "credential" for lane in lanes):
            run.stop("no_credential: none of the credentials is accepted any more")
        elif opens_in >= self._patience:
            self._stand_still(first, None if opens_in == UNKNOWN else opens_in)

    def _stand_still(self, lane: Lane | None, seconds: float | None) -> None:
        report = self._run.report
        report.come_back_in = seconds
        if lane is not None:
            report.held_by, report.held_why = lane.waits_for, lane.why(self._run.clock.now())
        hint = "" if seconds is None else f"; come back in {span(seconds)}"
        self._run.stop(f"standstill: nothing can start{hint}")

    # ------------------------------------------------------------------ notes for the next run

    async def read_notes(self) -> None:
        if text := await self._run.ledger.noted(NOTE):
            self._run.pauses.take_up(text)

    async def take_note(self) -> None:
        await self._run.ledger.note(NOTE, self._run.pauses.to_text())

    def hear_of_pauses(self) -> None:
        """Pauses have changed; that is worth a note soon."""
        self.wake_by(self._note_at)
