"""Let a room say what it has just learned and why, to whoever listens.

Nobody listens in the heat: then not even the sentence is made. A simulation, a page or a person
who wants to understand a run passes a function and gets each turning point as it happens.
"""

from __future__ import annotations

from collections.abc import Callable

from .room import Room

Telling = Callable[[float, str, str], None]
"""Called with the instant, a kind (cut, raise, hold, resume, learn, mode) and a sentence."""


class Teller(Room):
    __slots__ = ("tell",)
    """Not of what is stored: a room's state is what its own class names."""

    def __init__(self) -> None:
        self.tell: Telling | None = None
