"""What the seeker knows, and what it does while nothing gets in: hold, probe, go on from what that has taught.

CRUISE, LOOK, SEEK, START --nothing gets in--> BLOCK --a probe is let in--> CRUISE, or START again
                                                 a long one: block.py tells window or penalty
"""

from __future__ import annotations

from enum import Enum

from ...decision import NEVER
from ...ticket import Ticket
from ...words import brief
from .block import PROBE_GRACE, Block
from .books import Books
from .burst import Burst
from .estimator import Meter
from .growth import SLOWEST_QUOTA, Curve
from .lookout import Lookout
from .story import Teller

LONG_FLOOR = 2.0
"""A Retry-After from here on is a block; a shorter one is rounded up from almost nothing."""

LEAST_RESTART = 0.25
"""The share of the initial pace to start over with when a block has taught nothing."""

HANDFUL, DOUBTS = 8.0, 3
"""Calls from one block to the next that are too few for a quota as large as was believed, so often in a row."""

SKIP_AFTER_BLOCK = 1.0
"""Slots to let pass, so that the pipe drains."""


class Phase(Enum):
    START = "start"
    CRUISE = "cruise"
    LOOK = "look"
    SEEK = "seek"
    BLOCK = "block"


class Blocked(Teller):
    """What a ``QuotaSeeker`` knows, and the half of it that waits a block out."""

    __slots__ = (
        "block",
        "books",
        "burst",
        "curve",
        "cut_seq",
        "doubling",
        "doubts",
        "echoes",
        "floor_until",
        "initial",
        "last_refused_at",
        "last_refused_seq",
        "lookout",
        "meter",
        "pace",
        "phase",
        "probe_until",
        "resume_as",
        "trip",
    )

    def __init__(self, initial: float, pace: float, opened_at: float, least: float = SLOWEST_QUOTA) -> None:
        super().__init__()
        self.initial = initial
        self.pace = pace
        self.phase = Phase.START
        self.resume_as = Phase.START
        """What the block that is going on has interrupted."""
        self.cut_seq = 0
        """The last call sent before the last cut: answers up to it are old news."""
        self.floor_until = NEVER
        self.probe_until = NEVER
        self.trip = 0.1
        """Seconds that a refusal takes to come back."""
        self.last_refused_seq = 0
        self.last_refused_at = 0.0
        self.doubling = 0.0
        """Seconds that a search takes to double at least: longer after a long block."""
        self.doubts = 0
        """Blocks in a row after a handful of calls."""
        self.echoes = 0
        self.books = Books(opened_at)
        self.burst = Burst()
        self.meter = Meter()
        self.curve = Curve(initial, least)
        self.lookout = Lookout()
        self.block = Block(opened_at)

    @property
    def steady(self) -> bool:
        return self.phase is Phase.CRUISE or self.phase is Phase.LOOK

    @property
    def measured(self) -> bool:
        """Whether the pace follows a quota that was measured; a block interrupts that, and ends in it again."""
        return (self.resume_as if self.phase is Phase.BLOCK else self.phase) in (Phase.CRUISE, Phase.LOOK)

    def hold(self, until: float, now: float) -> None:
        """Nothing starts before ``until``; the meter must know that it was our own doing."""
        self.meter.silence += max(0.0, until - max(now, self.floor_until))
        self.floor_until = max(self.floor_until, until)

    def cruise_from(self, seq: int) -> None:
        """Cut: settle just below the quota and let the period begin. Calls up to ``seq`` are old news."""
        self.phase, self.cut_seq = Phase.CRUISE, seq
        self.pace = self.curve.start()

    def enter_block(self, floor: float, now: float) -> None:
        self._doubt()
        if self.phase is not Phase.BLOCK:
            self.resume_as, self.phase = self.phase, Phase.BLOCK
        block = self.block
        block.enter(self.last_refused_seq, self.last_refused_at, floor >= LONG_FLOOR, now, self.curve.window)
        self.hold(now + max(floor, block.hold(now, self.trip, self.curve)), now)
        if self.tell:
            why = f"told to wait {floor:g} s" if floor else "nothing gets in"
            self.tell(now, "hold", f"{why}: a probe in {self.floor_until - now:.2f} s")

    def _doubt(self) -> None:
        """Blocked again and again after a handful of calls, far below what is known: it was a burst. Search again."""
        block, curve = self.block, self.curve
        if not self.steady or block.turns.sure or not self.last_refused_seq > block.began_seq > 0:
            return
        calls = self.books.accepted_calls(block.began_seq, self.last_refused_seq)
        rate = (calls + 0.5) / max(self.last_refused_at - block.began_at, 1e-3)
        self.doubts = self.doubts + 1 if calls < HANDFUL and rate < 0.5 * curve.quota else 0
        if self.doubts >= DOUBTS:
            self.doubts = 0
            curve.window = block.last_length = 0.0
            self.meter.forget()
            self.phase, self.pace = Phase.START, max(rate, LEAST_RESTART * self.initial)

    def send_blocked(self, ticket: Ticket, now: float) -> None:
        """A call leaves in a block: it is the probe, or proof that the probe was let in."""
        if not self.block.probe_seq:
            self.block.probe(ticket.seq, now)
            self.probe_until = now + 3.0 * self.trip + PROBE_GRACE
        else:
            self.resume(ticket.seq - 1, now)

    def refused_blocked(self, ticket: Ticket, floor: float, now: float) -> None:
        """A refusal in a block: of the probe, or of a call from before it."""
        block = self.block
        if not 0 < block.probe_seq <= ticket.seq:
            if floor > 0.0:
                self.hold(now + floor, now)
            return
        block.probe_refused(ticket.sent_at)
        self.probe_until = NEVER
        self.hold(now + max(floor, block.hold(now, self.trip, self.curve)), now)

    def resume(self, latest: int, now: float) -> float:
        """The probe was let in. Returns the slots to skip."""
        block = self.block
        self.meter.silence += SKIP_AFTER_BLOCK / self.pace + max(0.0, now - block.probe_at)
        self.probe_until = NEVER
        if self.tell:
            self.tell(now, "resume", f"a probe was let in after {block.length:.2f} s")
        if block.is_lesson(self.books.accepted):
            self._learn_window(latest, now)
        elif self.resume_as is Phase.START:  # up again from well below, and from a refusal to measure from
            self.phase, self.cut_seq = Phase.START, latest
        else:
            self.cruise_from(latest)
        block.probe_seq = 0
        return SKIP_AFTER_BLOCK

    def _learn_window(self, latest: int, now: float) -> None:
        """A long block is over: the quota is a window, or refusals are punished."""
        curve, block = self.curve, self.block
        calls = self.books.accepted_calls(block.reopened_seq, block.probe_seq)
        quota, first = block.teach(curve, calls, self.books.accepted, self.resume_as is Phase.SEEK)
        self.echoes = 0
        if self.resume_as in (Phase.CRUISE, Phase.LOOK) and not first:
            curve.count_cost()
        curve.refused = 0
        self.meter.forget()
        if calls < 5.0 or (first and block.told):  # one such block may have any cause: search again, carefully
            curve.window = 0.0
            self.phase, self.cut_seq = Phase.START, latest
            self.pace = max(LEAST_RESTART * self.initial, quota, SLOWEST_QUOTA)
            self.doubling = block.length / 16.0
            return
        doubtful = curve.agreed >= 2 and quota < 0.5 * curve.quota  # never believe a collapse at once
        curve.learn(max(quota, 0.5 * curve.quota) if doubtful else quota, first or doubtful)
        self.cruise_from(latest)
        if self.tell:
            what = (
                f"counts over about {curve.window:.3g} s" if curve.window else f"shuts us out for {curve.penalty:.3g} s"
            )
            self.tell(
                now, "learn", f"blocked for {block.length:.3g} s: the server {what}, {brief(curve.quota)}/s on average"
            )
