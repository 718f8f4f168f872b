"""Another target when one cannot: reason x list x state -> target.

Targets are numbered: 0 is the primary, 1, 2, ... its fallbacks in the order in which they were given. Each fallback
accepts some reasons:

    primary ──spend──> fallback 1 ──circuit_open──> fallback 2
       ^                                               (accepts circuit_open, or spend)
       └── as soon as it is back: every call starts here

Two things can be in the way of a call. A target has *refused* it: it is too long there, say, and always will be. Or the
target is *away* for every call: its circuit is open, its account has no credit. The first is remembered with the call,
the second with the target, and only until it is back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from .decision import Outcome
from .signal import Signal

LONG_QUOTA = 600.0
"""Seconds until a quota is whole again from which on a call may move: shorter ones are waited for."""
CAPACITY_REFUSALS = 3
"""Times that a full tier refuses one call before it moves: room may come at any moment."""
AWAY_FOR = 900.0
"""Seconds for which a target is not asked that cannot spend, or has no such model; then one call finds out."""
PROBE_WITHIN = 60.0
"""Seconds for which other calls leave it to that one."""
MOST_STATES = 10_000
PRIMARY = 0


class MoveReason(StrEnum):
    """Why a call may go to another target. The values are public: options, output lines and summaries have them."""

    CAPACITY = "capacity"
    """The tier is full, or the server overloaded, also after retries."""
    TOO_LONG = "too_long"
    """It exceeds the model's context, or the whole quota of tokens."""
    SPEND = "spend"
    """The account has no credit, or has reached a limit on spending."""
    CIRCUIT_OPEN = "circuit_open"
    QUOTA_UNTIL = "quota_until"
    """A quota is used up for more than ``LONG_QUOTA`` seconds."""
    UNKNOWN_MODEL = "unknown_model"
    """There is no such model (any more)."""
    FAILING = "failing"
    """All its attempts have failed: 5xx, timeouts, no connection."""
    REFUSED_CONTENT = "refused_content"
    """The model, or a filter before it, will not answer this."""


USUAL_REASONS = frozenset(MoveReason) - {MoveReason.REFUSED_CONTENT}
"""What a fallback accepts unless it says otherwise. Asking another model what one has refused is an explicit choice."""
OF_TARGET = frozenset((MoveReason.SPEND, MoveReason.CIRCUIT_OPEN, MoveReason.QUOTA_UNTIL, MoveReason.UNKNOWN_MODEL))
"""Reasons that hold for every call to the target until it is back; all others are about one call."""


class Choice(NamedTuple):
    target: int
    why: MoveReason | None
    """Why it is not an earlier one; None for the primary."""


def choose(
    accepts: Sequence[frozenset[MoveReason]],
    refused: Mapping[int, MoveReason],
    away: Mapping[int, MoveReason],
) -> Choice | None:
    """The first target that takes a call.

    ``accepts``: for each target the reasons that may move a call there (of the primary, none). Where nothing takes it
    now, the first that will once it is back; None if every target on the way has refused it.
    """
    reasons: list[MoveReason] = []
    waits: Choice | None = None
    for target in range(len(accepts)):
        why = next((reason for reason in reasons if reason in accepts[target]), None)
        if target != PRIMARY and why is None:
            continue
        obstacle = refused.get(target) or away.get(target)
        if obstacle is None:
            return Choice(target, why)
        reasons.append(obstacle)
        if waits is None and target not in refused:
            waits = Choice(target, why)
    return waits


def reason_of(signal: Signal, *, is_last: bool, is_open: bool = False, refusals: int = 0) -> MoveReason | None:
    """Why a call that ended so may move, if at all.

    ``is_last``: it would not be tried again here. ``is_open``: its circuit does not let calls through. ``refusals``:
    how often a full tier has refused it.
    """
    outcome = signal.outcome
    if signal.is_unknown_model:
        return MoveReason.UNKNOWN_MODEL
    if signal.is_refused_content:
        return MoveReason.REFUSED_CONTENT
    if outcome is Outcome.TOO_LARGE:
        return MoveReason.TOO_LONG
    if outcome is Outcome.SPEND:
        return MoveReason.SPEND
    if outcome in (Outcome.QUOTA_EXHAUSTED, Outcome.RATE_LIMITED):
        return MoveReason.QUOTA_UNTIL if (signal.retry_after or 0.0) > LONG_QUOTA else None
    if outcome is Outcome.CAPACITY:
        return MoveReason.CAPACITY if is_last or refusals >= CAPACITY_REFUSALS else None
    if not outcome.counts_against_target:
        return None
    if is_open:
        return MoveReason.CIRCUIT_OPEN
    if not is_last:
        return None
    return MoveReason.CAPACITY if outcome is Outcome.OVERLOADED else MoveReason.FAILING


