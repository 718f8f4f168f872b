"""Fleet runs in a Redis or Valkey: one script for each report of a member.

    headgate:fleet:1            the names of runs, by when they were last reported
    headgate:fleet:1:NAME       one run with all that belongs to it, a hash: one key, so that a Cluster keeps it whole

What lies there holds no secret: counts, machines, and keys as displays show them. A run is removed seven days after
its last report. The script is ``distributed/backends/lua/run_state.lua``; it mirrors ``run_state.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..distributed.backends.redis import RedisStore, Request, Script
from . import run_state
from .protocol import Amount, FleetRunView, MemberReply, MemberRequest, Past, plain_request, read_counts, read_past
from .run_state import KEPT_FOR, LOST_AFTER, Member, RunState
from .state_store import MOST_RUNS

RUNS = "headgate:fleet:1"
"""The number grows when older programs could not read what is there."""
LIST_EVERY = 30.0
"""Seconds between two entries of one run in the list of runs."""

_NUMBERS = {
    "REJOIN_FOR": run_state.REJOIN_FOR,
    "FOLD_AFTER": run_state.FOLD_AFTER,
    "SWEEP_EVERY": run_state.SWEEP_EVERY,
    "SHARES": run_state.SHARES,
    "MOST_STOPPED": run_state.MOST_STOPPED,
    "KEPT_FOR": int(KEPT_FOR),
}
_EXCHANGE = Script("run_state", numbers=_NUMBERS)
_ORDER = Script("run_order", numbers=_NUMBERS)


class RedisRunState:
    """``RunStateStore`` on a server."""

    def __init__(
        self, server: str | RedisStore, *, timeout: float | None = None, lost_after: float = LOST_AFTER
    ) -> None:
        """``server``: its address, or a store on the same server whose connections are to be used."""
        self._owns_server = isinstance(server, str)
        if isinstance(server, str):
            server = RedisStore(server) if timeout is None else RedisStore(server, timeout=timeout)
        self._server = server
        self.where = server.where
        self._lost_after = lost_after
        self._listed_at: dict[str, float] = {}

    def exchange(self, run: str, request: MemberRequest) -> MemberReply:
        message = json.dumps(plain_request(request), separators=(",", ":")).encode()
        detail = request.detail.encode("utf-8", "replace")
        words = request.member.encode("utf-8", "replace"), message, detail, b"%r" % self._lost_after
        reply = _reply(json.loads(self._server.run(_EXCHANGE, _key(run), words)))
        if reply.is_new or not 0.0 <= reply.now - self._listed_at.get(run, -LIST_EVERY) < LIST_EVERY:
            self._list(run, reply.now)
        return reply

    def order(self, run: str, kind: str) -> bool:
        return bool(self._server.run(_ORDER, _key(run), (kind.encode(),)))

    def views(self) -> list[FleetRunView]:
        (names,) = self._server.ask(Request(RUNS, ("ZREVRANGE", RUNS, "0", str(MOST_RUNS - 1))))
        return self._views([name.decode("utf-8", "replace") for name in names])

    def view(self, run: str) -> FleetRunView | None:
        return next(iter(self._views([run])), None)

    def close(self) -> None:
        if self._owns_server:
            self._server.close()

    def _list(self, run: str, now: float) -> None:
        """In the list of runs; those that have expired leave it."""
        commands = (
            ("ZADD", RUNS, repr(now), run),
            ("ZREMRANGEBYSCORE", RUNS, "-inf", repr(now - KEPT_FOR)),
            ("EXPIRE", RUNS, str(int(KEPT_FOR))),
        )
        self._server.ask(*(Request(RUNS, words) for words in commands))
        self._listed_at[run] = now

    def _views(self, names: list[str]) -> list[FleetRunView]:
        if not names:
            return []
        kept = [Request(_key(name), ("HGETALL", _key(name))) for name in names]
        *found, time = self._server.ask(*kept, Request(RUNS, ("TIME",)))
        now = int(time[0]) + int(time[1]) / 1e6
        views = []
        for name, one in zip(names, found, strict=True):
            entries = dict(zip(one[::2], one[1::2], strict=True))
            if b"about" in entries:
                views.append(_view(name, entries, now, self._lost_after))
        return views


def _key(run: str) -> str:
    return f"{RUNS}:{run}"


def _reply(told: Mapping[str, Any]) -> MemberReply:
    return MemberReply(
        now=told["now"],
        stopped=told["stopped"],
        paused=told["paused"],
        held=Amount(*told["held"]),
        pool=Amount(*told["pool"]),
        others=Amount(*told["others"]),
        members=int(told["members"]),
        past=read_past(told["past"]),
        is_new=told["is_new"],
    )


def _view(run: str, entries: Mapping[bytes, bytes], now: float, lost_after: float) -> FleetRunView:
    about = json.loads(entries[b"about"])
    orders = json.loads(entries.get(b"orders", b'{"stopped":[],"paused":false}'))
    state = RunState(about["began_at"], lost_after)
    state.seen_at, state.caps = about["seen_at"], Amount(*about["caps"])
    state.paused, state.stopped = orders["paused"], list(orders["stopped"])
    state.past = read_past(json.loads(entries[b"past"])) if b"past" in entries else Past()
    for field, text in entries.items():
        if field.startswith(b"m:"):
            name = field[2:].decode("utf-8", "replace")
            state.members[name] = _member(json.loads(text), entries.get(b"d:" + field[2:]))
    return state.view(run, now)


def _member(told: Mapping[str, Any], detail: bytes | None) -> Member:
    return Member(
        job=told["job"],
        number=int(told["number"]),
        seen_at=told["seen_at"],
        counts=read_counts(told["counts"]),
        spent=Amount(*told["spent"]),
        held=Amount(*told["held"]),
        in_flight=int(told["in_flight"]),
        rate=told["rate"],
        detail="" if detail is None else detail.decode("utf-8", "replace"),
    )
