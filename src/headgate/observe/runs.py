"""The runs of this user on this machine, each read from the file in which it tells how it stands.

Whether a run lives is asked of the kernel: it keeps a lock for as long as it does. What a crash has left is removed.
Whoever has a run in hand when it ends can still ask how it ended: its last word is left for a while.
An action goes to the run as a file and is answered by one; a run that does not answer within seconds is left alone.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from ..batch.sqlite_alive import lock
from ..clock import Clock, SystemClock
from ..identity import write_for_owner
from .announcing import NAME, is_ours, names_in, remove, remove_file, runs_folder, sweep
from .snapshot import (
    SCHEMA,
    Action,
    CredentialLine,
    DeadLine,
    EventLine,
    KeyLine,
    ProgressLine,
    RunSnapshot,
    Timeline,
    WaitLine,
    is_silent,
    plain,
)
from .source import ActionRefusedError

MOST_RUNS = 200
LARGEST_FILE = 32 * 1024 * 1024
PATIENCE = 5.0
"""Seconds to wait for a run to do what is wanted."""
ASK_AGAIN = 0.05

T = TypeVar("T")


class MachineRuns:
    """``Sources``: all runs that live now, the oldest first."""

    def __init__(self, folder: str | None = None, clock: Clock | None = None) -> None:
        self._folder = runs_folder() if folder is None else folder
        self._clock: Clock = SystemClock() if clock is None else clock
        self._known: dict[str, RunOfFile] = {}

    def runs(self) -> Sequence[RunOfFile]:
        found: dict[str, RunOfFile] = {}
        for name in self._names():
            run = self._known.get(name) or RunOfFile(self._folder, name, self._clock)
            if run.refresh():
                found[name] = run
        self._known = found
        return sorted(found.values(), key=lambda run: (run.snapshot().started_at, run.name))

    def _names(self) -> list[str]:
        sweep(self._folder)
        names = [file.removesuffix(".alive") for file in names_in(self._folder) if file.endswith(".alive")]
        living = []
        for name in filter(NAME.fullmatch, names):
            if is_alive(self._folder, name):
                living.append(name)
            else:
                remove(self._folder, name)
        return sorted(living)[:MOST_RUNS]


def machine_runs(folder: str | None = None, clock: Clock | None = None) -> MachineRuns:
    """All runs of this user on this machine."""
    return MachineRuns(folder, clock)


class RunOfFile:
    """``Source``: one run in another process, or in this one."""

    def __init__(self, folder: str, name: str, clock: Clock) -> None:
        self.name = name
        self._folder, self._clock = folder, clock
        self._base = os.path.join(folder, name)
        self._mark: tuple[int, int] | None = None
        self._snapshot: RunSnapshot | None = None
        self._events: tuple[EventLine, ...] = ()
        self._timelines: dict[str, Timeline] = {}

    def refresh(self) -> bool:
        """Read it again if it was written again; whether there is anything to show."""
        path = f"{self._base}.json"
        try:
            seen = os.stat(path)
            mark = seen.st_mtime_ns, seen.st_ino
            if mark != self._mark and seen.st_size <= LARGEST_FILE and is_ours(path):
                with open(path, "rb") as file:
                    self._take(json.loads(file.read(LARGEST_FILE)))
                self._mark = mark
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            pass  # not yet written, written by another version, or just removed: what was read last will do
        return self._snapshot is not None

    def snapshot(self) -> RunSnapshot:
        lives = is_alive(self._folder, self.name)  # first: a run that ends writes its last word before it goes
        self.refresh()
        seen = self._snapshot
        if seen is None:
            raise LookupError(f"nothing is known of {self.name} yet")
        if not lives and seen.state != "ended":
            return replace(seen, state="ended", ending="lost", waits=(), blocked=0)
        return replace(seen, silent=is_silent(seen, self._clock.wall()))

    def events(self, after: int, most: int = 200) -> Sequence[EventLine]:
        self.refresh()
        return [line for line in self._events if line.number > after][-most:] if most > 0 else []

    def timelines(self, keys: Sequence[str], since: float) -> Sequence[Timeline]:
        self.refresh()
        return [_since(self._timelines[key], since) for key in keys if key in self._timelines]

    def act(self, action: Action) -> str:
        """Blocks until the run has answered."""
        if not is_alive(self._folder, self.name):
            raise ActionRefusedError("this run has ended")
        path = f"{self._base}.{secrets.token_hex(8)}"
        write_for_owner(f"{path}.do", json.dumps(plain(action)).encode())
        give_up_at = self._clock.now() + PATIENCE
        try:
            while self._clock.now() < give_up_at:
                self._clock.sleep(ASK_AGAIN)
                if os.path.exists(f"{path}.said"):
                    with open(f"{path}.said", "rb") as file:
                        return _answer(json.loads(file.read()))
                if not is_alive(self._folder, self.name):
                    raise ActionRefusedError("this run has ended")
        finally:
            remove_file(f"{path}.do")
            remove_file(f"{path}.said")
        raise ActionRefusedError(f"the run has not answered within {PATIENCE:g} s; it may be suspended")

    def _take(self, told: Mapping[str, Any]) -> None:
        snapshot = told["snapshot"]
        if snapshot["schema"] != SCHEMA:
            return
        events = tuple(_made(EventLine, one) for one in told["events"])
        timelines = {one["key"]: _made(Timeline, one) for one in told["timelines"]}
        self._snapshot, self._events, self._timelines = read_snapshot(snapshot), events, timelines


def is_alive(folder: str, name: str) -> bool:
    try:
        with open(os.path.join(folder, f"{name}.alive"), "rb") as file:
            lock(file, alone=False)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def read_snapshot(told: Mapping[str, Any]) -> RunSnapshot:
    """What ``plain`` has made of one; fields that are not known are left out."""
    lines = {"waits": WaitLine, "keys": KeyLine, "credentials": CredentialLine, "dead": DeadLine}
    nested: dict[str, Any] = {
        name: tuple(_made(kind, one) for one in told.get(name, ())) for name, kind in lines.items()
    }
    return _made(RunSnapshot, {**told, **nested, "progress": _made(ProgressLine, told.get("progress", {}))})


def _made(kind: type[T], told: Mapping[str, Any]) -> T:
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # all of them are dataclasses
    return kind(**{name: tuple(one) if isinstance(one, list) else one for name, one in told.items() if name in known})


def _since(line: Timeline, since: float) -> Timeline:
    first = next((place for place, at in enumerate(line.at) if at > since), len(line.at))
    columns = {one.name: getattr(line, one.name) for one in fields(line)}
    return Timeline(**{name: column[first:] if name != "key" else column for name, column in columns.items()})


def _answer(told: Mapping[str, Any]) -> str:
    if "refused" in told:
        raise ActionRefusedError(str(told["refused"]))
    return str(told["said"])
