"""One pause for all callers that share a limit, however many 429s announce it.

When twenty workers are refused in one burst, that is one event: the first 429 starts
an *era* with its pause, and the rest, which were sent before that was known, join.

    429, sent after the era's pause     429, sent before its end
    --------------------------------    ------------------------
    a new era, a new pause,             joins: no new era, no escalation;
    one step of escalation              a longer floor extends the pause

A success that was sent after the pause proves it long enough and ends the escalation;
one that was sent earlier proves nothing.

An account that cannot spend rests too: one call now and then finds out whether it can again (``SpendRests``).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from ..checks import check, number
from .decision import INSTANT, LONGEST_WAIT, NEVER, Outcome, Wait, WaitReason
from .policy import Demand

if TYPE_CHECKING:
    from .controller import Controller
    from .pacer import Pacer
    from .policy import Ticket
    from .signal import Signal

MOST_ESCALATIONS = 64
"""Refused eras in a row are counted up to here; every growing pause has met its maximum by then."""
UNTOLD_RESET = 3600.0
"""Seconds until an exhausted quota is tried again, where its reset is unknown."""
FLOOR_JITTER = 0.1
"""By what share a wait may exceed its floor, so that callers that were told the same do not come back at once."""

MOST_FLOOR_JITTER = 5.0
"""... and by how many seconds at most: a pause of an hour does not need six minutes of spreading."""


def above(floor: float, draw: float) -> float:
    """A wait at or a little above ``floor``, within [0, 31 days]. A negative floor, or NaN, counts as 0."""
    if not floor > 0.0:
        return 0.0
    return min(floor + draw * min(floor * FLOOR_JITTER, MOST_FLOOR_JITTER), LONGEST_WAIT)


@dataclass(frozen=True, slots=True)
class FixedCooldown:
    """Pause for the same time after each event, longer only if the server asks."""

    seconds: float = 60.0

    def __post_init__(self) -> None:
        check("seconds", self.seconds, 0.0 < number(self.seconds) <= LONGEST_WAIT, f"within (0, {LONGEST_WAIT:.0f}]")

    def pause(self, eras_in_a_row: int) -> float:
        return self.seconds


@dataclass(frozen=True, slots=True)
class ExponentialCooldown:
    """Pause longer after each event in a row, up to a maximum; a success starts over."""

    base: float = 5.0
    factor: float = 2.0
    max: float = 300.0

    def __post_init__(self) -> None:
        check("base", self.base, 0.0 < number(self.base) <= LONGEST_WAIT, f"within (0, {LONGEST_WAIT:.0f}]")
        check("factor", self.factor, 1.0 <= number(self.factor) <= 100.0, "within [1, 100]")
        longest = f"within [base={self.base!r}, {LONGEST_WAIT:.0f}]"
        check("max", self.max, self.base <= number(self.max) <= LONGEST_WAIT, longest)

    def pause(self, eras_in_a_row: int) -> float:
        return min(self.max, self.base * self.factor ** (eras_in_a_row - 1))


CooldownSettings = FixedCooldown | ExponentialCooldown


@dataclass(slots=True, eq=False)
class Cooldown:
    """The pause of one scope: a credential, a key or a provider.

    Without a policy it lasts as long as the server says, which may be no time at all.
    """

    policy: FixedCooldown | ExponentialCooldown | None = None
    until: float = NEVER
    """Nothing starts before this instant."""
    era: int = 0
    """How many pauses there have been; the present one's number."""
    era_started_at: float = NEVER
    eras_in_a_row: int = 0
    """Eras since the last success; what a growing pause grows by."""
    participants: int = 0
    """429s that started or joined a pause, over all eras."""

    def holds(self, now: float) -> bool:
        return now < self.until

    def report(
        self, sent_at: float, now: float, floor: float, draw: float, policy: CooldownSettings | None = None
    ) -> bool:
        """Take one refusal; true if it starts an era. ``floor`` is what the server asked for, 0 if it was silent.

        ``policy``: how long to pause where it was silent, in place of the scope's own.
        """
        self.participants += 1
        pause = above(floor, draw)
        if self._before_the_end(sent_at):
            self.until = max(self.until, now + pause)
            return False
        self.era += 1
        self.era_started_at = now
        self.eras_in_a_row = min(self.eras_in_a_row + 1, MOST_ESCALATIONS)
        policy = self.policy if policy is None else policy
        if policy is not None:
            pause = max(pause, min(policy.pause(self.eras_in_a_row), LONGEST_WAIT))
        self.until = max(self.until, now + pause)
        return True

    def cleared(self, sent_at: float) -> None:
        """Take one success: if it was sent after the pause, the next event escalates from the start."""
        if not self._before_the_end(sent_at):
            self.eras_in_a_row = 0

    def to_state(self, now: float, wall: float) -> tuple[float, ...]:
        """For a store: when this was written (wall time), how long the pause still is, and the counts."""
        return (wall, max(0.0, self.until - now), self.era, self.eras_in_a_row, self.participants)

    @classmethod
    def from_state(
        cls,
        state: tuple[float, ...],
        now: float,
        wall: float,
        policy: FixedCooldown | ExponentialCooldown | None = None,
    ) -> Cooldown:
        """Go on after a restart. The time in between counts; a wall clock that went back lengthens nothing."""
        if len(state) != 5 or not all(isfinite(number) for number in state):
            raise ValueError(f"{state!r} is not the state of a cooldown: expected five finite numbers")
        written_at, pause, *counts = state
        era, eras_in_a_row, participants = (max(0, int(count)) for count in counts)
        remaining = min(pause, LONGEST_WAIT) - max(0.0, wall - written_at)
        return cls(
            policy=policy,
            until=now + remaining if remaining > 0.0 else NEVER,
            era=era,
            eras_in_a_row=min(eras_in_a_row, MOST_ESCALATIONS),
            participants=participants,
        )

    def _before_the_end(self, sent_at: float) -> bool:
        """Sent before this era's pause was over (or known), so it says nothing about what comes after."""
        return sent_at < self.until or sent_at <= self.era_started_at


