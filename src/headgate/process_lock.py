"""Whether a process still lives: each locks a small file for as long as it does.

Each process that works on a ledger locks a small file beside it for as long as it lives. The kernel drops
the lock when the process ends, however it ends, and at no other time. So a death is seen at once, without
waiting, and neither a reused process number nor a clock that was moved changes the answer; a process that is
merely slow or stopped still counts as alive.
"""

from __future__ import annotations

import contextlib
import os
from typing import IO


def lock_path(ledger: str, process: int) -> str:
    """The file this process keeps locked."""
    return f"{ledger}-holder-{process}"


class ProcessLock:
    """This process's own sign of life, from when it is made until ``end``."""

    def __init__(self, ledger: str, process: int) -> None:
        self.path = lock_path(ledger, process)
        self._file: IO[bytes] = open(self.path, "wb")  # noqa: SIM115 - it stays open as long as we live
        try:
            lock(self._file, alone=True)
        except OSError:
            self._file.close()
            raise

    def end(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        self._file.close()


def is_alive(ledger: str, process: int) -> bool:
    """Looks from outside; any number of processes may look at once without being seen for the holder."""
    try:
        with open(lock_path(ledger, process), "rb") as file:
            try:
                lock(file, alone=False)
            except OSError:
                return True
            return False
    except FileNotFoundError:
        return False
    except PermissionError:
        return True


def remove_lock(ledger: str, process: int) -> None:
    """Remove what a dead process has left lying about."""
    with contextlib.suppress(OSError):
        os.unlink(lock_path(ledger, process))


def lock(file: IO[bytes], *, alone: bool) -> None:
    """Raises ``OSError`` at once if another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows has no shared locks: there two that look at once may each take the other for life
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
