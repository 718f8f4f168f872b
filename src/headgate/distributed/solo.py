"""A member that is alone at its coordinator: its gate has local policies, and goes by what its leader concludes.

    call ──> SoloController.on_send ──> leader.send          no exchange in between
    answer ──> SoloController.learn ──> leader.end ──> mirror: pace, pause, ramp and circuit

The leader's gate is the one that another process would go on from; so nothing is learned twice, and nothing is lost
when another member comes.
"""

from __future__ import annotations

from collections.abc import Callable

from ..core.circuit_breaker import Breaker, CircuitPolicy
from ..core.controller import Controller
from ..core.cooldown import CooldownSettings, HoldPolicy
from ..core.decision import NEVER, CircuitState, ControllerNote, Outcome, Wait, WaitReason
from ..core.gate import Gate
from ..core.pacer import Pacer
from ..core.resume_ramp import NO_RAMP, ResumeRamp
from ..core.signal import Signal
from ..core.ticket import Ticket
from .leader import QuotaLeader
from .observation_log import ABANDONED, RELEASED


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
        """``gate`` is the member's own; ``restart`` begins anew where what was learned cannot be used."""
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
        self.leader.gate.on_wait(Wait(WaitReason.PACE, now), now + self.ahead)

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
            gate.skip(skipped, now)
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
