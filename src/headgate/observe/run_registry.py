"""All runs of this user on this machine: each announces itself in files, which other processes read.

    <state folder>/runs/NAME.alive           locked for as long as the run lives, however it ends
                        NAME.json            its snapshot, events and timelines, written about once a second
                        NAME.TOKEN.do        an action for it, from another process
                        NAME.TOKEN.said      its answer

    RunAnnouncement (in the run)  ──files──>  MachineRuns, RunFile (in any process)

All files are private to their owner. Whether a run lives is asked of the kernel: it holds a lock as long as it does.
When a run ends, its last snapshot stays for a minute, so that readers see how it ended; the rest is removed. What a
crash leaves is removed by the next reader or run. Writing takes no more than a fiftieth of the time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

from ..clock import Clock, SystemClock
from ..private_files import OWNER_ONLY, is_open_to_other_users, make_private_folder, state_folder, write_private
from ..process_lock import lock
from .history import MOST_SHOWN
from .monitor import RunMonitor
from .snapshot import (
    SCHEMA,
    Action,
    ActionRefusedError,
    CredentialLine,
    DeadLine,
    EventLine,
    KeyLine,
    MemberLine,
    ProgressLine,
    RunSnapshot,
    Timeline,
    WaitLine,
    from_fields,
    is_silent,
    to_json,
)

log = logging.getLogger("headgate")

WRITE_EVERY = 1.0
SHARE = 50.0
"""After writing, a pause of so many times as long as it took."""
LONGEST_APART = 10.0
LEFT_FOR = 60.0
"""Seconds for which the last snapshot of a run can be read."""
MOST_TIMELINES = 20
MOST_EVENTS = 200
MOST_ASKED = 16
"""Actions of other processes that are done in one step."""
LARGEST_ASKED = 4_096
"""Bytes."""
MOST_RUNS = 200
LARGEST_FILE = 32 * 1024 * 1024
PATIENCE = 5.0
"""Seconds to wait for a run to do what is wanted."""
ASK_AGAIN = 0.05
ASKED = re.compile(r"\.([0-9a-f]{16})\.do")
NAME = re.compile(r"[a-z]{1,16}-[0-9]{1,10}-[0-9a-f]{6}")


def runs_folder() -> str:
    return os.path.join(state_folder(), "runs")


def is_ours(path: str) -> bool:
    """Whether a file can only have been written by this user."""
    owner = os.stat(path, follow_symlinks=False).st_uid
    return os.name != "posix" or (
        owner == os.getuid() and not is_open_to_other_users(path) and not os.path.islink(path)
    )


class RunAnnouncement:
    """One run's own files, from when it is made until ``end``."""

    def __init__(self, monitor: RunMonitor, folder: str | None = None, clock: Clock | None = None) -> None:
        """Raises ``OSError`` where nothing can be written."""
        self._monitor = monitor
        self._clock = monitor.clock if clock is None else clock
        self._folder = runs_folder() if folder is None else folder
        self._base = os.path.join(self._folder, monitor.run)
        make_private_folder(self._base)
        sweep(self._folder)
        self._life = locked_file(f"{self._base}.alive")
        self._write_at = float("-inf")
        self._complained = False

    def step(self) -> None:
        """Do what other processes ask for, and write a snapshot if that is due."""
        acted = self._act()
        now = self._clock.now()
        if now < self._write_at and not acted:
            return
        try:
            self._write()
        except OSError as error:  # a full disk is no reason to trouble the run
            if not self._complained:
                self._complained = True
                log.warning(
                    "this run won't appear in `headgate watch`: cannot write %s (%s)", self._folder, error.strerror
                )
        after = self._clock.now()
        self._write_at = after + min(max(WRITE_EVERY, SHARE * (after - now)), LONGEST_APART)

    def end(self) -> None:
        """Nothing stays but the last snapshot, for a while. ``monitor`` is closed."""
        with contextlib.suppress(Exception):  # the run is over, with or without it
            self._write()
        remove(self._folder, self._monitor.run, but=".json")
        self._life.close()

    def _write(self) -> None:
        monitor = self._monitor
        keys = monitor.history.keys()[:MOST_TIMELINES]
        content = {
            "snapshot": replace(monitor.snapshot(), charted=tuple(keys)),
            "events": monitor.events(0, MOST_EVENTS),
            "timelines": monitor.history.timelines(keys, float("-inf"), MOST_SHOWN),
        }
        write_private(f"{self._base}.json", to_json(content))

    # ------------------------------------------------------------------ actions of other processes

    def _act(self) -> bool:
        name = self._monitor.run
        files = names_in(self._folder)
        asked = [match[1] for file in files if file.startswith(name) and (match := ASKED.fullmatch(file, len(name)))]
        for token in sorted(asked)[:MOST_ASKED]:
            self._do(token)
        return bool(asked)

    def _do(self, token: str) -> None:
        path = f"{self._base}.{token}"
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(remove_file, f"{path}.do")
                action = read_action(f"{path}.do")
            said = {"said": self._monitor.act(action)}
        except ActionRefusedError as refusal:
            said = {"refused": str(refusal)}
        except Exception as error:  # the file may hold anything
            said = {"refused": f"The action failed ({type(error).__name__})"}
        with contextlib.suppress(OSError):
            write_private(f"{path}.said", to_json(said))


