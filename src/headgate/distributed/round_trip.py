"""How long exchanges with the coordinator take, and by how much the last reply was delayed.

    coordinator  ───────●───────────>  its clock says reply.now
                      /   \\
    member       ────●─────●────────>  sent_at   now

A reply says what time it is at the coordinator, and cannot arrive before that. So ``reply.now - now`` is at most the
clock offset between the two, and of several replies the one with the largest difference was under way for the shortest
time. What another falls short of it is by how much that one was delayed: half a second while 64 processes start on a
small machine, and a moment later nothing. Numbers that all members date from when a reply arrived would then come due
twice as fast.
"""

from __future__ import annotations

from ..core.decision import NEVER, UNKNOWN

NEAR = 0.005
"""Seconds: where exchanges take longer, a number is not fetched just when it is needed."""
FAR = 0.05
"""Seconds that an exchange takes with a store that is far away."""
SMOOTHING, MOST_TIMES_USUAL = 0.2, 8.0
"""How much the last exchange counts for how long they usually take, and how many times that it counts for at most."""
QUICKEST_FOR = 2.0
"""Seconds for which the quickest reply counts, and as long again until a quicker one follows."""


class RoundTrip:
    __slots__ = ("_next", "_since", "delayed", "offset", "quickest", "sent_at", "usual")

    def __init__(self) -> None:
        self.sent_at = NEVER
        """When the last request that was answered left."""
        self.usual = 0.0
        """Seconds that recent exchanges took, on average."""
        self.quickest = UNKNOWN
        """Seconds that the quickest recent exchange took."""
        self.offset = NEVER
        """The coordinator's clock minus ours, at least: by the quickest recent reply."""
        self.delayed = 0.0
        """Seconds for which the last reply was under way longer than that one."""
        self._since, self._next = NEVER, (NEVER, UNKNOWN)
        """When the quickest was last replaced, and the offset and the time of the quickest since then."""

    @property
    def is_far(self) -> bool:
        return self.usual > NEAR

    def note(self, there: float, sent_at: float, now: float) -> None:
        """A request that left at ``sent_at`` was answered at ``there``, by the coordinator's clock."""
        self.sent_at = sent_at
        offset, took = there - now, now - sent_at
        if now > self._since + QUICKEST_FOR:
            (self.offset, self.quickest), self._since, self._next = self._next, now, (offset, took)
        if self.offset > offset + took:  # its clock was set back
            self.offset, self._next = offset, (offset, took)
        self.offset, self.quickest = max(self.offset, offset), min(self.quickest, took)
        self._next = max(self._next[0], offset), min(self._next[1], took)
        self.delayed = self.offset - offset
        self._average(took)

    def _average(self, took: float) -> None:
        """A single exchange that was delayed does not make the next leases much longer."""
        if self.usual:
            took = min(took, max(FAR, MOST_TIMES_USUAL * self.usual))
        self.usual += (took - self.usual) * (SMOOTHING if self.usual else 1.0)
