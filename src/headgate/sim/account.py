"""The limits of one budget as they stand during a run: a call must fit into all of them, or spends nothing.

A limit on concurrency has to know when calls end. In a simulation that is known as soon as a
call begins, so the account keeps the coming ends and frees the places when their time has come.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

from .notation import Rate
from .quota import Concurrency, Standing
from .scenario_parts import Budget

EDGE = 1e-6
"""An oracle comes this much after the edge of a window, so that rounding does not make it early."""


class Account:
    __slots__ = ("_depth", "_ends_at", "_evenly", "_limits", "_only", "_turn_at")

    def __init__(self, budget: Budget, draws: list[float], horizon: float) -> None:
        quotas = [limit.make(draw) for limit, draw in zip(budget.limits, draws, strict=True)]
        self._limits = [(quota, limit.of == "tokens") for quota, limit in zip(quotas, budget.limits, strict=True)]
        self._only = quotas[0] if len(quotas) == 1 and budget.limits[0].of == "calls" else None
        self._depth = next((quota for quota in quotas if isinstance(quota, Concurrency)), None)
        self._ends_at: list[float] = []
        self._evenly: list[tuple[Rate, bool]] = [
            (limit.rate, limit.of == "tokens")
            for limit in budget.limits
            if limit.rate and limit.algorithm in ("window", "log", "strict-log") and not limit.outlasts(horizon)
        ]
        self._turn_at = 0.0

    def take(self, now: float, tokens: float, lasts: float) -> bool:
        """Let a call of ``lasts`` seconds through, or not."""
        if self._depth is not None:
            self._free_places(now)
        only = self._only
        if only is not None:
            admitted = only.take(now)
        else:
            admitted = all(quota.wait(now, tokens if of_tokens else 1.0) == 0 for quota, of_tokens in self._limits)
            for quota, of_tokens in self._limits:
                spend = quota.take if admitted else quota.refuse
                spend(now, tokens if of_tokens else 1.0)
        if admitted and self._depth is not None:
            heapq.heappush(self._ends_at, now + lasts)
        return admitted

    def wait(self, now: float, tokens: float) -> float:
        """Seconds until a call fits into every limit; 0 for now."""
        return max(self._waits(now, tokens), default=0.0)

    def hit(self, now: float, tokens: float) -> tuple[str, Standing]:
        """The limit that keeps a call out longest: what it counts, and where it stands, with that call's own wait."""
        waits = self._waits(now, tokens)
        longest = max(waits)
        quota, of_tokens = self._limits[waits.index(longest)]
        return "tokens" if of_tokens else "calls", replace(quota.standing(now), retry=longest)

    def _waits(self, now: float, tokens: float) -> list[float]:
        if self._depth is not None:
            self._free_places(now)
        waits = [quota.wait(now, tokens if of_tokens else 1.0) for quota, of_tokens in self._limits]
        return [self._ends_at[0] - now + EDGE if wait is None else wait for wait in waits]

    def wait_evenly(self, now: float, tokens: float) -> float:
        """As ``wait``, for an oracle: whole windows are spent evenly, so that the end of a run does not favour it."""
        wait = self.wait(now, tokens)
        return max(self._turn_at - now, wait + EDGE if wait else 0.0)

    def take_turn(self, now: float, tokens: float, factor: float) -> None:
        """The oracle sends: its next turn comes a fair share of the window later."""
        if self._evenly:
            apart = max((tokens if of_tokens else 1.0) / (rate.per_second * factor) for rate, of_tokens in self._evenly)
            self._turn_at = max(self._turn_at, now - apart) + apart

    def yield_to_neighbour(self, now: float) -> None:
        self._limits[0][0].yield_to(now)

    def scale(self, factor: float, now: float) -> None:
        for quota, _ in self._limits:
            quota.scale(factor, now)

    def at_once(self) -> float | None:
        """Calls at a time, if that is limited."""
        return None if self._depth is None else self._depth.limit

    def standings(self, now: float) -> list[tuple[str, Standing]]:
        """Where each limit stands, and what it counts."""
        return [("tokens" if of_tokens else "calls", quota.standing(now)) for quota, of_tokens in self._limits]

    def _free_places(self, now: float) -> None:
        depth, ends_at = self._depth, self._ends_at
        while depth is not None and ends_at and ends_at[0] <= now:
            depth.end(heapq.heappop(ends_at))
