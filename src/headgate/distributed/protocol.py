"""What a member and the coordinator of a shared quota exchange: one request, one reply.

A request carries all that one member has to report about one key, and its reply all that this member needs until the
next one; so a whole exchange is one transaction or one script. Repeating a request (the same ``number``)
is harmless: what was granted is granted once.

Nothing here is an instant on one process's clock: a member says how long ago something was, the coordinator in how many
seconds something will be. The one exception is ``SyncReply.now``, the coordinator's own time, in which notes are dated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NO_CAP = 0.0
"""How a message says that any number of calls may be in flight: messages know no infinity."""
MOST_ASKS = 64
"""Different costs in one request; the rest of a queue asks again."""
LARGEST_NOTE = 65_536
"""Characters of one note."""

Cost = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTerms:
    """What is known of a key before anything is learned. Those of the leader count."""

    rate: float
    """Calls a second to begin with."""
    burst: float
    most: float
    """Calls a second that a known limit on requests allows, whatever was learned."""
    probes: int = 1
    """Calls that a half-open circuit lets through at a time."""
    probe_for: float = 15.0
    """Seconds after which a probe that was not reported loses its slot."""
    limits: tuple[tuple[str, float, float, float], ...] = ()
    """Known limits that the pace alone does not keep, in order: dimension, amount, window, burst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What the leader has concluded. A fence that is no longer the coordinator's changes nothing."""

    fence: int
    rate: float
    hold: float = 0.0
    """Nothing starts for so many seconds."""
    skip: float = 0.0
    """Slots to let pass before the next call starts."""
    cap: float = NO_CAP
    circuit_open: bool = False
    open_for: float = 0.0
    """Seconds after which an open circuit lets probes through."""
    word: int = 0
    """Grows whenever something else is published than before."""
    read: int = 0
    """The newest note the leader has."""
    learned: str = ""
    """All that was learned, to go on from; empty if it was not written again."""
    covers: int = 0
    """The newest note that ``learned`` knows of; up to it the coordinator need not keep any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    member: str
    number: int
    """From 1; the same number is the same request, sent again."""
    elapsed: float = 0.0
    """Seconds by its own clock since this member sent the last answered request; 0 at first. The coordinator has
    seen it since then, so this shows a clock that was set forward."""
    terms: QuotaTerms
    asks: tuple[tuple[int, Cost], ...] = ()
    """How many calls of which cost are wanted, in the order of the queue. A call takes as many numbers as its cost
    has "requests", one if it does not say."""
    span: float = 0.0
    """For how many seconds a lease should last, if longer than usual: a member far away comes seldom."""
    era: int = 0
    """Of the permits that are held or come back."""
    solo: bool = False
    """It starts calls without numbers, or will if the reply allows it: as long as no other member is here."""
    taken: int = 0
    """Calls that have started so since the last request."""
    back: int = 0
    """Permits that will not be used after all."""
    refund: Mapping[str, float] = field(default_factory=dict)
    """What comes back of known limits; below 0: what was used beyond the reservation."""
    refund_ago: float = 0.0
    """How long ago the first of that was granted."""
    apart: Mapping[str, float] = field(default_factory=dict)
    """What was started while the store could not be reached, beyond ``refund``; it counts in long windows alone."""
    flying: int = 0
    """Calls in flight and permits not yet used."""
    probe_over: bool = False
    """The probe ended without an answer that could tell."""
    rest: float = 0.0
    """A server asked a member to wait for so many seconds."""
    note: str = ""
    """What was seen since the last request, for the leader."""
    publication: Publication | None = None
    leaves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    number: int
    at: float
    """When it came in, in the coordinator's time."""
    member: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    now: float
    granted: int = 0
    """How many numbers."""
    first: float = 0.0
    """The ordinal of the first call granted; each may start once ``line`` has reached its own plus one."""
    line: float = 0.0
    """How many calls in all may have started by now."""
    rate: float = 0.0
    """... and how many more each second, once ``hold`` is over."""
    hold: float = 0.0
    era: int = 0
    """Permits of another era are void."""
    wait: float = 0.0
    """Seconds after which to ask again for what was not granted."""
    short_of: str = ""
    """Why it was not: depth, circuit, pace, turn, solo or the name of a known limit."""
    circuit_open: bool = False
    open_for: float = 0.0
    probe: bool = False
    """The call granted is the probe of a half-open circuit."""
    cap: float = NO_CAP
    left: float = 1.0
    """Which share of the long window that has least is left."""
    word: int = 0
    """Which of the leader's conclusions this is."""
    members: int = 1
    """Members that are there, this one included."""
    solo: bool = False
    """It may start calls without numbers until its next request: a member that comes meanwhile waits for that."""
    fence: int = 0
    """Above 0: this member leads, under this number."""
    notes: tuple[Note, ...] = ()
    """For the leader: what the others saw."""
    learned: str = ""
    """For a new leader: what was learned before it."""
    covers: int = 0
    learned_ago: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreActions:
    """What a store has to do in the same transaction: notes and what was learned are kept beside the coordinator."""

    keep: Note | None = None
    save: str = ""
    """What was learned, to be kept in place of what was; empty: nothing new."""
    forget_to: int = 0
    """Notes up to this number are not needed."""
    give_learned: bool = False
    give_after: int = -1
    """Put the notes after this number into the reply; none if below 0."""
    but_not_of: str = ""
    """... without those of this member, which knows them."""


def plain(message: Any) -> Any:
    """A message as plain dicts, lists and numbers."""
    if hasattr(message, "__dataclass_fields__"):
        return {name: plain(getattr(message, name)) for name in message.__dataclass_fields__}
    if isinstance(message, Mapping):
        return {name: plain(value) for name, value in message.items()}
    if isinstance(message, tuple | list):
        return [plain(value) for value in message]
    return message