def locked_file(path: str) -> IO[bytes]:
    """A file that is locked from the moment it can be seen: one without a lock is taken for that of a dead run."""
    draft = path if os.name == "nt" else f"{path}.draft"  # an open file has no other name there
    file = os.fdopen(os.open(draft, os.O_RDWR | os.O_CREAT, OWNER_ONLY), "wb")
    try:
        lock(file, alone=True)
        if draft != path:
            os.replace(draft, path)
    except OSError:
        file.close()
        raise
    return file


def read_action(path: str) -> Action:
    if not is_ours(path):
        raise ActionRefusedError("The action was not sent by this user")
    with open(path, "rb") as file:
        told: dict[str, Any] = json.loads(file.read(LARGEST_ASKED))
    kind, target, value = str(told["kind"]), str(told.get("target", "")), told.get("value")
    return Action(kind=kind, target=target, value=None if value is None else float(value))


def remove(folder: str, run: str, but: str = "") -> None:
    """All files of a run; the locked one last, so that no reader takes it for one that crashed."""
    names = [name for name in names_in(folder) if name.startswith(f"{run}.") and name != f"{run}{but}"]
    for name in sorted(names, key=lambda name: name.endswith(".alive")):
        remove_file(os.path.join(folder, name))


def sweep(folder: str) -> None:
    """Remove the last snapshots of runs that ended a while ago."""
    names = set(names_in(folder))
    for name in names:
        run, kind = os.path.splitext(name)
        if kind == ".json" and NAME.fullmatch(run) and f"{run}.alive" not in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if abs(time.time() - os.stat(path).st_mtime) > LEFT_FOR:
                    remove_file(path)


def names_in(folder: str) -> list[str]:
    """Empty if the folder is gone."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def remove_file(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


@contextlib.contextmanager
def announced(monitor: RunMonitor, *steps: Callable[[], None]) -> Iterator[RunMonitor]:
    """Monitor a run and announce it on this machine, for the length of a block; ``steps`` run with the monitor's."""
    try:
        files: RunAnnouncement | None = RunAnnouncement(monitor)
    except OSError as error:
        log.warning("this run won't appear in `headgate watch`: cannot use %s (%s)", runs_folder(), error.strerror)
        files = None
    monitor.start(*steps, *(() if files is None else (files.step,)))
    with contextlib.ExitStack() as stack:
        if files is not None:
            stack.callback(files.end)
        stack.push(monitor)
        yield monitor


# ---------------------------------------------------------------------- reading


class MachineRuns:
    """``MonitoredRuns``: all runs that live now, the oldest first."""

    def __init__(self, folder: str | None = None, clock: Clock | None = None) -> None:
        self._folder = runs_folder() if folder is None else folder
        self._clock: Clock = SystemClock() if clock is None else clock
        self._known: dict[str, RunFile] = {}

    def runs(self) -> Sequence[RunFile]:
        found: dict[str, RunFile] = {}
        for name in self._names():
            run = self._known.get(name) or RunFile(self._folder, name, self._clock)
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


class RunFile:
    """``MonitoredRun``: one run in another process, or in this one."""

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
        lives = is_alive(self._folder, self.name)  # first: a run that ends writes its last snapshot before it goes
        self.refresh()
        seen = self._snapshot
        if seen is None:
            raise LookupError(f"no data for {self.name} yet")
        if not lives and seen.state != "ended":
            return replace(seen, state="ended", ending="lost", waits=(), blocked=0)
        return replace(seen, silent=is_silent(seen, self._clock.wall()))

    def events(self, after: int, most: int = 200) -> Sequence[EventLine]:
        self.refresh()
        return [line for line in self._events if line.number > after][-most:] if most > 0 else []

    def timelines(self, keys: Sequence[str], since: float) -> Sequence[Timeline]:
        self.refresh()
        return [self._timelines[key].after(since) for key in keys if key in self._timelines]

    def act(self, action: Action) -> str:
        """Blocks until the run has answered."""
        if not is_alive(self._folder, self.name):
            raise ActionRefusedError("this run has ended")
        path = f"{self._base}.{secrets.token_hex(8)}"
        write_private(f"{path}.do", to_json(action))
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
        raise ActionRefusedError(f"the run did not respond within {PATIENCE:g} s; it may be suspended")

    def _take(self, told: Mapping[str, Any]) -> None:
        snapshot = told["snapshot"]
        if snapshot["schema"] != SCHEMA:
            return
        events = tuple(from_fields(EventLine, one) for one in told["events"])
        timelines = {one["key"]: from_fields(Timeline, one) for one in told["timelines"]}
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
    """A snapshot from its JSON; fields that are not known are left out."""
    lines = {"waits": WaitLine, "keys": KeyLine, "credentials": CredentialLine, "dead": DeadLine, "members": MemberLine}
    nested: dict[str, Any] = {
        name: tuple(from_fields(kind, one) for one in told.get(name, ())) for name, kind in lines.items()
    }
    return from_fields(RunSnapshot, {**told, **nested, "progress": from_fields(ProgressLine, told.get("progress", {}))})


def _answer(told: Mapping[str, Any]) -> str:
    if "refused" in told:
        raise ActionRefusedError(str(told["refused"]))
    return str(told["said"])
