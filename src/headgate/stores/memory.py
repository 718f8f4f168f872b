"""The store of one process: for several limiters that share a quota, for tests and for the lab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import fork_safety
from ..clock import Clock, SystemClock
from ..core.sharing.desk import Desk
from ..core.sharing.visit import Note, Reply, Visit
from ..identity import KEY_BYTES, Identities
from .contract import FORGOTTEN_AFTER, DeskView, view_of
from .naming import shown

MOST_DESKS = 100_000


class _Place:
    """One key's desk, and what lies beside it."""

    __slots__ = ("desk", "learned", "notes", "used_at")

    def __init__(self, desk: Desk, now: float) -> None:
        self.desk = desk
        self.notes: list[Note] = []
        self.learned = ""
        self.used_at = now


class MemoryStore:
    desks: type[Desk] = Desk

    def __init__(self, clock: Clock | None = None) -> None:
        self.where = "memory"
        self._clock = SystemClock() if clock is None else clock
        self._lock = fork_safety.lock()
        self._places: dict[str, _Place] = {}
        """By key, the one that was not visited for longest first."""
        self._names = Identities(b"\0" * KEY_BYTES)  # nobody but this process sees them

    def visit(self, visits: Sequence[tuple[str, Visit]]) -> list[Reply]:
        with self._lock:
            return [self._visit(key, visit) for key, visit in visits]

    def look(self) -> list[DeskView]:
        with self._lock:
            now, wall = self._clock.now(), self._clock.wall()
            return [view_of(shown(self._names.of(key)), one.desk, now, wall) for key, one in self._places.items()]

    def close(self) -> None:
        pass

    def __repr__(self) -> str:
        return "<MemoryStore>"

    def _visit(self, key: str, visit: Visit) -> Reply:
        now = self._clock.now()
        place = self._places.pop(key, None)
        if place is None or now - place.used_at > FORGOTTEN_AFTER:
            place = _Place(self.desks(visit.terms, now), now)
            if len(self._places) >= MOST_DESKS:
                del self._places[next(iter(self._places))]
        self._places[key] = place
        place.used_at = now
        reply, errand = place.desk.visit(visit, now, self._clock.wall())
        if errand.keep is not None:
            place.notes.append(errand.keep)
        if place.notes and place.notes[0].number <= errand.forget_to:
            place.notes = [note for note in place.notes if note.number > errand.forget_to]
        if errand.save:
            place.learned = errand.save
        if errand.give_after < 0 and not errand.give_learned:
            return reply
        notes = tuple(
            note for note in place.notes if note.number > errand.give_after and note.member != errand.but_not_of
        )
        return replace(reply, notes=notes, learned=place.learned if errand.give_learned else "")
