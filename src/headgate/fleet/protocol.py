"""What a member of a fleet run and its store exchange, one request and one reply; and a run as a store shows it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple


class Amount(NamedTuple):
    tokens: float = 0.0
    money: float = 0.0

    def plus(self, other: Amount, sign: float = 1.0) -> Amount:
        return Amount(self.tokens + sign * other.tokens, self.money + sign * other.money)

    def most(self, other: Amount) -> Amount:
        return Amount(max(self.tokens, other.tokens), max(self.money, other.money))


NO_CAP = -1.0
"""How a message says that there is no cap."""
NOTHING, UNCAPPED = Amount(), Amount(NO_CAP, NO_CAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What all members together may spend; None is without a cap."""

    max_tokens: float | None = None
    max_cost: float | None = None

    def as_amount(self) -> Amount:
        return Amount(
            NO_CAP if self.max_tokens is None else float(self.max_tokens),
            NO_CAP if self.max_cost is None else float(self.max_cost),
        )

    def __bool__(self) -> bool:
        return self.max_tokens is not None or self.max_cost is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What was done so far; every number only grows."""

    done: int = 0
    failed: int = 0
    recalled: int = 0
    """Rows whose answers were remembered, so that nothing was called for them; they are in ``done`` too."""
    repeated: int = 0
    """Calls for rows that had been called before."""
    calls: int = 0
    rate_limited: int = 0
    tokens: float = 0.0
    cost: float = 0.0

    def plus(self, other: Counts) -> Counts:
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in COUNTED})

    def most(self, other: Counts) -> Counts:
        return Counts(**{name: max(getattr(self, name), getattr(other, name)) for name in COUNTED})


COUNTED = tuple(one.name for one in fields(Counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What members did that are not there any more."""

    counts: Counts = field(default_factory=Counts)
    charged: Amount = NOTHING
    """What counts against the caps: all that they held."""

    def plus(self, counts: Counts, charged: Amount) -> Past:
        return Past(counts=self.counts.plus(counts), charged=self.charged.plus(charged))

    def most(self, other: Past) -> Past:
        return Past(counts=self.counts.most(other.counts), charged=self.charged.most(other.charged))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRequest:
    member: str
    number: int
    """From 1; an earlier or equal number changes nothing."""
    job: str = ""
    """Which start of the run it belongs to: an order to stop holds for the jobs of its time."""
    caps: Amount = UNCAPPED
    """Those of the member that joined last count."""
    counts: Counts = field(default_factory=Counts)
    spent: Amount = NOTHING
    held: Amount = NOTHING
    """All that it was ever leased and keeps, what it spent included; less than before gives the difference back."""
    need: Amount = NOTHING
    """What its next row needs beyond ``held``: less would be of no use."""
    want: Amount = NOTHING
    """... and what it would like."""
    in_flight: int = 0
    rate: float = 0.0
    """Rows finished a second, recently."""
    detail: str = ""
    """For people: machine, keys and waits as JSON; the store does not read it."""
    past: Past = field(default_factory=Past)
    stopped: bool = False
    paused: bool = False
    """... as the store told it last, for a store that has lost its data."""
    leaves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReply:
    now: float
    stopped: bool = False
    paused: bool = False
    held: Amount = NOTHING
    """What it may spend in all, from now on."""
    pool: Amount = NOTHING
    """What no member holds; below 0 without a cap."""
    others: Amount = NOTHING
    """What other members that are there hold and have not spent: it may come back."""
    members: int = 1
    past: Past = field(default_factory=Past)
    is_new: bool = False
    """The store did not know this run before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetMemberView:
    name: str
    seen_ago: float
    is_lost: bool
    counts: Counts
    spent: Amount
    held: Amount
    in_flight: int
    rate: float
    detail: str
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRunView:
    """A run as a store knows it."""

    run: str
    now: float
    """By the store's clock, as are the others."""
    began_at: float
    seen_at: float
    caps: Amount
    counts: Counts
    """Of all members, those included that are gone."""
    charged: Amount
    """Spent or leased."""
    paused: bool
    stopped: bool
    """Every job that has members here is to stop."""
    members: tuple[FleetMemberView, ...] = ()


# ---------------------------------------------------------------------- as plain data


def plain_request(request: MemberRequest) -> dict[str, Any]:
    """For JSON; without the detail, which a store keeps as it is."""
    told = {one.name: getattr(request, one.name) for one in fields(request) if one.name not in ("member", "detail")}
    return {**told, "counts": plain_counts(request.counts), "past": plain_past(request.past)}


def plain_counts(counts: Counts) -> list[float]:
    return [getattr(counts, name) for name in COUNTED]


def read_counts(told: Any) -> Counts:
    """Rows and calls are whole numbers again."""
    counts = Counts(**dict(zip(COUNTED, told, strict=True)))
    return replace(counts, **{name: int(getattr(counts, name)) for name in COUNTED[:6]})


def plain_past(past: Past) -> list[Any]:
    return [plain_counts(past.counts), list(past.charged)]


def read_past(told: Any) -> Past:
    counts, charged = told
    return Past(counts=read_counts(counts), charged=Amount(*charged))
