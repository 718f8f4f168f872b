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
from .formatting import format_number, format_rate, format_seconds, plural

SHORTEST_TOLD = 1.0
"""Seconds; of a shorter wait no duration is given."""
PAUSED = "paused by an operator"
_PROBE = "circuit half open; waiting for the result of a probe"
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
    return f"{text}; not shared, because {why.lost_store} cannot be reached" if why.lost_store else text


CONTROLLER_TEXTS = {
    PaceReason.OWN_STRATEGY: "by a custom strategy",
    PaceReason.OWN_CAP: "the most that the strategy allows",
    PaceReason.FIXED: "at a fixed rate",
    PaceReason.AIMD: "raised with every fast answer, cut when rate limited",
    PaceReason.GRADIENT: "following response times",
    PaceReason.OBSERVED_RATE: "close to the rate before the failures",
    PaceReason.SEARCHING: "searching for the limit",
    PaceReason.BLOCKED: "waiting for a probe to succeed",
    PaceReason.WINDOW: "waiting for the quota window to reset",
    PaceReason.HEADERS: "following the server's headers",
    PaceReason.EMPTY: "nothing is left by the server's headers",
    PaceReason.CONCURRENCY: "at most {:.0f} in flight",
    PaceReason.SLOW_ANSWERS: "at most {:.0f} in flight since answers got slower",
    PaceReason.SHARED: "sharing the quota with other clients, last rate limited at {:.{digits}f}/s",
    PaceReason.PROBING: "testing above the measured {:.{digits}f}/s",
    PaceReason.HOLDING: "holding the measured {:.{digits}f}/s",
}
_CAPS = {
    PaceReason.CONCURRENCY: "more were rate limited",
    PaceReason.SLOW_ANSWERS: "more only made answers slower",
}


def controller_text(note: ControllerNote | str) -> str:
    """What a controller says of its pace, to follow ``paced_text``."""
    if isinstance(note, str):
        return note
    return CONTROLLER_TEXTS[note.reason].format(note.number, digits=1 if note.number >= 1.0 else 3)


def _cap_text(note: ControllerNote | str) -> str:
    return note if isinstance(note, str) else _CAPS.get(note.reason) or controller_text(note)


def paced_text(rate: float) -> str:
    """What is said of a pace of which nothing more is known."""
    return f"paced at {format_rate(rate)}"


def _refusal(reason: RefuseReason, subject: str) -> str:
    if reason is RefuseReason.CIRCUIT_OPEN:
        return _OPEN
    if reason is RefuseReason.PROBE_IN_FLIGHT:
        return _PROBE
    if reason is RefuseReason.QUEUE_FULL:
        return f"the wait queue is full ({subject} callers)"
    return f"{subject} cannot be reached, and calls are refused without it (without_store='refuse')"


def _wait(reason: WaitReason, why: Explanation) -> str:
    left = _left(why)
    if why.ceiling is not None:
        return f"held under the operator's limit of {format_rate(why.ceiling)}{left}"
    if reason is WaitReason.PAUSED:
        return PAUSED
    if reason is WaitReason.CIRCUIT_OPEN:
        return _OPEN + left
    if reason is WaitReason.PROBE_IN_FLIGHT:
        return _PROBE
    if reason is WaitReason.DEPTH:
        return f"{plural(why.in_flight, 'call')} in flight, {_cap_text(why.controller_note)}"
    if reason is WaitReason.FLOOR:
        return f"rate limited by the server{left}"
    if reason is WaitReason.CAPACITY:
        return f"the service tier is full{left}"
    if reason is WaitReason.HOLD:
        note, told = why.controller_note, controller_text(why.controller_note)
        is_empty = not isinstance(note, str) and note.reason is PaceReason.EMPTY
        return f"{told}{left}" if is_empty else f"rate limited a moment ago, {told}{left}"
    if reason is WaitReason.QUOTA:
        return f"waiting for the known limit of {why.subject}{left}"
    together = f", shared by {why.members} processes" if why.members > 1 else ""
    if reason is WaitReason.SHARE:
        return f"waiting for a share of {format_rate(why.rate)}{together}"
    ramp = " while ramping up after a pause" if why.is_ramping else ""
    note = f", {controller_text(why.controller_note)}" if why.controller_note else ""
    return f"{paced_text(why.rate)}{ramp}{together}{note}{left}"


