"""What the leader does: run the gate of a key over what all members saw, and say what follows from it.

The gate is the very one that a process without a store would have. It lets no call in here; it watches calls that were
let in by their numbers, and answers that came back to whichever member. So what is learned together is learned by the
same code, in the same order of events, as in a single process.

A member that is alone does not wait for an exchange to learn: it reports each call at once (``send``, ``end``), and its
own gate follows the result (``member_policies.SoloController``).
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from zlib import crc32

from ..core.concurrency import InFlight, record_unmatched
from ..core.controller import Controller
from ..core.decision import LONGEST_WAIT, NEVER, CircuitState
from ..core.gate import Gate
from ..core.gate_config import GateConfig
from ..core.policy import PolicyList, Ticket
from ..core.signal import Signal
from .observation_log import ABANDONED, Observation, ObservationLog, read, request_of
from .protocol import NO_CAP, Note, Publication

MOST_OUT = 100_000
"""Calls of all members that are remembered until they are answered."""
SAVE_EVERY = 0.25
"""Seconds between two savings of what was learned; what is lost with a leader is in the notes since."""
WAITS_FOR = 1.0
"""A caller that waited for the pace within so many seconds still counts as waiting."""
MOST_CUTS = 64
"""Cuts that are remembered, for calls that were sent before them."""
CHECKSUM_DIGITS = 8
"""What was learned begins with them: whatever else a store gives back was not saved here."""
WORTH_TELLING = 0.002
"""A rate that moved by less than this share can wait for the next request."""


class MemberCall(Ticket):
    """A call of some member's."""

    __slots__ = ("known_as",)
    known_as: int
    """Its place among all calls, for judging its answer: not after a cut that its member did not know of."""


