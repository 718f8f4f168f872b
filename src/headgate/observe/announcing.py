"""A run makes itself known on its machine, so that others of the same user can look at it and speak to it.

    <state folder>/runs/NAME.alive           locked for as long as the run lives, by whatever end
                        NAME.json            how it stands, written anew about once a second
                        NAME.TOKEN.do        what somebody wants it to do
                        NAME.TOKEN.said      what came of that

All of it is for the owner alone. When the run ends, how it stands then is left for a minute, so that whoever looks sees
how it ended; the rest goes. What is left, also by a crash, is removed by the next who looks or begins.
Writing takes no more than a fiftieth of the time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO, Any

from ..batch.sqlite_alive import lock
from ..clock import Clock
from ..identity import OWNER_ONLY, is_open_to_others, make_folder_for, state_folder, write_for_owner
from .history import MOST_SHOWN
from .snapshot import Action, plain
from .source import ActionRefusedError
from .watched import Watched

log = logging.getLogger("headgate")

WRITE_EVERY = 1.0
SHARE = 50.0
"""A writing is followed by so many times its length without one."""
LONGEST_APART = 10.0
LEFT_FOR = 60.0
"""Seconds for which a run's last word can be read."""
MOST_TIMELINES = 20
MOST_EVENTS = 200
MOST_ASKED = 16
"""What others want that is done in one step."""
LARGEST_ASKED = 4_096
"""Bytes."""
ASKED = re.compile(r"\.([0-9a-f]{16})\.do")
NAME = re.compile(r"[a-z]{1,16}-[0-9]{1,10}-[0-9a-f]{6}")


def runs_folder() -> str:
    return os.path.join(state_folder(), "runs")


def is_ours(path: str) -> bool:
    """Whether a file can only have been written by this user."""
    owner = os.stat(path, follow_symlinks=False).st_uid
    return os.name != "posix" or (owner == os.getuid() and not is_open_to_others(path) and not os.path.islink(path))


class Announced:
    """One run's own files, from when it is made until ``end``."""

    def __init__(self, watched: Watched, folder: str | None = None, clock: Clock | None = None) -> None:
        """Raises ``OSError`` where nothing can be written."""
        self._watched = watched
        self._clock = watched.clock if clock is None else clock
        self._folder = runs_folder() if folder is None else folder
        self._base = os.path.join(self._folder, watched.run)
        make_folder_for(self._base)
        sweep(self._folder)
        self._life = sign_of_life(f"{self._base}.alive")
        self._write_at = float("-inf")
        self._complained = False

    def step(self) -> None:
        """Do what others want, and write how it stands if that is due."""
        acted = self._hear()
        now = self._clock.now()
        if now < self._write_at and not acted:
            return
        try:
            self._write()
        except OSError as error:  # a full disk is no reason to trouble the run
            if not self._complained:
                self._complained = True
                log.warning("others cannot look at this run: %s cannot be written (%s)", self._folder, error.strerror)
        after = self._clock.now()
        self._write_at = after + min(max(WRITE_EVERY, SHARE * (after - now)), LONGEST_APART)

    def end(self) -> None:
        """Nothing is left behind but a last word, for a while. ``watched`` is closed."""
        with contextlib.suppress(Exception):  # the run is over, with or without it
            self._write()
        remove(self._folder, self._watched.run, but=".json")
        self._life.close()

    def _write(self) -> None:
        write_for_owner(f"{self._base}.json", self._told())

    def _told(self) -> bytes:
        watched = self._watched
        keys = watched.history.keys()[:MOST_TIMELINES]
        told = {
            "snapshot": replace(watched.snapshot(), charted=tuple(keys)),
            "events": watched.events(0, MOST_EVENTS),
            "timelines": watched.history.timelines(keys, float("-inf"), MOST_SHOWN),
        }
        return json.dumps(plain(told), separators=(",", ":"), allow_nan=False).encode()

    # ------------------------------------------------------------------ what others want

    def _hear(self) -> bool:
        name = self._watched.run
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
            said = {"said": self._watched.act(action)}
        except ActionRefusedError as refusal:
            said = {"refused": str(refusal)}
        except Exception as error:  # it may be anything that somebody wrote there
            said = {"refused": f"it could not be done ({type(error).__name__})"}
        with contextlib.suppress(OSError):
            write_for_owner(f"{path}.said", json.dumps(said).encode())


def sign_of_life(path: str) -> IO[bytes]:
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
        raise ActionRefusedError("it is not known who asked for this")
    with open(path, "rb") as file:
        told: dict[str, Any] = json.loads(file.read(LARGEST_ASKED))
    kind, target, value = str(told["kind"]), str(told.get("target", "")), told.get("value")
    return Action(kind=kind, target=target, value=None if value is None else float(value))


def remove(folder: str, run: str, but: str = "") -> None:
    """All files of a run; its sign of life last, so that nobody takes it for one that crashed."""
    names = [name for name in names_in(folder) if name.startswith(f"{run}.") and name != f"{run}{but}"]
    for name in sorted(names, key=lambda name: name.endswith(".alive")):
        remove_file(os.path.join(folder, name))


def sweep(folder: str) -> None:
    """Remove the last words of runs that ended a while ago."""
    names = set(names_in(folder))
    for name in names:
        run, kind = os.path.splitext(name)
        if kind == ".json" and NAME.fullmatch(run) and f"{run}.alive" not in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if abs(time.time() - os.stat(path).st_mtime) > LEFT_FOR:
                    remove_file(path)


def names_in(folder: str) -> list[str]:
    """None if somebody has removed the whole folder."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def remove_file(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


@contextlib.contextmanager
def announced(watched: Watched, *steps: Callable[[], None]) -> Iterator[Watched]:
    """Watch a run and make it known on this machine, for the length of a block; ``steps`` are done at each look."""
    try:
        files: Announced | None = Announced(watched)
    except OSError as error:
        log.warning("others cannot look at this run: %s cannot be used (%s)", runs_folder(), error.strerror)
        files = None
    watched.start(*steps, *(() if files is None else (files.step,)))
    with contextlib.ExitStack() as stack:
        if files is not None:
            stack.callback(files.end)
        stack.push(watched)
        yield watched
