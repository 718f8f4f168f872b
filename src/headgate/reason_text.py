"""Sentences for people: the one place that makes them from reasons that travel as data.

Everything below and beside this file carries codes and numbers (``WaitReason``, ``Explanation``, ``EventRecord``, ...);
logs, pages, terminals, reports and errors ask here for the words. It lies low, because an error of any layer
may need a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from .core.decision import (
    CircuitState,
    ControllerNote,
    Explanation,
    PaceReason,
    Refuse,
    RefuseReason,
    WaitReason,
)
from .formatting import format_number, format_seconds

PAUSED = "paused by an operator"
_PROBE = "circuit half open; waiting for the probe's answer"
_OPEN = "circuit open after too many failures"


def refuse_text(refusal: Refuse) -> str:
    """What a refusal says, without a time."""
    return _refusal(refusal.reason, refusal.subject)


def reason_text(why: Explanation) -> str:
    """One sentence, without its scope and without a full stop."""
    if isinstance(why.reason, RefuseReason):
        text = _refusal(why.reason, why.subject) + _left(why)
    else:
        text = _wait(why.reason, why)
    return f"{text}; alone, because {why.lost_store} cannot be reached" if why.lost_store else text


_CONTROLLERS = {
    PaceReason.OWN_STRATEGY: "by a strategy of your own",
    PaceReason.OWN_CAP: "as many as the strategy allows at once",
    PaceReason.FIXED: "at a fixed rate",
    PaceReason.AIMD: "a rate that rises with every fast answer and halves when refused",
    PaceReason.GRADIENT: "a rate that follows how fast answers come back",
    PaceReason.OBSERVED_RATE: "about as fast as before the failures",
    PaceReason.SEARCHING: "looking for the limit",
    PaceReason.BLOCKED: "waiting until a probe is let in",
    PaceReason.WINDOW: "waiting for a window to reopen",
    PaceReason.HEADERS: "following the server's headers",
    PaceReason.CONCURRENCY: "keeping to {:.0f} calls at a time",
    PaceReason.SLOW_ANSWERS: "keeping to {:.0f} calls at a time since answers got slow",
    PaceReason.SHARED: "sharing the quota with others, {:.{digits}f}/s at the last refusal",
    PaceReason.PROBING: "testing above the measured {:.{digits}f}/s",
    PaceReason.HOLDING: "holding the measured {:.{digits}f}/s",
}
_CAPS = {
    PaceReason.CONCURRENCY: "more at once have been refused",
    PaceReason.SLOW_ANSWERS: "more at once have only made answers slower",
}


def controller_text(note: ControllerNote | str) -> str:
    """What a controller says of its pace, to follow ``paced_text``."""
    if isinstance(note, str):
        return note
    return _CONTROLLERS[note.reason].format(note.number, digits=1 if note.number >= 1.0 else 3)


def _cap_text(note: ControllerNote | str) -> str:
    return note if isinstance(note, str) else _CAPS.get(note.reason) or controller_text(note)


def paced_text(rate: float) -> str:
    """What is said of a pace of which nothing more is known."""
    return f"paced at {format_number(rate)} calls/s"


def _refusal(reason: RefuseReason, subject: str) -> str:
    if reason is RefuseReason.CIRCUIT_OPEN:
        return _OPEN
    if reason is RefuseReason.PROBE_IN_FLIGHT:
        return _PROBE
    if reason is RefuseReason.QUEUE_FULL:
        return f"{subject} callers are waiting already"
    return f"{subject} cannot be reached; nothing may start without it"


def _wait(reason: WaitReason, why: Explanation) -> str:
    left = _left(why)
    if why.ceiling is not None:
        return f"held under the operator's limit of {why.ceiling:g} calls/s{left}"
    if reason is WaitReason.PAUSED:
        return PAUSED
    if reason is WaitReason.CIRCUIT_OPEN:
        return _OPEN + left
    if reason is WaitReason.PROBE_IN_FLIGHT:
        return _PROBE
    if reason is WaitReason.DEPTH:
        return f"{why.in_flight} calls in flight, {_cap_text(why.controller_note)}"
    if reason is WaitReason.FLOOR:
        return f"told to wait by the server{left}"
    if reason is WaitReason.HOLD:
        return f"refused a moment ago, {controller_text(why.controller_note)}{left}"
    if reason is WaitReason.QUOTA:
        return f"held under the known limit of {why.subject}{left}"
    together = f", shared by {why.members} processes" if why.members > 1 else ""
    if reason is WaitReason.SHARE:
        return f"waiting for a share of {format_number(why.rate)} calls/s{together}"
    ramp = " on the way back from a pause" if why.is_ramping else ""
    note = f", {controller_text(why.controller_note)}" if why.controller_note else ""
    return f"{paced_text(why.rate)}{ramp}{together}{note}{left}"


def _left(why: Explanation) -> str:
    return "" if why.seconds_left is None else _to_go(why.seconds_left)


def _to_go(seconds: float) -> str:
    return f", {format_seconds(seconds)} to go"


# ---------------------------------------------------------------------- lanes of a batch or a crawl

_LANES = {
    "": "",
    "rows": "no rows",
    "workers": "all workers are busy",
    "paused": PAUSED,
    "cooldown": "pausing after a rate limit",
    "credential": "its key rests",
    "credential_held": "its key is in use (at_once)",
    "circuit": "its circuit is open after failures",
    "ramp": "coming back slowly",
    "retry_budget": "the retry budget is spent",
    "caps": "the cap on tokens or cost is reached",
    "robots": "reading robots.txt",
    "crawl_delay": "crawl-delay",
    "pages": "enough pages are under way",
    "memory": "enough bytes are in memory",
}


def lane_text(code: str, seconds_left: float | None = None, in_flight: int = 0) -> str:
    """Why nothing starts in a lane, by the code of what it waits for; ``inf`` seconds say that it never will."""
    if code == "credential" and seconds_left == inf:
        return "its key is retired"
    text = f"{in_flight} answers awaited" if code == "answers" else _LANES.get(code, code)
    return text if seconds_left is None or not 0 < seconds_left < inf else f"{text}{_to_go(seconds_left)}"


# ---------------------------------------------------------------------- events


class RateChange(NamedTuple):
    """A learned pace has changed."""

    before: float
    after: float
    note: ControllerNote | str
    """What the controller says of itself."""


class CircuitChange(NamedTuple):
    before: CircuitState
    after: CircuitState


class PauseStart(NamedTuple):
    """Nothing starts for so long."""

    seconds: float


def event_reason(code: str, detail: object) -> str:
    """The public ``reason`` of an event."""
    if isinstance(detail, Explanation):
        return reason_text(detail)
    if isinstance(detail, RateChange):
        change = f"{format_number(detail.before, 4)} to {format_number(detail.after, 4)} calls/s"
        return f"{change}, {controller_text(detail.note)}"
    if isinstance(detail, CircuitChange):
        return f"{detail.before.value} to {detail.after.value}"
    if isinstance(detail, PauseStart):
        return format_seconds(detail.seconds)
    text = str(detail)
    return f"{code}: {text}" if code and text else code or text


# ---------------------------------------------------------------------- credentials

_CREDENTIALS = {
    "rate_limited": "it was rate limited",
    "quota_exhausted": "its quota is used up",
    "auth": "it is not accepted",
    "key_dead": "it is no longer valid",
}


def credential_why(code: str) -> str:
    """Why a credential rests or is retired."""
    return _CREDENTIALS.get(code, code) or "no reason given"


def credential_text(state: str, code: str, back_in: float | None) -> str:
    """What follows a credential's name in a sentence about callers that wait for it."""
    if state == "retired":
        return f"is retired: {credential_why(code)}"
    if back_in is not None:
        return f"rests {format_seconds(max(0.0, back_in))}: {credential_why(code)}"
    return "is in use by other calls"


# ---------------------------------------------------------------------- stores


def store_text(where: str, members: int, is_lost: bool) -> str:
    """Where quotas are shared, and whether that can be reached."""
    if is_lost:
        how = "as without a store" if members == 1 else "at this process's own share"
        return f"{where} cannot be reached; calls go on {how}"
    return f"{where}, shared by {members:,} process{'' if members == 1 else 'es'}"


# ---------------------------------------------------------------------- a batch as a whole


def workers_text(workers: int) -> str:
    return f"all {workers:,} workers are busy"


def elsewhere_text(processes: Iterable[tuple[int, str]]) -> str:
    """Other processes, by number and host, have all rows that are open."""
    names = ", ".join(f"process {pid} on {host}" for pid, host in processes)
    return f"nothing is left for this process: {names} has the open rows"


def retries_text(next_in: float | None) -> str:
    when = "" if next_in is None else f", the first in {format_seconds(next_in)}"
    return f"rows that failed are tried again in their time{when}"