def _left(why: Explanation) -> str:
    return "" if why.seconds_left is None else _to_go(why.seconds_left)


def _to_go(seconds: float) -> str:
    """Nothing for a wait that is over before it can be read."""
    return f", {format_seconds(seconds)} to go" if seconds >= SHORTEST_TOLD else ""


# ---------------------------------------------------------------------- lanes of a batch or a crawl

ACCOUNT_RESTS = (
    "the account has no credit or is at its spending limit; one call every 15 min checks whether it is freed"
)


def not_sent_text(seconds: float | None) -> str:
    """What a vendor's client is told of a call that an account cannot pay for; the next check is in so many seconds."""
    when = "" if seconds is None else f", next in {format_seconds(seconds)}"
    return f"Not sent: {ACCOUNT_RESTS}{when}. Add credit or raise the limit at the vendor."


_LANES = {
    "": "",
    "rows": "no rows",
    "workers": "all workers are busy",
    "paused": PAUSED,
    "cooldown": "waiting for the rate limit",
    "credential": "key resting",
    "credential_held": "key in use (at_once)",
    "spend": "the account has no credit or is at its spending limit; next check",
    "model": "the server has no such model",
    "circuit": "circuit open after too many failures",
    "ramp": "ramping up after a pause",
    "retry_budget": "the retry budget is spent",
    "caps": "the limit on tokens or cost is reached",
    "robots": "reading robots.txt",
    "crawl_delay": "crawl-delay",
    "pages": "the last pages allowed are in flight",
    "memory": "the memory limit is reached",
}


def lane_text(code: str, seconds_left: float | None = None, in_flight: int = 0) -> str:
    """Why nothing starts in a lane, by the code of what it waits for; ``inf`` seconds say that it never will."""
    if code == "credential" and seconds_left == inf:
        return "key disabled"
    text = f"waiting for {plural(in_flight, 'answer')}" if code == "answers" else _LANES.get(code, code)
    if seconds_left is None or not 0 < seconds_left < inf:
        return text
    return (
        f"{text}, available again in {format_seconds(seconds_left)}"
        if code == "credential"
        else f"{text}{_to_go(seconds_left)}"
    )


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
    "rate_limited": "rate limited",
    "quota_exhausted": "out of quota",
    "spend": "out of credit, or at its spending limit",
    "auth": "rejected by the server",
    "key_dead": "no longer valid",
    "parked by hand": "parked by an operator",
    "retired by hand": "disabled by an operator",
    "freed by hand": "freed by an operator",
}


def credential_why(code: str) -> str:
    """Why a credential rests or is disabled."""
    return _CREDENTIALS.get(code, code) or "no reason given"


def credential_text(state: str, code: str, back_in: float | None) -> str:
    """What follows a credential's name in a sentence about callers that wait for it."""
    if state == "retired":
        return f"is disabled: {credential_why(code)}"
    if back_in is not None:
        return f"rests for {format_seconds(max(0.0, back_in))}: {credential_why(code)}"
    return "is in use by other calls"


# ---------------------------------------------------------------------- stores


def store_text(where: str, members: int, is_lost: bool) -> str:
    """Where quotas are shared, and whether that can be reached."""
    if is_lost:
        how = "without it" if members == 1 else "at this process's own share"
        return f"{where} cannot be reached; continuing {how}"
    return f"{where}, shared by {plural(members, 'process')}"


# ---------------------------------------------------------------------- a batch as a whole


def caps_text(name: str, cap: float) -> str:
    """Of a fleet that has nothing left to spend but what is in flight."""
    return f"{name}={format_number(cap)} is spent or leased to workers"


def workers_text(workers: int) -> str:
    return f"all {workers:,} workers are busy"


def elsewhere_text(processes: Iterable[tuple[int, str]]) -> str:
    """Other processes, by number and host, have all rows that are open."""
    names = ", ".join(f"process {pid} on {host}" for pid, host in processes)
    return f"no rows left for this process: the open rows are held by {names}"


def retries_text(next_in: float | None) -> str:
    when = "" if next_in is None else f", the first in {format_seconds(next_in)}"
    return f"waiting to retry rows{when}"
