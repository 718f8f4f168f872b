"""What a gate is made of: policies, each with one question, in a fixed order.

    circuit ── hold ── concurrency ── quotas ── pacer
     refuse     wait    wait          wait      wait        the longest wait counts, never their sum

A policy is pure: it takes ``now`` and answers. It never waits and knows nothing of the other policies, except that
circuit and hold tell the pacer to resume gently after a pause. A gate asks them through these methods only, so a list
of policies can be swapped as a whole (``Gate.swap``): local ones, or ones that go by what a store grants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from .decision import NEVER, Refuse, Wait

if TYPE_CHECKING:
    from .circuit_breaker import Breaker
    from .decision import Explanation, WaitReason
    from .pacer import ResumeRamp
    from .quota import QuotaPolicy
    from .signal import Signal

Cost = float | Mapping[str, float]
"""What a call takes: a number of requests, or so much of each dimension of a known limit."""
NOTHING: Mapping[str, float] = MappingProxyType({})
NUMBER = (int, float)
"""What a cost mostly is; asking for that first spares the slow question whether it is a mapping."""


def costs_of(cost: Cost) -> Mapping[str, float]:
    """What a call takes of each known limit: at least one request."""
    if isinstance(cost, NUMBER) or not isinstance(cost, Mapping):
        return {"requests": cost}
    return cost if "requests" in cost else {"requests": 1, **cost}


def requests_of(cost: Cost) -> float:
    """How many calls' worth of pace a cost takes."""
    return cost if isinstance(cost, NUMBER) or not isinstance(cost, Mapping) else cost.get("requests", 1)


class Demand(NamedTuple):
    """What one call wants, and what the calls ahead of it will take."""

    cost: Cost = 1
    requests: float = 1
    """How many calls' worth of pace it takes."""
    requests_ahead: float = 0.0
    costs_ahead: Mapping[str, float] = NOTHING
    is_late: bool = False
    """Whether callers wait, or did a moment ago: being served late is made up for."""
    last_sent_at: float = NEVER
    """When the gate's last call started."""


class Ticket:
    """The admission of one call: what a gate hands out and takes back.

    It says when the call was sent, as which call of its gate and beside how many others. The answer brings it back, so
    an answer can be judged by what was true when the call was *sent*. Most calls cost one request and do not wait;
    those that do carry a ``LongTicket``.
    """

    __slots__ = ("depth", "gate", "sent_at", "seq")

    cost: Cost = 1
    waited: float = 0.0
    """Seconds between asking and being let through."""

    def __init__(self, gate: Any, seq: int, sent_at: float, depth: int) -> None:
        self.gate = gate
        self.seq = seq
        """Ordinal among the gate's calls, from 1."""
        self.sent_at = sent_at
        self.depth = depth
        """Calls that were in flight when this one left; set where the controller watches sends."""


class LongTicket(Ticket):
    """The ticket of a call that waited, or that costs something else than one request."""

    __slots__ = ("cost", "waited")

    def __init__(self, gate: Any, seq: int, sent_at: float, depth: int, cost: Cost, waited: float) -> None:
        super().__init__(gate, seq, sent_at, depth)
        self.cost = cost
        self.waited = waited


class QueuedDemand(Protocol):
    """One waiter of a key."""

    cost: Cost
    ordinal: int
    """Its place among the waiters of all keys."""


class QueueDemand(Protocol):
    """What the waiters of a key will take together; a gate's policies may look at it."""

    @property
    def requests(self) -> float: ...

    def __len__(self) -> int: ...

    def head(self) -> QueuedDemand | None:
        """The first in order."""
        ...

    def waiting_costs(self) -> Iterable[Cost]:
        """The cost of each waiter, in order."""
        ...


class Policy(Protocol):
    """One of a gate's policies. Beside ``check`` it has those of the ``Hooks`` that it needs."""

    def check(self, now: float, demand: Demand) -> Wait | Refuse | None:
        """What keeps a call from starting now, or None. Checking takes nothing."""
        ...


