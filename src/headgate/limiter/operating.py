"""What an operator says to a limiter while it runs: pause all of it, let it go on, hold a key under a limit.

Such words hold for this limiter alone, until they are taken back or the program ends; nothing that was learned is lost
by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from ..checks import number
from ..core.decision import LONGEST_WAIT
from ..errors import ConfigError
from ..events import Event
from .checks import check_wait
from .key_gate import PAUSED, KeyGate
from .serving import Serving
from .snapshot import KeySnapshot, key_snapshot

LOOKED_AT_ONCE = 32
"""Keys that are looked at while the lock is held; callers get it in between."""


class Operating(Serving):
    @property
    def on_event(self) -> Callable[[Event], None] | None:
        """Who is told what happens; may be changed at any time."""
        return self.tell.listener

    @on_event.setter
    def on_event(self, listener: Callable[[Event], None] | None) -> None:
        self.tell.listen(listener)

    # ------------------------------------------------------------------ pausing

    def pause(self, key: str, seconds: float) -> None:
        """Let nothing start under this key for so long, whoever asks; then everybody comes back by the ramp.

        A longer pause that holds already stays.
        """
        check_wait("seconds", seconds)
        with self._lock:
            now = self._now()
            gate = self._keys.open(key, now)
            before = gate.look()
            gate.rest(min(seconds, LONGEST_WAIT), now)
            self.tell.note_changes(gate, before, gate.look(), now)
            self.serve(gate, now)
        self.tell.flush()

    def pause_all(self) -> None:
        """Let nothing start, whatever the key, until ``resume_all``. Calls under way go on, callers wait in line."""
        with self._lock:
            self.is_paused = True
            self._find = _nobody  # so that nobody takes the short way

    def resume_all(self) -> None:
        """Go on after ``pause_all``: each key at its pace, those who waited first come first served."""
        with self._lock:
            self.is_paused, self._find = False, self._gates.get
            now = self._now()
            for gate in [gate for gate in self._gates.values() if gate.line is not None]:
                self.serve(gate, now)
        self.tell.flush()

    # ------------------------------------------------------------------ limits

    def limit(self, key: str, rps: float | None) -> None:
        """Let no more than ``rps`` calls a second start under this key from now on; None lifts that.

        What is learned, and what the server says, may hold it further below. Where the key is shared with other
        processes, it is a limit for this one.
        """
        if rps is not None and not 0 < number(rps) < inf:
            raise ConfigError(f"rps={rps!r} must be a number of calls a second above 0, or None for no limit")
        with self._lock:
            now = self._now()
            self._keys.limit(key, None if rps is None else float(rps), now)
            gate = self._keys.open(key, now)
            self.tell.note("limited", gate, now, "the limit is lifted" if rps is None else f"{rps:g} calls/s at most")
            self.serve(gate, now)
        self.tell.flush()

    # ------------------------------------------------------------------ looking

    def totals(self) -> dict[str, int]:
        """Of all keys so far: calls let through, those of them that waited, calls refused, answers to send again."""
        with self._lock:
            return {
                "calls": self._keys.calls(),
                "throttled": self._waited,
                "denied": self._denied,
                "retries": self._again,
                "keys": len(self._keys),
            }

    def newest(self, most: int) -> list[str]:
        """The names of the keys that were used last, the newest first."""
        with self._lock:
            return self._keys.names(most)

    def look_at(self, keys: Iterable[str]) -> list[KeySnapshot]:
        """These keys, those of them that are in use. Callers are not held up, however many there are."""
        found: list[KeySnapshot] = []
        names = list(keys)
        for first in range(0, len(names), LOOKED_AT_ONCE):
            with self._lock:
                now = self._now()
                gates = (self._keys.look(name, now) for name in names[first : first + LOOKED_AT_ONCE])
                found += [self._seen(gate, now) for gate in gates if gate is not None]
        return found

    def look(self, key: str) -> KeySnapshot | None:
        """One key at this moment; None if it is not in use. Looking takes nothing, not even a probe."""
        found = self.look_at((key,))
        return found[0] if found else None

    def _seen(self, gate: KeyGate, now: float) -> KeySnapshot:
        return key_snapshot(gate, now, PAUSED if self.is_paused else "")


def _nobody(_: str) -> None:
    return None