def read_reasons(given: Iterable[str]) -> frozenset[MoveReason]:
    """Raises ``ValueError`` with a sentence."""
    names = list(given)
    unknown = next((name for name in names if name not in set(MoveReason)), None)
    if unknown is not None or not names:
        what = f"{str(unknown)[:40]!r} is not a reason to move" if names else "name a reason to move"
        raise ValueError(f"{what}; the reasons are {', '.join(MoveReason)}")
    return frozenset(map(MoveReason, names))


class Target(NamedTuple):
    """What is known of targets goes by this: two lists of fallbacks may have one in common."""

    account: Hashable
    """Targets of one account cannot spend together."""
    part: Hashable
    """What is asked of the account, such as a model."""


class TargetStates:
    """Which targets are away, by what calls to them were told. A circuit is not here: its gate knows it."""

    def __init__(self) -> None:
        self._away: dict[Target, tuple[MoveReason, float]] = {}
        """Where the part is None, the whole account is away."""

    def note(self, target: Target, why: MoveReason, now: float, seconds: float | None = None) -> None:
        """A call was told why the target cannot, and for how long, where that is known."""
        if why not in OF_TARGET or why is MoveReason.CIRCUIT_OPEN:
            return
        if len(self._away) >= MOST_STATES:
            self._away = {key: one for key, one in list(self._away.items()) if one[1] > now}
        if len(self._away) >= MOST_STATES:
            return
        place = target._replace(part=None) if why is MoveReason.SPEND else target
        self._away[place] = why, now + (AWAY_FOR if seconds is None else max(seconds, 0.0))

    def worked(self, target: Target) -> None:
        if self._away:
            self._away.pop(target, None)
            self._away.pop(target._replace(part=None), None)

    def away(self, targets: Sequence[Target], now: float) -> dict[int, MoveReason]:
        """Which of a call's targets are away, by their numbers.

        A target whose time is over is asked by this call; others leave it to it for a while.
        """
        found: dict[int, MoveReason] = {}
        if not self._away:
            return found
        due: dict[Target, tuple[MoveReason, float]] = {}
        for number, target in enumerate(targets):
            for place in (target._replace(part=None), target):
                known = self._away.get(place)
                if known is None:
                    continue
                if known[1] > now:
                    found[number] = known[0]
                else:
                    due[place] = known[0], now + PROBE_WITHIN
        self._away.update(due)
        return found


class CallRoute:
    """One call over several targets: where it goes first, and where next, by how it has ended there."""

    def __init__(
        self,
        accepts: Sequence[frozenset[MoveReason]],
        states: TargetStates,
        targets: Sequence[Target],
        now: float,
    ) -> None:
        """``states`` are shared by all calls."""
        self._accepts, self._states, self._targets = accepts, states, targets
        self._away = states.away(targets, now)
        self.refused: dict[int, MoveReason] = {}
        """Why each target that was asked has not taken it, in their order."""
        self.choice = choose(accepts, {}, self._away) or Choice(PRIMARY, None)

    @property
    def target(self) -> Target:
        """The one that it goes to."""
        return self._targets[self.choice.target]

    def may_move(self, why: MoveReason) -> bool:
        """Whether a call that ends for this reason would go to another target."""
        return self._next({**self.refused, self.choice.target: why}) is not None

    def move(self, why: MoveReason, now: float, seconds: float | None = None) -> bool:
        """The target has not taken the call: whether another one is asked. ``seconds``: for how long it cannot."""
        self._states.note(self.target, why, now, seconds)
        self.refused[self.choice.target] = why
        found = self._next(self.refused)
        if found is None:
            return False
        self.choice = found
        return True

    def worked(self) -> None:
        self._states.worked(self.target)

    def _next(self, refused: Mapping[int, MoveReason]) -> Choice | None:
        """Other targets of an account without credit are not asked."""
        unpaid = {self._targets[number].account for number, why in refused.items() if why is MoveReason.SPEND}
        others = {number: MoveReason.SPEND for number, one in enumerate(self._targets) if one.account in unpaid}
        return choose(self._accepts, {**others, **refused}, self._away)
