"""The policies of a member's gate while it does without the coordinator, as the only member or with the store lost.

    solo (no other member)    local policies under ``SoloController``, which goes by what this member's leader concludes
    share (the store is lost) local policies at this member's share of the last known rate

    call ──> SoloController.on_send ──> leader.send          no exchange in between
    answer ──> SoloController.learn ──> leader.end ──> mirror: pace, pause, ramp and circuit

The leader's gate is the one that another process would go on from; so nothing is learned twice, and nothing is lost
when another member comes. In both cases the pacer counts what starts, so that it can be reported to the coordinator. An
operator's limit spaces this process's calls, with and without the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..config import RateLimitConfig
from ..core.circuit_breaker import Breaker, CircuitPolicy
from ..core.concurrency import ConcurrencyPolicy, InFlight
from ..core.controller import Controller
from ..core.cooldown import CooldownSettings, HoldPolicy
from ..core.decision import (
    INSTANT,
    LONGEST_WAIT,
    NEVER,
    CircuitState,
    ControllerNote,
    Outcome,
    Refuse,
    RefuseReason,
    Wait,
    WaitReason,
)
from ..core.gate import Gate
from ..core.gate_config import GateConfig
from ..core.pacer import NO_RAMP, Pacer, ResumeRamp
from ..core.policy import Cost, Demand, PolicyList, QueueDemand, Ticket
from ..core.quota import Quota, QuotaPolicy
from ..core.signal import Signal
from .holdings import LEAST_RATE
from .leader import QuotaLeader
from .observation_log import ABANDONED, RELEASED
from .protocol import QuotaTerms

AT_ONCE = 0.1
"""How much of a known limit may go at once, at most, where others cannot be asked."""


class CeilingPolicy:
    """An operator's limit on a shared key is for this process: no call sooner after the last one than it allows."""

    __slots__ = ("ceiling",)

    def __init__(self) -> None:
        self.ceiling: float | None = None

    def set_ceiling(self, ceiling: float | None) -> None:
        self.ceiling = ceiling

    def check(self, now: float, demand: Demand) -> Wait | None:
        if self.ceiling is None:
            return None
        may_at = demand.last_sent_at + (demand.requests_ahead + demand.requests) / self.ceiling
        return None if may_at <= now + INSTANT else Wait(WaitReason.CEILING, may_at)

    def may_object(self) -> bool:
        return self.ceiling is not None


class StoreLostPolicy:
    """Refuse everything while the store cannot be reached, where that was chosen."""

    __slots__ = ("store",)

    def __init__(self) -> None:
        self.store = ""
        """The store that is lost; empty: none is."""

    def check(self, now: float, demand: Demand) -> Refuse | None:
        return Refuse(RefuseReason.STORE_LOST, subject=self.store) if self.store else None

    def may_object(self) -> bool:
        return bool(self.store)


class MemberPacer(Pacer):
    """A local pacer that counts what starts without the coordinator."""

    __slots__ = ("_count", "_queue_changed", "is_share", "lost_store")

    def __init__(
        self,
        controller: Controller,
        config: GateConfig,
        queue_changed: Callable[[QueueDemand | None, float], None],
        count: Callable[[Cost], None],
        now: float,
        *,
        is_share: bool,
    ) -> None:
        super().__init__(controller, config.burst, config.least, config.most)
        self.rate, self.tokens, self.filled_at = controller.rate, 0.0, now
        self._count, self._queue_changed = count, queue_changed
        self.is_share = is_share
        """Whether its rate is this member's share of the last that was known."""
        self.lost_store = ""

    def try_take(self, now: float) -> bool:
        if not super().try_take(now):
            return False
        self._count(1)
        return True

    def admit(self, ticket: Ticket, now: float) -> None:
        super().admit(ticket, now)
        self._count(ticket.cost)

    def on_queue(self, queue: QueueDemand | None, now: float) -> None:
        super().on_queue(queue, now)
        self._queue_changed(queue, now)

    def set_ceiling(self, ceiling: float | None) -> None:
        """Which ``CeilingPolicy`` keeps."""

    @property
    def learned_rate(self) -> float:
        return self.rate if self.is_share else super().learned_rate

    def to_state(self) -> None:  # type: ignore[override]
        """What is known of a shared key lies in its store."""