CAPACITY_REST = ExponentialCooldown(base=1.0, factor=2.0, max=60.0)
"""How long a key rests whose tier has no capacity, where the server does not say."""
RESTING = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.OVERLOADED, Outcome.CAPACITY)
"""Outcomes whose Retry-After is for every call of a key; that of a failure in passing is for its own call alone."""


class HoldPolicy:
    """Start nothing while a pause lasts: the server's, our own cooldown's, an operator's or the controller's."""

    __slots__ = ("asked_for", "controller", "cooldown", "learns_from_success", "pacer", "settings")

    def __init__(self, controller: Controller, settings: CooldownSettings | None, pacer: Pacer) -> None:
        self.controller = controller
        self.settings = settings
        self.pacer = pacer
        """Resumes gently when the pause is over."""
        self.cooldown: Cooldown | None = None
        """The pause that was asked for; made when one first is."""
        self.asked_for = WaitReason.FLOOR
        """Why the last one was."""
        self.learns_from_success = False
        """A success proves a pause long enough, once there was one."""

    @property
    def asked_until(self) -> float:
        """The end of the last pause that was asked for, by the server or by an operator."""
        return NEVER if self.cooldown is None else self.cooldown.until

    @property
    def opens_at(self) -> float:
        """Nothing starts before this instant, by any pause or hold."""
        hold_until, cooldown = self.controller.hold_until, self.cooldown
        return hold_until if cooldown is None or cooldown.until <= hold_until else cooldown.until

    @property
    def reason(self) -> WaitReason:
        """What ends last: the pause that was asked for, or the controller's hold."""
        asked = self.cooldown is not None and self.cooldown.until >= self.controller.hold_until
        return self.asked_for if asked else WaitReason.HOLD

    def check(self, now: float, demand: Demand) -> Wait | None:
        opens_at = self.opens_at
        return None if opens_at <= now + INSTANT else Wait(self.reason, opens_at)

    def record(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        """A success ends the escalation; a refusal that asks for a pause, or has one of ours, begins or joins one."""
        outcome = signal.outcome
        if outcome is Outcome.OK:
            if self.cooldown is not None:
                self.cooldown.cleared(ticket.sent_at)
            return
        is_full = outcome is Outcome.CAPACITY
        has_own = is_full or (self.settings is not None and outcome is Outcome.RATE_LIMITED)
        if outcome not in RESTING or (signal.retry_after is None and not has_own):
            return
        cooldown = self._cooldown()
        before = cooldown.until
        policy = CAPACITY_REST if is_full else None
        cooldown.report(ticket.sent_at, now, signal.retry_after or 0.0, draw, policy)
        if cooldown.until > max(before, now):
            self.asked_for = WaitReason.CAPACITY if is_full else WaitReason.FLOOR
            self.pacer.resume_after_pause(cooldown.until - now, cooldown.until)

    def pause(self, seconds: float, now: float) -> bool:
        """Start nothing for so long, for another reason than an answer; False if a longer pause holds already."""
        cooldown, until = self._cooldown(), now + seconds
        if until <= max(cooldown.until, now):
            return False
        cooldown.until, self.asked_for = until, WaitReason.FLOOR
        self.pacer.resume_after_pause(seconds, until)
        return True

    def keep_until(self, until: float) -> None:
        """Take over a pause that holds already; no ramp follows it."""
        self._cooldown().until = until

    def _cooldown(self) -> Cooldown:
        if self.cooldown is None:
            self.cooldown, self.learns_from_success = Cooldown(self.settings), True
        return self.cooldown

    def idle_from(self, now: float) -> float:
        return self.opens_at

    def to_state(self) -> tuple[Any, ...] | None:
        one = self.cooldown
        if one is None:
            return None
        counts = (one.until, one.era, one.era_started_at, one.eras_in_a_row, one.participants)
        return counts if self.asked_for is WaitReason.FLOOR else (*counts, self.asked_for.value)

    def load_state(self, state: tuple[Any, ...] | None) -> None:
        if state is not None:
            counts, why = state[:5], state[5:]  # states of earlier versions do not say why
            self.asked_for = WaitReason(why[0]) if why else WaitReason.FLOOR
            self.cooldown, self.learns_from_success = Cooldown(self.settings, *counts), True


SPEND_REST = 900.0
"""An account that may not spend is probed once in so many seconds."""
MOST_ACCOUNTS = 10_000


class SpendRests:
    """Accounts that cannot spend: which, since when, and until when each is not asked.

        SPEND ──> rests for SPEND_REST ──> one call leaves ─┬─ SPEND: rests again
                        ^                                   ├─ OK: known no more
                        └── others wait meanwhile ──────────┘

    An account is a key of a client, a target of a batch, or a group of credentials (``credential_pool.py``).
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[float, float]] = {}

    def __bool__(self) -> bool:
        """Whether any account is known to rest."""
        return bool(self._known)

    def __contains__(self, account: Hashable) -> bool:
        return account in self._known

    def until(self, account: Hashable) -> float:
        """NEVER if the account can spend, as far as is known."""
        known = self._known.get(account)
        return NEVER if known is None else known[1]

    def stopped(self, account: Hashable, sent_at: float, now: float) -> bool:
        """A call was told that the account may not spend. False if it left before that was known: nothing changes."""
        known = self._known.get(account)
        if known is not None and sent_at < known[0]:
            return False
        if known is None and len(self._known) >= MOST_ACCOUNTS:
            self._known.pop(next(iter(self._known)))
        self._known[account] = now, now + SPEND_REST
        return True

    def on_send(self, account: Hashable, now: float) -> None:
        """A call leaves. If it is to find out, no other does before its answer, or before the next is due."""
        if account in self._known:
            self.rests(account, now, now + SPEND_REST)

    def begin(self, account: Hashable, now: float) -> float:
        """Seconds until a call may leave; 0: it does now."""
        wait = self.until(account) - now
        if wait > 0.0:
            return wait
        self.on_send(account, now)
        return 0.0

    def worked(self, account: Hashable, sent_at: float) -> bool:
        """A call has succeeded. Returns whether that frees the account: it does if it was sent after the last stop."""
        known = self._known.get(account)
        if known is None or sent_at < known[0]:
            return False
        del self._known[account]
        return True

    def forget(self, account: Hashable) -> None:
        """The account is free, by an operator or another process."""
        self._known.pop(account, None)

    def rests(self, account: Hashable, now: float, until: float) -> None:
        """The account is not asked before ``until``: others know so, or a call leaves to find out."""
        since, known_until = self._known.get(account, (now, NEVER))
        self._known[account] = since, max(until, known_until)

    def join(self, account: Hashable, other: Hashable) -> None:
        """``other`` turns out to be the same account."""
        known = self._known.pop(other, None)
        if known is not None:
            self.rests(account, *known)
