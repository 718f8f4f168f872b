"""The store of one process: for several limiters that share a quota, for tests and for the lab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ... import fork_safety
from ...clock import Clock, SystemClock
from ...identity import KEY_BYTES, Identities
from ..coordinator import QuotaCoordinator
from ..grants import PERIOD
from ..protocol import Note, SyncReply, SyncRequest
from ..store import FORGOTTEN_AFTER, FormerStoreNames, QuotaView, shown, view_of

MOST_KEYS = 100_000


class _SharedKey:
    """One key's coordinator, and what is kept beside it."""

    __slots__ = ("coordinator", "learned", "notes", "used_at")

    def __init__(self, coordinator: QuotaCoordinator, now: float) -> None:
        self.coordinator = coordinator
        self.notes: list[Note] = []
        self.learned = ""
        self.used_at = now


class MemoryStore(FormerStoreNames):
    def __init__(self, clock: Clock | None = None, *, lease: float = PERIOD) -> None:
        """``lease``: for how many seconds of the rate a member gets permits at a time."""
        self.where = "memory"
        self._lease = lease
        self._clock = SystemClock() if clock is None else clock
        self._lock = fork_safety.lock()
        self._keys: dict[str, _SharedKey] = {}
        """By key, the least recently used first."""
        self._names = Identities(b"\0" * KEY_BYTES)  # only this process sees them

    def sync(self, requests: Sequence[tuple[str, SyncRequest]]) -> list[SyncReply]:
        with self._lock:
            return [self._sync(key, request) for key, request in requests]

    def snapshot(self) -> list[QuotaView]:
        with self._lock:
            now, wall = self._clock.now(), self._clock.wall()
            return [view_of(shown(self._names.of(key)), one.coordinator, now, wall) for key, one in self._keys.items()]

    def close(self) -> None:
        pass

    def __repr__(self) -> str:
        return "<MemoryStore>"

    def _sync(self, key: str, request: SyncRequest) -> SyncReply:
        now = self._clock.now()
        shared = self._keys.pop(key, None)
        if shared is None or now - shared.used_at > FORGOTTEN_AFTER:
            shared = _SharedKey(QuotaCoordinator(request.terms, now, self._lease), now)
            if len(self._keys) >= MOST_KEYS:
                del self._keys[next(iter(self._keys))]
        self._keys[key] = shared
        shared.used_at = now
        reply, actions = shared.coordinator.sync(request, now, self._clock.wall())
        if actions.keep is not None:
            shared.notes.append(actions.keep)
        if shared.notes and shared.notes[0].number <= actions.forget_to:
            shared.notes = [note for note in shared.notes if note.number > actions.forget_to]
        if actions.save:
            shared.learned = actions.save
        if actions.give_after < 0 and not actions.give_learned:
            return reply
        notes = tuple(
            note for note in shared.notes if note.number > actions.give_after and note.member != actions.but_not_of
        )
        return replace(reply, notes=notes, learned=shared.learned if actions.give_learned else "")
