"""Where a page or a terminal gets what it shows: a run in this process, or one it reads about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .snapshot import Action, EventLine, RunSnapshot, Timeline


class ActionRefusedError(Exception):
    """What was asked for cannot be done; the message says why, for the person who asked."""


class Source(Protocol):
    """One run. Safe for threads; every call is cheap enough to be made a few times a second."""

    def snapshot(self) -> RunSnapshot:
        """How it stands; once it has ended, how it ended."""
        ...

    def events(self, after: int, most: int = 200) -> Sequence[EventLine]:
        """The newest events after that number, the oldest of them first; bounded."""
        ...

    def timelines(self, keys: Sequence[str], since: float) -> Sequence[Timeline]:
        """How these keys have been going since then (Unix time), for a chart; at most a few hundred instants each."""
        ...

    def act(self, action: Action) -> str:
        """Do what an operator wants; returns a sentence that says what was done. Raises ``ActionRefusedError``."""
        ...


class Sources(Protocol):
    """All runs that can be seen from here."""

    def runs(self) -> Sequence[Source]: ...