class LeaderGate(Gate):
    """A gate that others pass: it numbers their calls as they become known, and objects to none."""

    __slots__ = ("loaded_seq", "skipped")

    def __init__(self, config: GateConfig, controller: Controller, policies: PolicyList, in_flight: InFlight) -> None:
        super().__init__(config, controller, policies, in_flight)
        self.skipped = 0.0
        self.loaded_seq = -1
        """The last call that the state knew of from which this gate goes on."""

    def load_state(self, state: tuple[Any, ...], now: float) -> None:
        super().load_state(state, now)
        self.loaded_seq = self.seq

    def note_wait(self, now: float) -> None:
        """A member's caller waits for the pace.

        Not before the first call since: the controller would take the time in between for time spent waiting.
        """
        if self.watches_sends and self.seq > self.loaded_seq:
            self.controller.on_wait(now)

    def note_send(self, now: float) -> MemberCall:
        """A member's call has left."""
        breaker = self.breaker
        left_before = breaker.state is CircuitState.OPEN and now < breaker.opened_at + breaker.settings.cool_off
        self.seq += 1
        self.last_sent_at = now
        ticket = MemberCall(self, self.seq, now, len(self.in_flight))
        if self.watches_sends:
            self.controller.on_send(ticket, now)
        self.in_flight.pending[self.seq] = now
        if not left_before:  # else it left before the circuit opened, and is no probe
            breaker.admit(self.seq, now)
        return ticket

    def record(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> bool:
        if not self.in_flight.complete(ticket.seq):
            return False
        if isinstance(ticket, MemberCall):
            ticket.seq = ticket.known_as
        self.learn(ticket, signal, latency, now, draw)
        return True

    def apply_limits(self, now: float) -> None:
        """Not with each call: it is only needed for what is published."""

    def bring_up_to(self, now: float) -> None:
        super().apply_limits(now)
        self._rate = NEVER  # so that ``learn`` leaves the pace to the next of these

    def skip(self, slots: float, now: float) -> None:
        self.skipped = max(self.skipped, slots)


class QuotaLeader:
    """``now`` is when the oldest note came in that is to be read: what happened then is not learned as of today."""

    def __init__(self, config: GateConfig, fence: int, now: float, word: int) -> None:
        self.gate = LeaderGate.local(config)
        self.base = 0.0
        """The coordinator's time minus the gate's: what was learned stays in the time of the member that learned it."""
        self.fence = fence
        self.read = 0
        """The number of the newest note that was read."""
        self.at = now
        """How far its gate has come, in the gate's time."""
        self._out: OrderedDict[tuple[str, int], MemberCall] = OrderedDict()
        self._saved_at = now
        self._told: tuple[Any, ...] = ()
        self.word = word
        self._cut_seq = 0
        """The newest call when something was cut that is not published yet; 0 if nothing was."""
        self._cuts: list[tuple[int, int]] = []
        """Words that published a cut, and the newest call when it was made, oldest first."""
        self._before: tuple[str, int] = "", 0
        """Which member saved what this one goes on from, in which request: what it saw itself until then is in it."""
        self.has_news = True
        """Whether something follows from what was seen that others should know at once."""

    def go_on(self, learned: str, covers: int) -> None:
        """Go on from what a leader before saved."""
        self.read = max(self.read, covers)
        since = self.at
        try:
            text, checksum = learned[CHECKSUM_DIGITS:], learned[:CHECKSUM_DIGITS]
            if checksum != _checksum(text):
                raise ValueError("the checksum does not match")
            state, cuts, at, (member, number), base = _tuples(json.loads(text, parse_constant=_instant))
            self.at, self.base = max(self.at - base, at), base
            self.gate.load_state(state, self.at)
            self._check_rate()
            self._cuts = [(int(word), int(seq)) for word, seq in cuts]
            self._before = str(member), int(number)
        except Exception:  # of another version or another strategy, or no such text at all: start over
            self.gate, self.at, self.base = LeaderGate.local(self.gate.config), since, 0.0

    def take(self, notes: Iterable[Note], now: float, draw: float) -> None:
        """Learn from what the others saw."""
        seen: list[Observation] = []
        latest: dict[str, float] = {}
        """Of each member: one request may have been faster on its way than the next, which reported what came later."""
        waited_at, oks = NEVER, 0
        for note in notes:
            if note.member == self._before[0] and request_of(note.text) <= self._before[1]:
                continue
            more, waited, plainly = read(note.text, note.member, note.at - self.base)
            before = latest.get(note.member, NEVER)
            for one in more:
                one.at = max(one.at, before)
            latest[note.member] = max((one.at for one in more), default=before)
            seen += more
            waited_at, oks = max(waited_at, waited), oks + plainly
            self.read = max(self.read, note.number)
        self._learn(seen, waited_at, oks, now - self.base, draw)

    def take_own(self, log: ObservationLog, member: str, shift: float, now: float, draw: float) -> None:
        """Learn from what the leader saw itself; ``shift`` turns its time into the coordinator's."""
        shift -= self.base
        self._learn(log.seen(member, shift), log.waited_at + shift, log.oks, now - self.base, draw)

    def send(self, member: str, number: int, at: float) -> None:
        """A call leaves, of a member that knows of every cut; ``at`` is in the gate's time."""
        gate = self.gate
        at = self.at = max(self.at, at)
        if gate.breaker.state is CircuitState.CLOSED:  # the short way of ``LeaderGate.note_send``
            gate.seq = seq = gate.seq + 1
            gate.last_sent_at = at
            ticket = MemberCall(gate, seq, at, len(gate.in_flight))
            gate.controller.on_send(ticket, at)
            gate.in_flight.pending[seq] = at
        else:
            ticket = gate.note_send(at)
        ticket.known_as = ticket.seq
        self._out[member, number] = ticket
        if len(self._out) > MOST_OUT:
            gate.release(self._out.popitem(last=False)[1], self.at)
        if gate.seq >= gate.check_at_seq:
            gate.drop_lost(at)

    def end(self, member: str, number: int, at: float, latency: float, signal: Signal, draw: float) -> float:
        """An answer to such a member came; returns how many slots to let pass."""
        gate = self.gate
        at = self.at = max(self.at, at)
        sent = self._out.pop((member, number), None)
        if sent is None:
            record_unmatched(gate, signal, latency, at, draw)
        else:
            gate.record(sent, signal, latency, at, draw)
        if not gate.skipped:
            return 0.0
        skipped, gate.skipped = gate.skipped, 0.0
        return skipped

    def succeeded(self, latency: float, at: float) -> None:
        """A call of such a member went well, from which this strategy learns nothing; its circuit must know."""
        gate = self.gate
        gate.answers += 1
        gate.latency.add(latency)
        gate.breaker.went_well(1, at)

    def end_silently(self, member: str, number: int, how: str) -> None:
        """A call of such a member ended without an answer."""
        sent = self._out.pop((member, number), None)
        if sent is not None:
            (self.gate.cancel if how == ABANDONED else self.gate.release)(sent, self.at)

    def _learn(self, seen: list[Observation], waited_at: float, oks: int, now: float, draw: float) -> None:
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
            gate.note_wait(self.at)
        if gate.seq >= gate.check_at_seq:
            gate.drop_lost(self.at)
        gate.bring_up_to(self.at)
        self.has_news = self._differs()

    def _see(self, one: Observation, draw: float) -> None:
        gate, name = self.gate, (one.member, one.number)
        if one.signal is None and not one.end:
            ticket = self._out[name] = gate.note_send(self.at)
            ticket.known_as = self._known_as(one.word, ticket.seq)
            if len(self._out) > MOST_OUT:
                gate.release(self._out.popitem(last=False)[1], self.at)
            return
        found = self._out.pop(name, None)
        if one.signal is not None:
            one.signal = _as_of(one.signal, self.at - one.at)
            if found is None:
                record_unmatched(gate, one.signal, one.latency, self.at, draw)
            else:
                gate.record(found, one.signal, one.latency, self.at, draw)
            gate.bring_up_to(self.at)
            if not self._cut_seq and self._is_cut():
                self._cut_seq = gate.seq
        elif found is not None:
            (gate.cancel if one.end == ABANDONED else gate.release)(found, self.at)

    def _known_as(self, word: int, seq: int) -> int:
        """A call that left before its member knew of a cut belongs to the era before it."""
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

    def publication(self, now: float, member: str = "", number: int = 0) -> Publication:
        """What all members should go by from now on, published by this member in its request of this number."""
        gate = self.gate
        now = max(now - self.base, self.at)
        gate.bring_up_to(now)
        self._check_rate()
        learned = ""
        if now >= self._saved_at + SAVE_EVERY:
            learned = self.saved(member, number)
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
            rate=gate.pacer.rate,
            hold=min(max(0.0, gate.hold.opens_at - now), LONGEST_WAIT),
            skip=skipped,
            cap=NO_CAP if cap == float("inf") else max(1.0, cap),
            circuit_open=circuit_open,
            open_for=max(0.0, breaker.opened_at + breaker.settings.cool_off - now) if circuit_open else 0.0,
            word=self.word,
            read=self.read,
            learned=learned,
            covers=self.read if learned else 0,
        )

    def _check_rate(self) -> None:
        """No member gets a pace that is none."""
        if not 0.0 < self.gate.pacer.rate < float("inf"):
            raise ValueError(f"rate={self.gate.pacer.rate!r} must be a finite number above 0")

    def saved(self, member: str = "", number: int = 0) -> str:
        """All that was learned, as text; empty if this strategy cannot be put away."""
        state = self.gate.to_state()
        if state is None:
            return ""
        published = state, self._cuts, self.at, (member, number), self.base
        text = json.dumps(published, default=_encoded, separators=(",", ":"))
        return _checksum(text) + text

    def _summary(self) -> tuple[Any, ...]:
        gate = self.gate
        return gate.hold.opens_at, gate.controller.cap, gate.breaker.state, gate.breaker.opened_at, gate.pacer.rate

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


def _encoded(value: bytes) -> dict[str, str]:
    """What JSON does not know: bytes, as a pair with an empty name."""
    return {"": b64encode(value).decode()}


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return b64decode(value[""])
    if isinstance(value, list):
        return tuple(_tuples(one) for one in value)
    return value
