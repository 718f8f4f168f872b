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
from dataclasses import replace
from typing import Any
from zlib import crc32

from ..decision import LONGEST_WAIT, NEVER, CircuitState, Wait
from ..gate import Gate
from ..gate_policy import GatePolicy
from ..signal import Signal
from ..ticket import Ticket
from .notebook import ABANDONED, Notebook, Seen, read, visit_of
from .visit import NO_CAP, Note, Publication

MOST_OUT = 100_000
"""Calls of all members that are remembered until they are answered."""
SAVE_EVERY = 0.25
"""Seconds between two savings of what was learned; what is lost with a leader is in the notes since."""
WAITS_FOR = 1.0
"""Whoever waited for the pace within so many seconds still counts as waiting."""
MOST_CUTS = 64
"""Cuts that are remembered, for calls that were sent before them."""
CHECKSUM_DIGITS = 8
"""What was learned begins with them: whatever else a store gives back was not saved here."""
WORTH_TELLING = 0.002
"""A rate that moved by less than this share can wait for the next visit."""


class Sent(Ticket):
    """A call of some member's."""

    __slots__ = ("known_as",)
    known_as: int
    """Its place among all calls, for whoever judges its answer: not after a cut its member had not heard of."""


class Watched(Gate):
    """A gate that others pass: it numbers their calls as they become known, and objects to none."""

    __slots__ = ("skipped",)

    def __init__(self, policy: GatePolicy) -> None:
        super().__init__(policy)
        self.skipped = 0.0

    def admit(self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None) -> Sent:
        breaker = self.breaker
        left_before = breaker.state is CircuitState.OPEN and now < breaker.opened_at + breaker.policy.cool_off
        self.seq += 1
        self.last_sent_at = now
        ticket = Sent(self, self.seq, now, len(self.flight))
        if self.watches_sends:
            self.controller.on_send(ticket, now)
        self.flight.out[self.seq] = now
        if not left_before:  # else it left before the circuit opened, and is no probe
            breaker.admit(self.seq, now)
        self.follow(now)
        return ticket

    def report(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> bool:
        if not self.flight.land(ticket.seq):
            return False
        if isinstance(ticket, Sent):
            ticket.seq = ticket.known_as
        self._learn(ticket, signal, latency, now, draw)
        return True

    def let_pass(self, slots: float, now: float) -> None:
        self.skipped = max(self.skipped, slots)


class Learning:
    """``now`` is when the oldest note came in that is to be read: what happened then is not learned as of today."""

    def __init__(self, policy: GatePolicy, fence: int, now: float, word: int) -> None:
        self.gate = Watched(policy)
        self.fence = fence
        self.read = 0
        """The number of the newest note that was read."""
        self.at = now
        self._out: OrderedDict[tuple[str, int], Sent] = OrderedDict()
        self._saved_at = now
        self._told: tuple[Any, ...] = ()
        self.word = word
        self._cut_seq = 0
        """The newest call when something was cut that is not published yet; 0 if nothing was."""
        self._cuts: list[tuple[int, int]] = []
        """Words that published a cut, and the newest call when it was made, oldest first."""
        self._before: tuple[str, int] = "", 0
        """Who saved what this one goes on from, and in which visit: what it saw itself until then is in it."""
        self.has_news = True
        """Whether something follows from what was seen that others should know at once."""

    def go_on(self, learned: str, covers: int) -> None:
        """Go on from what a leader before saved."""
        self.read = max(self.read, covers)
        try:
            text, checksum = learned[CHECKSUM_DIGITS:], learned[:CHECKSUM_DIGITS]
            if checksum != _checksum(text):
                raise ValueError("this is not what was saved")
            state, cuts, at, (member, visit) = _tuples(json.loads(text, parse_constant=_instant))
            self.at = max(self.at, at)
            self.gate.load_state(state, self.at)
            self._check_rate()
            self._cuts = [(int(word), int(seq)) for word, seq in cuts]
            self._before = str(member), int(visit)
        except Exception:  # of another version or another strategy, or no such text at all: learn anew
            self.gate = Watched(self.gate.policy)

    def take(self, notes: Iterable[Note], now: float, draw: float) -> None:
        """Learn from what the others saw."""
        seen: list[Seen] = []
        latest: dict[str, float] = {}
        """Of each member: one visit may have been faster on its way than the next, which told of what came later."""
        waited_at, oks = NEVER, 0
        for note in notes:
            if note.member == self._before[0] and visit_of(note.text) <= self._before[1]:
                continue
            more, waited, plainly = read(note.text, note.member, note.at)
            before = latest.get(note.member, NEVER)
            for one in more:
                one.at = max(one.at, before)
            latest[note.member] = max((one.at for one in more), default=before)
            seen += more
            waited_at, oks = max(waited_at, waited), oks + plainly
            self.read = max(self.read, note.number)
        self._learn(seen, waited_at, oks, now, draw)

    def take_own(self, book: Notebook, member: str, shift: float, now: float, draw: float) -> None:
        """Learn from what the leader saw itself; ``shift`` turns its time into the desk's."""
        self._learn(book.seen(member, shift), book.waited_at + shift, book.oks, now, draw)

    def _learn(self, seen: list[Seen], waited_at: float, oks: int, now: float, draw: float) -> None:
        """... in the order in which it happened."""
        gate = self.gate
        seen.sort(key=lambda one: one.at)
        for one in seen:
            self.at = max(self.at, min(one.at, now))
            self._see(one, draw)
        self.at = max(self.at, now)
        if oks:
            gate.answers += oks
            gate.breaker.went_well(oks, self.at)
        if waited_at > now - WAITS_FOR:
            gate.note_wait(Wait(now, "pace"), self.at)
        if gate.seq >= gate.check_at:
            gate.look_after(self.at)
        gate.follow(self.at)
        self.has_news = self._differs()

    def _see(self, one: Seen, draw: float) -> None:
        gate, name = self.gate, (one.member, one.number)
        if one.signal is None and not one.end:
            ticket = self._out[name] = gate.admit(self.at)
            ticket.known_as = self._known_as(one.word, ticket.seq)
            if len(self._out) > MOST_OUT:
                gate.release(self._out.popitem(last=False)[1])
            return
        found = self._out.pop(name, None)
        if one.signal is not None:
            one.signal = _as_of(one.signal, self.at - one.at)
            if found is None:
                gate.teach(one.signal, one.latency, self.at, draw)
            else:
                gate.report(found, one.signal, one.latency, self.at, draw)
            if not self._cut_seq and self._is_cut():
                self._cut_seq = gate.seq
        elif found is not None:
            (gate.abandon if one.end == ABANDONED else gate.release)(found)

    def _known_as(self, word: int, seq: int) -> int:
        """A call that left before its member heard of a cut belongs to the era before it."""
        for published, cut_seq in self._cuts:
            if word < published:
                return min(seq, cut_seq)
        return min(seq, self._cut_seq or seq)

    def _is_cut(self) -> bool:
        """Whether less is let in than was published."""
        if not self._told:
            return False
        opens_at, cap, _, _, rate = self._summary()
        return bool(opens_at > self._told[0] or cap < self._told[1] or rate < self._told[4])

    def publication(self, now: float, member: str = "", visit: int = 0) -> Publication:
        """What everybody should go by from now on, told by this member in its visit of this number."""
        gate = self.gate
        now = max(now, self.at)
        gate.follow(now)
        self._check_rate()
        learned = ""
        if now >= self._saved_at + SAVE_EVERY:
            learned = self.saved(member, visit)
            self._saved_at = now
        breaker = gate.breaker
        circuit_open = breaker.state is not CircuitState.CLOSED
        cap = gate.controller.cap
        skipped = gate.skipped
        if skipped or self._summary() != self._told:
            self.word += 1
            if self._cut_seq:
                self._cuts = [*self._cuts, (self.word, self._cut_seq)][-MOST_CUTS:]
        self._told, self._cut_seq = self._summary(), 0
        self.has_news, gate.skipped = False, 0.0
        return Publication(
            fence=self.fence,
            rate=gate.rate,
            hold=min(max(0.0, gate.opens_at - now), LONGEST_WAIT),
            skip=skipped,
            cap=NO_CAP if cap == float("inf") else max(1.0, cap),
            circuit_open=circuit_open,
            open_for=max(0.0, breaker.opened_at + breaker.policy.cool_off - now) if circuit_open else 0.0,
            word=self.word,
            read=self.read,
            learned=learned,
            covers=self.read if learned else 0,
        )

    def _check_rate(self) -> None:
        """Nobody is to be told a pace that is none."""
        if not 0.0 < self.gate.rate < float("inf"):
            raise ValueError(f"rate={self.gate.rate!r} must be a finite number above 0")

    def saved(self, member: str = "", visit: int = 0) -> str:
        """All that was learned, as text; empty if this strategy cannot be put away."""
        state = self.gate.to_state()
        if state is None:
            return ""
        text = json.dumps(_lists((state, self._cuts, self.at, (member, visit))), separators=(",", ":"))
        return _checksum(text) + text

    def _summary(self) -> tuple[Any, ...]:
        gate = self.gate
        return gate.opens_at, gate.controller.cap, gate.breaker.state, gate.breaker.opened_at, gate.rate

    def _differs(self) -> bool:
        if not self._told or self.gate.skipped:
            return True
        now = self._summary()
        return now[:-1] != self._told[:-1] or abs(now[-1] - self._told[-1]) > WORTH_TELLING * self._told[-1]


def _as_of(signal: Signal, age: float) -> Signal:
    """What an answer says that came so many seconds ago: how long to wait counts from when it came."""
    if age <= 0 or signal.retry_after is None:
        return signal
    return replace(signal, retry_after=max(0.0, signal.retry_after - age))


def _checksum(text: str) -> str:
    return f"{crc32(text.encode()):0{CHECKSUM_DIGITS}x}"


def _instant(word: str) -> float:
    """There are instants that never were and that will never be; there is none that is no number."""
    if word == "NaN":
        raise ValueError(word)
    return float(word)


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
