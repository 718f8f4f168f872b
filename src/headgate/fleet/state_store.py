"""Where fleet runs are kept: what every such store promises, the one of this process, and ``open_run_state``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .. import fork_safety
from ..clock import Clock, SystemClock
from ..distributed.backends.ray_actor import NamedActor
from ..errors import ConfigError
from ..stores import is_redis
from .protocol import FleetRunView, MemberReply, MemberRequest
from .run_state import KEPT_FOR, LOST_AFTER, RunState

MOST_RUNS = 100
"""Runs that a store lists: those that were reported last."""
LONGEST_RUN = 120
"""Characters of a run's name."""
ORDERS = ("stop", "pause", "resume")
RUNS = "headgate-runs"
"""The name of the actor in a Ray cluster."""


class RunStateStore(Protocol):
    """All methods raise ``StoreDown`` where the store cannot be reached. Safe for threads."""

    where: str
    """For people: what it is and where, without secrets."""

    def exchange(self, run: str, request: MemberRequest) -> MemberReply: ...

    def order(self, run: str, kind: str) -> bool:
        """Order all members to ``stop``, ``pause`` or ``resume``; False if there is no such run."""
        ...

    def views(self) -> Sequence[FleetRunView]:
        """All runs, those that were reported last first; bounded."""
        ...

    def view(self, run: str) -> FleetRunView | None: ...

    def close(self) -> None: ...


class MemoryRunState:
    """The store of one process: for tests, and inside of a process that serves others."""

    where = "memory"

    def __init__(self, clock: Clock | None = None, *, lost_after: float = LOST_AFTER) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._lock = fork_safety.lock()
        self._lost_after = lost_after
        self._runs: dict[str, RunState] = {}

    def exchange(self, run: str, request: MemberRequest) -> MemberReply:
        with self._lock:
            now = self._forget_old()
            if run not in self._runs:
                self._runs[run] = RunState(now, self._lost_after)
            return self._runs[run].exchange(request, now)

    def order(self, run: str, kind: str) -> bool:
        with self._lock:
            now = self._forget_old()
            state = self._runs.get(run)
            if state is not None:
                state.order(kind, now)
            return state is not None

    def views(self) -> list[FleetRunView]:
        with self._lock:
            now = self._forget_old()
            newest = sorted(self._runs.items(), key=lambda one: -one[1].seen_at)[:MOST_RUNS]
            return [state.view(name, now) for name, state in newest]

    def view(self, run: str) -> FleetRunView | None:
        with self._lock:
            now = self._forget_old()
            return self._runs[run].view(run, now) if run in self._runs else None

    def close(self) -> None:
        pass

    def _forget_old(self) -> float:
        """The time, with the runs forgotten that were not reported for long."""
        now = self._clock.now()
        for name in [name for name, state in self._runs.items() if now - state.seen_at > KEPT_FOR]:
            del self._runs[name]
        return now


class RayRunState:
    """In a named actor of a Ray cluster, beside the quotas of ``store="ray"``.

    Keeps the contract of ``RunStateStore``. An actor that was restarted has the run again once members report.
    """

    def __init__(self) -> None:
        self._actor = NamedActor(RUNS, MemoryRunState)
        self.where = self._actor.where

    def exchange(self, run: str, request: MemberRequest) -> MemberReply:
        reply: MemberReply = self._actor.do("exchange", run, request)
        return reply

    def order(self, run: str, kind: str) -> bool:
        return bool(self._actor.do("order", run, kind))

    def views(self) -> list[FleetRunView]:
        views: list[FleetRunView] = self._actor.do("views")
        return views

    def view(self, run: str) -> FleetRunView | None:
        view: FleetRunView | None = self._actor.do("view", run)
        return view

    def close(self) -> None:
        """The actor stays, for the others."""


def open_run_state(store: str, *, timeout: float | None = None) -> RunStateStore:
    """The fleet runs of a Redis or Valkey. Nothing is connected before the first use. Raises ``ConfigError``, which
    does not repeat the address: there may be a password in it.
    """
    if is_redis(store):
        from .redis_state import RedisRunState

        return RedisRunState(store, timeout=timeout)
    if store == "ray":
        return RayRunState()
    raise ConfigError("a fleet needs a store that all of its machines can reach, such as redis://host:6379")


def check_run_name(run: str) -> str:
    """The name, if a run may be called so; raises ``ConfigError``."""
    if not run or len(run) > LONGEST_RUN or not run.isprintable() or run != run.strip():
        raise ConfigError(
            f"run={run[:40]!r} must be 1 to {LONGEST_RUN} printable characters, without blanks around them"
        )
    return run
