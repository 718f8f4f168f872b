"""What the leader does: run the gate of a key over what all members saw, and say what follows from it.

The gate is the very one that a process alone would have, in the desk's time. It lets nobody in here; it
watches calls that were let in by their numbers, and answers that came back to whichever member. So what is learned
together is learned by the same code, in the same order of events, as in a single process.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from ..decision import CircuitState, Wait
from ..gate import Gate, GatePolicy
from ..ticket import Ticket
from .notebook import ABANDONED, Seen, read
from .visit import NO_CAP, Note, Publication

MOST_OUT = 100_000
"""Calls of all members that are remembered until they are answered."""
SAVE_EVERY = 0.25
"""Seconds between two savings of what was learned; what is lost with a leader is in the notes since."""
WORTH_TELLING = 0.002
"""A rate that moved by less than this share can wait for the next visit."""


class Watched(Gate):
    """A gate that others pass: it numbers their calls as they become known, and objects to none."""

    __slots__ = ("skipped",)

    def __init__(self, policy: GatePolicy) -> None:
        super().__init__(policy)
        self.skipped = 0.0

    def admit(self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None) -> Ticket:
        breaker = self.breaker
        left_before = breaker.state is CircuitState.OPEN and now < breaker.opened_at + breaker.policy.cool_off
        self.seq += 1
        self.last_sent_at = now
        ticket = Ticket(self, self.seq, now, len(self.flight))
        if self.watches_sends:
            self.controller.on_send(ticket, now)
        self.flight.out[self.seq] = now
        if not left_before:  # else it left before the circuit opened, and is no probe
            breaker.admit(self.seq, now)
        self.follow(now)
        return ticket

    def let_pass(self, slots: float, now: float) -> None:
        self.skipped = max(self.skipped, slots)


class Learning:
    def __init__(self, policy: GatePolicy, fence: int, now: float) -> None:
        self.gate = Watched(policy)
        self.fence = fence
        self.read = 0
        """The number of the newest note that was read."""
        self.at = now
        self._out: OrderedDict[tuple[str, int], Ticket] = OrderedDict()
        self._saved_at = now
        self._told: tuple[Any, ...] = ()
        self.has_news = True
        """Whether something follows from what was seen that others should know at once."""

    def go_on(self, learned: str, covers: int) -> None:
        """Go on from what a leader before saved."""
        self.read = max(self.read, covers)
        try:
            self.gate.load_state(_tuples(json.loads(learned)), self.at)
        except (ValueError, TypeError, KeyError, IndexError):  # of another version or another strategy: learn anew
            self.gate = Watched(self.gate.policy)

    def take(self, notes: Iterable[Note], own: list[Seen], own_waited_at: float, now: float, draw: float) -> None:
        """Learn from what was seen, in the order in which it happened."""
        seen, waited_at = list(own), own_waited_at
        for note in notes:
            more, waited = read(note.text, note.member, note.at)
            seen += more
            waited_at = max(waited_at, waited)
            self.read = max(self.read, note.number)
        seen.sort(key=lambda one: one.at)
        for one in seen:
            self.at = max(self.at, min(one.at, now))
            self._see(one, draw)
        gate = self.gate
        if waited_at > now - 1.0:
            gate.note_wait(Wait(now, "pace"), now)
        if gate.seq >= gate.check_at:
            gate.look_after(now)
        self.at = max(self.at, now)
        gate.follow(self.at)
        self.has_news = self._differs()

    def _see(self, one: Seen, draw: float) -> None:
        gate, name = self.gate, (one.member, one.number)
        if one.signal is None and not one.end:
            self._out[name] = gate.admit(self.at)
            if len(self._out) > MOST_OUT:
                gate.release(self._out.popitem(last=False)[1])
            return
        ticket = self._out.pop(name, None)
        if one.signal is not None and ticket is not None:
            gate.report(ticket, one.signal, one.latency, self.at, draw)
        elif one.signal is not None:
            gate.teach(one.signal, one.latency, self.at, draw)
        elif ticket is not None and one.end == ABANDONED:
            gate.abandon(ticket)
        elif ticket is not None:
            gate.release(ticket)

    def publication(self, now: float) -> Publication:
        """What everybody should go by from now on."""
        gate = self.gate
        now = max(now, self.at)
        gate.follow(now)
        learned = ""
        if now >= self._saved_at + SAVE_EVERY:
            learned = self.saved()
            self._saved_at = now
        breaker = gate.breaker
        circuit_open = breaker.state is not CircuitState.CLOSED
        cap = gate.controller.cap
        self._told, skipped = self._summary(), gate.skipped
        self.has_news, gate.skipped = False, 0.0
        return Publication(
            fence=self.fence,
            rate=gate.rate,
            hold=max(0.0, gate.opens_at - now),
            skip=skipped,
            cap=NO_CAP if cap == float("inf") else max(1.0, cap),
            circuit_open=circuit_open,
            open_for=max(0.0, breaker.opened_at + breaker.policy.cool_off - now) if circuit_open else 0.0,
            read=self.read,
            learned=learned,
            covers=self.read if learned else 0,
        )

    def saved(self) -> str:
        """All that was learned, as text; empty if this strategy cannot be put away."""
        state = self.gate.to_state()
        return "" if state is None else json.dumps(_lists(state), separators=(",", ":"))

    def _summary(self) -> tuple[Any, ...]:
        gate = self.gate
        return gate.opens_at, gate.controller.cap, gate.breaker.state, gate.breaker.opened_at, gate.rate

    def _differs(self) -> bool:
        if not self._told or self.gate.skipped:
            return True
        now = self._summary()
        return now[:-1] != self._told[:-1] or abs(now[-1] - self._told[-1]) > WORTH_TELLING * self._told[-1]


def _lists(value: Any) -> Any:
    """Plain values as JSON knows them; bytes as a pair with an empty name."""
    if isinstance(value, bytes):
        return {"": b64encode(value).decode()}
    if isinstance(value, tuple | list):
        return [_lists(one) for one in value]
    return value


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return b64decode(value[""])
    if isinstance(value, list):
        return tuple(_tuples(one) for one in value)
    return value
