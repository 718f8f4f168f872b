"""Why a call does not start: the numbers behind a gate's objection, for ``reason_text`` to word."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .decision import Explanation, Refuse, Wait, WaitReason

if TYPE_CHECKING:
    from .gate import Gate

MOSTLY = 0.5
"""The share of a wait from which on a pause is what it is for."""


def blocked_by(gate: Gate, now: float) -> Explanation | None:
    """Why a call would not start now; None if it would."""
    found = gate.check(now)
    if found is None or (found.reason is WaitReason.SHARE and not gate.has_waiters):  # one exchange away
        return None
    return explain(gate, found, now)


def explain(gate: Gate, found: Wait | Refuse, now: float) -> Explanation:
    """What the gate objects. To be asked right after the objection, while it still holds."""
    if isinstance(found, Refuse):
        left = None if found.retry_at is None else found.retry_at - now
        return Explanation(reason=found.reason, seconds_left=left, subject=found.subject)
    why = _explain_wait(gate, found, _decider(gate, found, now), now)
    return replace(why, lost_store=gate.pacer.lost_store) if gate.pacer.lost_store else why


def _decider(gate: Gate, wait: Wait, now: float) -> WaitReason:
    """What a call waits for: behind a pause the pace comes too, but it is the pause that takes long."""
    if wait.reason not in (WaitReason.PACE, WaitReason.SHARE):
        return wait.reason
    if gate.hold.opens_at - now <= MOSTLY * (wait.until - now):
        return wait.reason
    return gate.hold.reason


def _explain_wait(gate: Gate, wait: Wait, reason: WaitReason, now: float) -> Explanation:
    controller, left = gate.controller, wait.until - now
    if reason in (WaitReason.PACE, WaitReason.SHARE):
        return gate.pacer.explain(wait, now)
    if reason is WaitReason.PAUSED:
        return Explanation(reason=reason)
    if reason is WaitReason.CEILING:
        return Explanation(reason=reason, seconds_left=left, ceiling=gate.ceiling)
    if reason is WaitReason.DEPTH:
        return Explanation(reason=reason, in_flight=len(gate.in_flight), controller_note=controller.why_cap())
    if reason is WaitReason.HOLD:
        return Explanation(reason=reason, seconds_left=left, controller_note=controller.why())
    if reason is WaitReason.QUOTA:
        return Explanation(reason=reason, seconds_left=left, subject=str(wait.subject), dimension=wait.code)
    return Explanation(reason=reason, seconds_left=left)