class Hooks(Protocol):
    """What a policy may have beside ``check``; a gate calls each of these for the policies that have it alone."""

    learns_from_success: bool
    """Whether ``record`` must be called for a success as things are; it is for every other outcome."""

    def admit(self, ticket: Ticket, now: float) -> None:
        """Take what a call needs that nothing objected to."""

    def record(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        """Learn how a call ended."""

    def settle(self, ticket: Ticket, real: Mapping[str, float]) -> None:
        """Charge what the call really took instead of what was reserved for it."""

    def release(self, ticket: Ticket, now: float) -> None:
        """The call was sent and its outcome is unknown: what it took stays taken."""

    def cancel(self, ticket: Ticket, now: float) -> None:
        """Nothing was sent: refund what ``admit`` took."""

    def on_wait(self, wait: Wait | Refuse, now: float) -> None:
        """A caller waits, and for this."""

    def on_queue(self, queue: QueueDemand | None, now: float) -> None:
        """Callers begin to wait in this queue; None: the last of them was served."""

    def set_ceiling(self, ceiling: float | None) -> None:
        """An operator's limit in calls a second, for the policy that keeps it; None lifts it."""

    def may_object(self) -> bool:
        """Whether it can object beside the pace, as things are.

        A gate knows that itself of its circuit, its hold and the controller's cap.
        """
        ...

    def idle_from(self, now: float) -> float:
        """From this instant on forgetting it would change nothing but what was learned."""
        ...

    def to_state(self) -> Any:
        """All that it knows, as plain values."""

    def load_state(self, state: Any) -> None:
        """Go on from ``to_state()``."""


class HookedPolicy(Policy, Hooks, Protocol):
    """A policy, asked for those hooks only that it has."""


class CircuitRole(Policy, Protocol):
    """What a gate needs of its first policy beside the rest."""

    breaker: Breaker
    probe_asked_at: float
    """When the last probe was asked for."""
    unmatched: tuple[Signal, float, float] | None
    """An answer of no known call, its latency and when it came, while a probe was out that it may belong to."""

    def probe(self) -> int | None:
        """A probe that is out, if there is one."""
        ...


class HoldRole(Policy, Protocol):
    """What a gate needs of its second policy beside the rest."""

    @property
    def opens_at(self) -> float:
        """Nothing starts before this instant, by any pause or hold."""
        ...

    @property
    def asked_until(self) -> float:
        """The end of the last pause that was asked for, by the server or by an operator."""
        ...

    @property
    def reason(self) -> WaitReason:
        """What ends last: a pause that was asked for, or the controller's hold."""
        ...

    def pause(self, seconds: float, now: float) -> bool:
        """Start nothing for so long, for another reason than an answer; False if a longer pause holds already."""
        ...


class PacerRole(Policy, Protocol):
    """What a gate needs of its last policy beside the rest."""

    rate: float
    burst: float
    tokens: float
    held: bool
    ramp: ResumeRamp
    has_waiters: bool
    late_until: float
    lost_store: str
    """The store that cannot be reached, where this pacer replaces it."""

    @property
    def learned_rate(self) -> float: ...

    @property
    def is_at_ceiling(self) -> bool:
        """Whether an operator's limit, and not the controller's rate, is what paces."""
        ...

    def worth(self, cost: Cost) -> float:
        """How much of the pace a cost takes that is no plain number."""
        ...

    def try_take(self, now: float) -> bool: ...

    def refill(self, now: float) -> float: ...

    def skip(self, slots: float, now: float) -> None: ...

    def apply(self, opens_at: float, now: float) -> None: ...

    def explain(self, wait: Wait, now: float) -> Explanation:
        """The numbers behind a wait for the pace or for a share of it."""
        ...

    def to_state(self) -> Any: ...

    def mark_late(self, is_late: bool, now: float) -> None: ...

    def is_late(self, now: float) -> bool: ...


class HookPlaces(NamedTuple):
    """For each hook, the places in ``PolicyList.in_order`` of the policies that have it."""

    admit: tuple[int, ...]
    record: tuple[int, ...]
    settle: tuple[int, ...]
    release: tuple[int, ...]
    cancel: tuple[int, ...]
    on_wait: tuple[int, ...]
    on_queue: tuple[int, ...]
    set_ceiling: tuple[int, ...]
    may_object: tuple[int, ...]
    idle_from: tuple[int, ...]


class PolicyList:
    """A gate's policies, in the order in which they are asked, and which of them have each of the hooks."""

    __slots__ = ("circuit", "hold", "hooks", "in_order", "pacer", "quotas")

    def __init__(
        self,
        circuit: CircuitRole,
        hold: HoldRole,
        bounds: tuple[Policy, ...],
        pacer: PacerRole,
        quotas: QuotaPolicy | None = None,
    ) -> None:
        """``bounds``: concurrency and an operator's limit, where there are any; ``quotas``: known limits."""
        self.circuit, self.hold, self.pacer, self.quotas = circuit, hold, pacer, quotas
        known = () if quotas is None else (quotas,)
        self.in_order = cast("tuple[HookedPolicy, ...]", (circuit, hold, *bounds, *known, pacer))
        self.hooks = _places_of_hooks(*map(type, self.in_order))


@lru_cache(maxsize=64)
def _places_of_hooks(*kinds: type) -> HookPlaces:
    """The same for every key of a limiter: lists of policies would take 500 bytes for each key that is in use."""
    hooks = HookPlaces._fields
    return HookPlaces(*(tuple(place for place, kind in enumerate(kinds) if hasattr(kind, hook)) for hook in hooks))
