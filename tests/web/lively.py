"""A run that never was, with all the trouble a page has to show: for looking at the page and for its tests.

Everything is worked out from the time alone, so that any instant can be asked for, also those before it began:

    key                    what goes on                                         at the start
    openai:gpt-5-mini      climbs, is refused, rests for 20 s, comes back       held, 14 s to go
    anthropic:sonnet       an outage of 50 s: the circuit opens, then a ramp    circuit open, 25 s to go
    api.crossref.org       the server's quota falls from 50 to 30 and is found  flowing

One credential rests, one is retired; rows die for three reasons. ``keys`` adds hosts that just flow.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headgate.observe.snapshot import (
    Action,
    ActionRefusedError,
    CredentialLine,
    DeadLine,
    EventLine,
    KeyLine,
    MonitoredRun,
    ProgressLine,
    RunSnapshot,
    Timeline,
    WaitLine,
)

ROWS = 48_000
CYCLE = 120.0
HISTORY = 240.0
"""So many seconds had passed when it began."""
GPT, SONNET, CROSSREF = "openai:gpt-5-mini", "anthropic:sonnet", "api.crossref.org"
BEGINS_AT = {GPT: 101.0, SONNET: 85.0, CROSSREF: 70.0}
"""Where in its cycle each key is at the start."""
LATENCY = {GPT: 0.38, SONNET: 0.9, CROSSREF: 0.12}


SLOWLY = 0.02
"""The share of real time in which a run goes on that several tests look at."""


def slow_clock() -> Callable[[], float]:
    """For a run that is, for all tests of a module, where it began."""
    began_at = time.time()
    return lambda: began_at + SLOWLY * (time.time() - began_at)


@dataclass(frozen=True)
class Moment:
    """One key at one instant."""

    rate: float
    said: float | None
    done: float
    refused: float
    latency: float
    state: str
    left: float = 0.0
    returning: float = 1.0
    waiting: int = 0


def wobble(at: float, salt: float = 0.0) -> float:
    """Between -1 and 1, the same for the same instant."""
    return math.sin(at * 12.9898 + salt) * 0.6 + math.sin(at * 3.233 + 2 * salt) * 0.4


def moment(key: str, elapsed: float) -> Moment:
    """How a key is doing so many seconds after the start."""
    phase = (elapsed + BEGINS_AT.get(key, 0.0)) % CYCLE
    noise = wobble(elapsed, len(key))
    slow = LATENCY.get(key, 0.2) * (1 + 0.12 * noise)
    if key == GPT:
        if phase >= 95 and phase < 115:
            return Moment(44, 50, 0, 3.0 if phase < 96.5 else 0, slow, "held", 115 - phase, waiting=412)
        if phase >= 115 or phase < 9:
            share = 0.15 + 0.85 * ((phase - 115) % CYCLE) / 14
            return Moment(44, 50, 44 * share + noise, 0, slow, "ramp", 0, share, 180)
        rate = 44 + 9 * ((phase - 9) % 29) / 29
        return Moment(
            rate,
            50,
            min(rate, 50) + noise,
            2.0 if rate > 51.5 else 0,
            slow * (1.5 if rate > 50 else 1),
            "open",
            0,
            1,
            96,
        )
    if key == SONNET:
        if phase >= 60 and phase < 110:
            return Moment(18, None, 0, 0, 4.0 if phase < 64 else slow, "circuit", 110 - phase, waiting=1_287)
        if phase >= 110:
            return Moment(18, None, 1.8 * (phase - 110), 0, slow, "ramp", 0, (phase - 110) / 10, 640)
        return Moment(
            18 + 5 * phase / 60,
            None,
            18 + 5 * phase / 60 + noise,
            1.0 if int(phase) % 23 == 22 else 0,
            slow,
            "open",
            0,
            1,
            31,
        )
    if key == CROSSREF:
        said = 30.0 if 40 <= phase < 88 else 50.0
        since = phase - 40 if said == 30 else (phase - 88) % CYCLE
        rate = said + ((20 if said == 30 else -20) * math.exp(-since / (2.5 if said == 30 else 9)))
        refused = 4 * math.exp(-since) if said == 30 else 0.0
        return Moment(rate, said, min(rate, said) + noise, refused if refused > 0.3 else 0, slow, "open", 0, 1, 12)
    pace = 2 + 9 * abs(wobble(len(key), float(key[5:9] or 0)))
    return Moment(pace + 0.4 * noise, None, pace + 0.4 * noise, 0, slow, "open", 0, 1, int(3 * abs(noise)))


class Lively(MonitoredRun):
    """``keys`` keys in all, ``events_rate`` events a second. An operator's actions change what it says next."""

    def __init__(
        self,
        name: str = "nightly-abstracts",
        *,
        keys: int = 3,
        events_rate: float = 6.0,
        clock: Callable[[], float] = time.time,
        ends_after: float = math.inf,
    ) -> None:
        self.name, self.events_rate, self.clock, self.ends_after = name, events_rate, clock, ends_after
        self.began_at = clock()
        self.keys = (GPT, SONNET, CROSSREF, *(f"host-{number:04}.example.org" for number in range(4, keys + 1)))
        self.acted: list[Action] = []
        self.paused_at: float | None = None
        self.limits: dict[str, float] = {}
        self.parked: dict[str, float] = {}
        self.lock = threading.Lock()

    @property
    def elapsed(self) -> float:
        return (self.clock() if self.paused_at is None else self.paused_at) - self.began_at

    def snapshot(self) -> RunSnapshot:
        with self.lock:
            now, elapsed = self.clock(), self.elapsed
            lines = tuple(self._key(key, elapsed) for key in self.keys)
            done = min(ROWS - 61, int(29_400 + 71.3 * elapsed))
            ended = elapsed >= self.ends_after
            dead = (
                DeadLine(reason="the answer was not the JSON that was asked for", count=38, example="row 18,204"),
                DeadLine(reason="refused for good: 400 context_length_exceeded", count=17, example="row 7,731"),
                DeadLine(reason="not found: 404", count=6, example="doi:10.1000/182"),
            )
            waits = self._waits(elapsed)
            return RunSnapshot(
                run=self.name,
                title="abstracts.jsonl",
                kind="run",
                pid=41_207,
                host="workbench",
                started_at=self.began_at - 412,
                at=now,
                state="ended" if ended else "running" if self.paused_at is None else "paused",
                progress=ProgressLine(
                    total=ROWS,
                    done=done,
                    dead=61,
                    open=ROWS - 61 - done,
                    in_flight=sum(line.in_flight for line in lines[:3]),
                    parked=1_287,
                    rate=0.0 if self.paused_at else 71.3 + 3 * wobble(elapsed),
                    eta=None if self.paused_at else (ROWS - done) / 71.3,
                    tokens=int(18_400_000 + 41_000 * elapsed),
                    cost=7.32 + 0.011 * elapsed,
                ),
                waits=waits,
                blocked=sum(line.behind for line in waits),
                keys=lines,
                credentials=self._credentials(now, elapsed),
                dead=dead,
                counters={
                    "retries": 412 + int(elapsed),
                    "refused": 1_032 + int(elapsed / 3),
                    "bytes_received": 88_412_772.0,
                },
            )

    def events(self, after: int, most: int = 200) -> Sequence[EventLine]:
        newest = int((HISTORY + self.elapsed) * self.events_rate)
        first = max(after + 1, newest - 2 * int(self.events_rate) - 40)
        step = max(1, math.ceil((newest - first + 1) / most))
        return [self._event(number) for number in range(newest, first - 1, -step)][::-1]

    def timelines(self, keys: Sequence[str], since: float) -> Sequence[Timeline]:
        first = math.ceil(max(since - self.began_at, -HISTORY) + 1e-3)
        seconds = range(first, int(self.elapsed) + 1)
        lines = []
        for key in keys:
            if key in self.keys:
                moments = [moment(key, second) for second in seconds]
                lines.append(
                    Timeline(
                        key=key,
                        at=tuple(self.began_at + second for second in seconds),
                        rate=tuple(one.rate for one in moments),
                        said=tuple(one.said for one in moments),
                        done=tuple(max(0.0, one.done) for one in moments),
                        refused=tuple(one.refused for one in moments),
                        latency=tuple(one.latency for one in moments),
                        waiting=tuple(one.waiting for one in moments),
                        state=tuple(one.state for one in moments),
                    )
                )
        return lines

    def act(self, action: Action) -> str:
        with self.lock:
            self.acted.append(action)
            if action.kind == "pause":
                if self.paused_at is not None:
                    raise ActionRefusedError("It is paused already.")
                self.paused_at = self.clock()
                return "Paused: calls in flight finish, no new one starts."
            if action.kind == "resume":
                self.began_at += self.clock() - (self.paused_at or self.clock())
                self.paused_at = None
                return "Goes on."
            if action.kind == "park":
                self.parked[action.target] = self.clock() + (action.value or 3600)
                return f"{action.target} is parked for {action.value or 3600:g} s."
            if action.kind == "free":
                if action.target.startswith("old"):
                    raise ActionRefusedError(
                        "old/9f01c2 was revoked by its provider; only a new key can take its place."
                    )
                self.parked[action.target] = 0.0
                return f"{action.target} is free again."
            if action.kind == "limit" and action.target in self.keys:
                if action.value is None:
                    self.limits.pop(action.target, None)
                    return f"{action.target} has no limit of yours any more."
                self.limits[action.target] = action.value
                return f"{action.target} makes at most {action.value:g} calls/s from now on."
            raise ActionRefusedError(f"nothing called {action.target!r} is known here")

    # ------------------------------------------------------------------ the parts

    def _key(self, key: str, elapsed: float) -> KeyLine:
        one = moment(key, elapsed)
        reason = {
            "held": f"rate limited by the server, {one.left:.1f} s to go",
            "circuit": f"circuit open after 8 failures in a row (503), {one.left:.1f} s to go",
            "ramp": f"paced at {one.rate * one.returning:.3g} calls/s while ramping up after a pause",
        }.get(one.state, "" if one.waiting < 20 else f"paced at {one.rate:.3g} calls/s, searching for the limit")
        limit = self.limits.get(key)
        return KeyLine(
            key=key,
            rate=one.rate if limit is None else min(limit, one.rate),
            said=one.said,
            sent=int(9_000 + elapsed * one.rate),
            refused=int(211 + elapsed / 4) if key == GPT else int(elapsed) % 5,
            failed=48 if key == SONNET else 0,
            in_flight=0 if one.state in ("held", "circuit") else math.ceil(one.done * one.latency),
            waiting=one.waiting,
            latency=one.latency,
            p95=one.latency * 2.4,
            circuit="open" if one.state == "circuit" else "closed",
            not_before=one.left,
            returning=one.returning,
            limit=limit,
            shared_by=4 if key == CROSSREF else 0,
            reason=reason,
        )

    def _waits(self, elapsed: float) -> tuple[WaitLine, ...]:
        if self.paused_at is not None:
            return (
                WaitLine(
                    scope="run", sentence="Paused by an operator; nothing starts until it is resumed.", behind=1_801
                ),
            )
        lines = []
        for key in self.keys[:3]:
            one = moment(key, elapsed)
            if one.state == "held":
                told = "The server said 429 with Retry-After: 20. The key waits it out, then comes back gently."
                lines.append(WaitLine(scope=key, sentence=told, behind=one.waiting, seconds=one.left))
            elif one.state == "circuit":
                told = (
                    "8 calls in a row failed with 503, so the circuit is open. One probe goes out when the time is up."
                )
                lines.append(WaitLine(scope=key, sentence=told, behind=one.waiting, seconds=one.left))
            elif one.state == "ramp":
                told = f"Coming back from a pause at {100 * one.returning:.0f} % of its pace."
                lines.append(WaitLine(scope=key, sentence=told, behind=one.waiting))
            elif one.waiting > 20:
                told = f"Paced at {one.rate:.3g} calls/s, searching for the limit."
                lines.append(WaitLine(scope=key, sentence=told, behind=one.waiting, seconds=one.waiting / one.rate))
        rest = self._rest(elapsed)
        told = "The credential is out of its daily quota and rests until it is new; its rows go out with the others."
        lines.append(WaitLine(scope="team-b", sentence=told, behind=84, seconds=rest))
        return tuple(sorted(lines, key=lambda line: -line.behind))

    def _rest(self, elapsed: float) -> float:
        return 5_048 - elapsed % 5_000

    def _credentials(self, now: float, elapsed: float) -> tuple[CredentialLine, ...]:
        quarantined = CredentialLine(
            label="team-b",
            mark="4be81d",
            provider="openai",
            group="batch",
            state="resting",
            rests=self._rest(elapsed),
            reason="daily quota used up (429 insufficient_quota)",
        )
        revoked = CredentialLine(
            label="old", mark="9f01c2", provider="anthropic", state="retired", reason="401: the key was revoked"
        )
        lines = (
            CredentialLine(label="team-a", mark="c07a55", provider="openai", group="batch", state="held"),
            quarantined,
            CredentialLine(label="team-c", mark="11d3f0", provider="openai", group="batch"),
            CredentialLine(label="main", mark="a9320e", provider="anthropic", state="held"),
            revoked,
        )
        return tuple(self._as_parked(line, now) for line in lines)

    def _as_parked(self, line: CredentialLine, now: float) -> CredentialLine:
        until = self.parked.get(f"{line.label}/{line.mark}")
        if until is None:
            return line
        if until <= now:
            return replace(line, state="free", rests=0.0, reason="")
        return replace(line, state="resting", rests=until - now, reason="parked by an operator")

    def _event(self, number: int) -> EventLine:
        elapsed = number / self.events_rate - HISTORY
        key = self.keys[number * 7 % len(self.keys)]
        one = moment(key, elapsed)
        kind, reason = {
            "held": ("held", f"rate limited by the server, {one.left:.1f} s to go"),
            "circuit": ("circuit_changed", f"open after 8 failures in a row, {one.left:.1f} s to go"),
            "ramp": ("rate_changed", f"back at {100 * one.returning:.0f} % of {one.rate:.3g} calls/s"),
        }.get(one.state, ("rate_changed", f"{one.rate - 0.4:.4g} to {one.rate:.4g} calls/s, searching for the limit"))
        if one.refused:
            kind, reason = "refused", "429, Retry-After: 20" if key == GPT else "429 without a time"
        elif number % 4 == 0 and one.state == "open":
            kind, reason = "item_done", f"row {30_000 + number:,} in {1000 * one.latency:.0f} ms"
        elif number % 37 == 0:
            kind, reason = "credential_rested", "team-b: daily quota used up"
        return EventLine(number=number, at=self.began_at + elapsed, kind=kind, key=key, reason=reason)


class Runs:
    """Some runs, as ``MonitoredRuns``."""

    def __init__(self, *sources: MonitoredRun) -> None:
        self.sources = list(sources)

    def runs(self) -> Sequence[MonitoredRun]:
        return tuple(self.sources)