class SoloController(Controller):
    """What a leader concludes from this member's calls, in the member's own time."""

    __slots__ = (
        "_concludes",
        "_gate",
        "_restart",
        "ahead",
        "cap",
        "hold_until",
        "leader",
        "learns",
        "member",
        "rate",
        "uncount",
        "watches_sends",
    )

    def __init__(
        self,
        leader: QuotaLeader,
        member: str,
        ahead: float,
        gate: Gate,
        restart: Callable[[float], None],
        uncount: Callable[[Ticket], None],
    ) -> None:
        """``gate`` is the member's own; ``restart`` starts over where what was learned cannot be used."""
        self.leader, self.member = leader, member
        self._gate = gate
        self._restart = restart
        self.uncount = uncount
        """To be called for a call that was not made after all."""
        self.ahead = ahead
        """The leader's time minus the member's."""
        concludes = self._concludes = leader.gate.controller
        self.learns = concludes.learns  # type: ignore[misc]
        self.watches_sends = concludes.watches_sends or concludes.learns  # type: ignore[misc]
        self._conclude()

    def _conclude(self) -> None:
        """Take over what the leader says now."""
        concludes = self._concludes
        self.rate, self.cap, self.hold_until = concludes.rate, concludes.cap, concludes.hold_until - self.ahead

    @property
    def is_told(self) -> bool:
        return self._concludes.is_told

    @property
    def is_guess(self) -> bool:
        return self._concludes.is_guess

    @property
    def learned(self) -> float:
        return self._concludes.learned

    def on_send(self, ticket: Ticket, now: float) -> None:
        self.leader.send(self.member, ticket.seq, now + self.ahead)
        self._conclude()

    def on_wait(self, now: float) -> None:
        self.leader.gate.note_wait(now + self.ahead)

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        """``learn`` has done it."""
        return 0.0

    def learn(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        """Have the leader learn from an answer, and go by what follows."""
        gate, leader, there = self._gate, self.leader, now + self.ahead
        if not self.learns and signal.outcome is Outcome.OK and ticket.seq not in gate.breaker.probes:
            leader.succeeded(latency, there)
            return
        try:
            skipped = leader.end(self.member, ticket.seq, there, latency, signal, draw)
        except Exception:
            self._restart(now)
            return
        if gate.breaker.probes:
            gate.breaker.give_back(ticket.seq)
        if skipped:
            gate.pacer.skip(skipped, now)
        self.mirror(now)

    def end_without_answer(self, ticket: Ticket, how: str, now: float) -> None:
        self.leader.end_silently(self.member, ticket.seq, how)
        self.mirror(now)

    def pause(self, seconds: float, now: float) -> None:
        self.leader.gate.pause(seconds, now + self.ahead)
        self.mirror(now)

    def mirror(self, now: float) -> None:
        """Have the pause, the ramp and the circuit that were learned, in our own time."""
        self._conclude()
        gate, leading, ahead = self._gate, self.leader.gate, self.ahead
        circuit = gate.breaker
        asked_until = leading.hold.asked_until
        if asked_until > NEVER and isinstance(gate.hold, HoldPolicy):
            gate.hold.keep_until(asked_until - ahead)
        ramp = leading.pacer.ramp
        if ramp is not NO_RAMP:
            gate.pacer.ramp = ResumeRamp(ramp.starts_at - ahead, ramp.lasts, ramp.least)
        if leading.breaker.state is not circuit.state:
            circuit.state, circuit.opened_at = leading.breaker.state, leading.breaker.opened_at - ahead
            circuit.probes.clear()
            if circuit.state is CircuitState.CLOSED:
                gate.pacer.tokens = min(gate.pacer.tokens, 1.0)
        gate.apply_limits(now)

    def why(self) -> ControllerNote | str:
        return self._concludes.why()

    def why_cap(self) -> ControllerNote | str:
        return self._concludes.why_cap()


class SoloCircuit(CircuitPolicy):
    """The circuit that the leader concludes; its answers are the leader's to learn from."""

    __slots__ = ("_controller",)

    def __init__(self, breaker: Breaker, pacer: Pacer, controller: SoloController) -> None:
        super().__init__(breaker, pacer)
        self._controller = controller

    def admit(self, ticket: Ticket, now: float) -> None:
        super().admit(ticket, now)
        if not self._controller.watches_sends and ticket.seq in self.breaker.probes:
            self._controller.on_send(ticket, now)

    def record(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        self._controller.learn(ticket, signal, latency, now, draw)

    def release(self, ticket: Ticket, now: float) -> None:
        super().release(ticket, now)
        self._controller.end_without_answer(ticket, RELEASED, now)

    def cancel(self, ticket: Ticket, now: float) -> None:
        super().cancel(ticket, now)
        self._controller.end_without_answer(ticket, ABANDONED, now)
        self._controller.uncount(ticket)


class SoloHold(HoldPolicy):
    """The pause that the leader concludes."""

    __slots__ = ("_controller",)

    def __init__(self, controller: SoloController, settings: CooldownSettings | None, pacer: Pacer) -> None:
        super().__init__(controller, settings, pacer)
        self._controller = controller

    def record(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        """The leader does."""

    def pause(self, seconds: float, now: float) -> bool:
        self._controller.pause(seconds, now)
        return False


class MemberPolicies:
    """Makes the lists that a member's gate goes by without the coordinator."""

    def __init__(
        self,
        breaker: Breaker,
        in_flight: InFlight,
        queue_changed: Callable[[QueueDemand | None, float], None],
        count: Callable[[Cost], None],
    ) -> None:
        self._breaker, self._in_flight = breaker, in_flight
        self._queue_changed, self._count = queue_changed, count
        self.ceiling, self.store_lost = CeilingPolicy(), StoreLostPolicy()

    def solo(self, config: GateConfig, controller: SoloController, now: float) -> PolicyList:
        """No other member is there: what the leader concludes counts at once."""
        pacer = MemberPacer(controller, config, self._queue_changed, self._count, now, is_share=False)
        circuit, hold = SoloCircuit(self._breaker, pacer, controller), SoloHold(controller, config.cooldown, pacer)
        return self._list(config, controller, circuit, hold, pacer)

    def share(self, config: GateConfig, controller: Controller, known_until: float, now: float) -> PolicyList:
        """The store is lost: this member's share of what is known, with every pause that is known."""
        pacer = MemberPacer(controller, config, self._queue_changed, self._count, now, is_share=True)
        circuit, hold = CircuitPolicy(self._breaker, pacer), HoldPolicy(controller, config.cooldown, pacer)
        if known_until > now:
            hold.keep_until(known_until)
        return self._list(config, controller, circuit, hold, pacer)

    def _list(
        self, config: GateConfig, controller: Controller, circuit: CircuitPolicy, hold: HoldPolicy, pacer: MemberPacer
    ) -> PolicyList:
        bounds = (self.store_lost, ConcurrencyPolicy(controller, self._in_flight), self.ceiling)
        quotas = QuotaPolicy(config.quotas, self._in_flight) if config.quotas else None
        return PolicyList(circuit, hold, bounds, pacer, quotas)


# ------------------------------------------------------------------ what is known beforehand, and a share of it


def terms_of(policy: GateConfig, rate: float) -> QuotaTerms:
    """What is known beforehand. A large limit on requests bounds the pace; all others are kept by their windows."""
    most, burst = policy.most, policy.burst
    limits: list[tuple[str, float, float, float]] = []
    for quota in policy.quotas:
        if quota.dimension == "requests" and not quota.all_at_once:
            most, burst = min(most, quota.refill), min(burst, quota.burst)
        else:
            limits.append((quota.dimension, quota.amount, quota.window, quota.burst))
    return QuotaTerms(
        rate=min(rate, most),
        burst=burst,
        most=most,
        probes=policy.breaker.half_open_probes,
        probe_for=policy.breaker.cool_off,
        limits=tuple(sorted(limits)),
    )


def share_config(config: RateLimitConfig, rate: float, members: int) -> GateConfig:
    """The settings of a gate that may use one of ``members`` shares of everything."""
    share = max(rate / members, LEAST_RATE)
    least = min(config.min_rps, share)
    paced = replace(config, initial_rps=share, max_rps=share, min_rps=least, limits={}, burst={}, overrides={})
    policy = paced.gate_config()
    quotas = tuple(_share_of(quota, members) for quota in config.quotas())
    return replace(policy, quotas=quotas, burst=max(1.0, policy.burst / members))


def _share_of(quota: Quota, members: int) -> Quota:
    """As much in a longer window, so that what fits into the whole fits into a share; little of it at once.

    One that does not pace stays as it is; the gate takes from it what is not this member's.
    """
    if not quota.paces:
        return quota
    window = min(quota.window * members, LONGEST_WAIT)
    return replace(quota, window=window, burst=min(quota.burst, AT_ONCE * quota.amount) / members)
