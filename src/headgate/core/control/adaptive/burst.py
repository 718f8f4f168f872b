"""How much a fresh server lets in at once, and what to do where that is a single call.

The first search sends a volley; what is let in of it before the first refusal is, at most, the server's burst.
Where it is one call, nothing accrues in advance: time spent below the quota is lost, so that what got
through between two refusals measures our own pace. Only the paces themselves tell:

    let in at this pace             the quota is at least that
    refused a little above it       it is at most that: the next look goes half as far
"""

from __future__ import annotations

from math import inf

from .books import Books
from .room import Room

SEARCHED, SOUGHT, CRUISED = 0.5, 0.9, 0.97
"""What of a pace that was refused to go on with: after the first search, after a search upwards, at rest."""

MOST_CUT = 0.1
"""How far to cut when many are refused in a row: at any pace above its quota such a server refuses every other call."""

LEAST_LOOK = 0.03
"""How far above the quota a look goes at least."""


class Burst(Room):
    __slots__ = ("look", "most", "volley")

    def __init__(self) -> None:
        self.volley = 0
        """The last call of the volley, while it is not counted yet."""
        self.most = inf
        """Calls that are let in at once, at most."""
        self.look = 1.0
        """How far above the quota a look goes at most, where nothing accrues."""

    @property
    def single(self) -> bool:
        """Whether nothing accrues: calls are kept apart, and that is all."""
        return self.most <= 1.0

    def count(self, books: Books) -> None:
        """The answers to the volley are back."""
        if self.volley and self.most == inf:
            self.most = books.accepted_calls(0, self.volley)

    def looked(self, excess: float) -> None:
        """A look that went so far was refused: the quota lies between."""
        self.look = max(0.5 * min(self.look, excess), LEAST_LOOK)

    def found(self) -> None:
        """A search upwards is over: who knows how far the next one has to go."""
        self.look = 1.0
