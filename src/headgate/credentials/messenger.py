"""A thread that looks after a store on another machine, so that nobody who wants a credential waits for the network.

It works when it is poked: by whoever asks for a credential, a few times a second at most, and by whatever has to be
written, at once. Left alone it looks now and then. It ends with its coordinator, and what is still to be written when
the program ends is written then.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from typing import Protocol

log = logging.getLogger("headgate")

IDLE_EVERY = 2.0
"""Seconds between two looks that nobody asked for."""
LAST_WAIT = 1.0
"""Seconds for which the end of a program waits for a look that is under way."""


class Looking(Protocol):
    def look_at_store(self) -> None: ...

    def write_the_rest(self, wait: float) -> None: ...


class Messenger:
    def __init__(self, coordinator: Looking) -> None:
        self._of = weakref.ref(coordinator)
        self._writes: Looking | None = None
        """Kept alive until what it has to write is written."""
        self._wake = threading.Event()
        self._pid = 0

    def poke(self, writes: Looking | None = None) -> None:
        """There is something to look after, or to write."""
        self._writes = writes or self._writes
        if self._pid != os.getpid():  # the first time, or in a forked child, where there is no thread yet
            self._pid, self._wake = os.getpid(), threading.Event()
            threading.Thread(target=self._run, args=(self._wake,), name="headgate-credentials", daemon=True).start()
            atexit.register(_end, self._of)
        self._wake.set()

    def _run(self, wake: threading.Event) -> None:
        while self._look():
            wake.wait(IDLE_EVERY)
            wake.clear()

    def _look(self) -> bool:
        """False if there is nobody to look for any more."""
        coordinator, self._writes = self._writes or self._of(), None
        if coordinator is None:
            return False
        try:
            coordinator.look_at_store()
        except Exception:  # a fault of ours must not end the thread: nothing would be shared any more
            log.exception("looking after the store of credentials failed")
        return True


def _end(of: weakref.ref[Looking]) -> None:
    coordinator = of()
    if coordinator is not None:
        coordinator.write_the_rest(LAST_WAIT)
