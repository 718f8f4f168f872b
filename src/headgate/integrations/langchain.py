"""A rate limiter for LangChain's chat models that learns from how their calls end.

    limiter = RateLimiter(limits={"requests": "500/min"})
    model = ChatAnything(rate_limiter=limiter, callbacks=[limiter])

    start (run) ─> acquire: a permit ─> the model ─┬─ end (run): tokens, headers if it has any ──> the permit learns
                                                   └─ error (run): 429, Retry-After, 5xx, ... ───> the permit learns

As ``rate_limiter`` alone it never sees an answer: it keeps the limits that are configured, and learns nothing. As a
callback of the same model too, it does. Calls that are under way at once may be taken for each other, which is all
the same to a pace. Where a model's own HTTP client can be put behind the gate, that sees more: headers, and each retry.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import LLMResult
from langchain_core.rate_limiters import BaseRateLimiter

from .. import fork_safety
from ..clock import Clock
from ..config import Limits, RateLimitConfig
from ..errors import ConfigError
from ..limiter import AdaptiveRateLimiter
from ..limiter.permit import Cost, Permit, WhenOpen, check_when_open
from ..wire.token_usage import NO_TOKENS, USUAL_OUTPUT, Usage, settled, usage_of
from .client_gate import LONGEST_WAIT

if TYPE_CHECKING:
    from ..distributed.store import Store

MOST_RUNS = 10_000
"""Runs under way that are remembered; of more, the oldest is taken for lost."""
LEARNING = 0.1
"""How much the newest call counts for what calls usually take in tokens."""


class RateLimiter(BaseRateLimiter, BaseCallbackHandler):
    """For ``rate_limiter=`` of a chat model and, if it should learn, among its ``callbacks=`` too. Safe for threads.

    ``key``: models with the same one share a pace. ``limits``, ``config``, ``store`` are the limiter's;
    or give ``limiter``, one that others use too. A wait that would be longer than ``max_wait`` raises at once.
    While the model only fails, calls wait for the next probe, within ``max_wait``; with ``when_open="refuse"`` they
    raise at once.
    """

    run_inline = True
    """In the order of things, also with asyncio."""

    def __init__(
        self,
        key: str = "langchain",
        *,
        limits: Limits | None = None,
        config: RateLimitConfig | None = None,
        limiter: AdaptiveRateLimiter | None = None,
        store: Store | str | None = None,
        max_wait: float | None = LONGEST_WAIT,
        when_open: WhenOpen = "wait",
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if limiter is not None and not (limits is None and config is None and store is None):
            raise ConfigError("limiter has its own config, limits and store; pass either limiter or these")
        if config is not None and limits is not None:
            raise ConfigError("limits is part of config; pass either config or limits")
        if limiter is None:
            config = RateLimitConfig(limits=limits or {}) if config is None else config
            limiter = AdaptiveRateLimiter(config, clock=clock, rng=rng, store=store)
            limiter.allow_unreported()
        check_when_open(when_open)
        self.key, self.limiter, self.max_wait, self.when_open = key, limiter, max_wait, when_open
        limited = limiter.config.for_key(key).limits
        self._usual = {what: float(USUAL_OUTPUT) for what in settled("", NO_TOKENS, None) if what in limited}
        """What a call takes of the known limits on tokens, on average, by the dimension."""
        self._lock = fork_safety.lock()
        self._waiting: dict[UUID, None] = {}
        self._open: dict[UUID, tuple[Permit, asyncio.Task[Any] | None]] = {}

    # ------------------------------------------------------------------ what a model asks of its rate limiter

    def acquire(self, *, blocking: bool = True) -> bool:
        """Wait for the turn; without ``blocking``, say whether it is now. Raises a ``Refused`` if it will not come."""
        if blocking:
            permit: Permit | None = self.limiter.acquire(
                self.key, self._cost(), self.max_wait, when_open=self.when_open
            )
        else:
            permit = self.limiter.try_acquire(self.key, self._cost())
        if permit is not None:
            self._begin(permit)
        return permit is not None

    async def aacquire(self, *, blocking: bool = True) -> bool:
        if not blocking:
            return self.acquire(blocking=False)
        permit = await self.limiter.acquire_async(self.key, self._cost(), self.max_wait, when_open=self.when_open)
        self._begin(permit, asyncio.current_task())
        return True

    # ------------------------------------------------------------------ what a model tells its callbacks

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **about: Any) -> None:
        with self._lock:
            self._waiting[run_id] = None
            if len(self._waiting) > MOST_RUNS:
                del self._waiting[next(iter(self._waiting))]

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **about: Any) -> None:
        permit = self._end(run_id)
        if permit is None:  # it came from a cache
            return
        usage, headers = _usage_and_headers(response)
        real = None
        if usage is not None and self._usual:
            counted = settled("", usage, None)
            real = {what: counted[what] for what in self._usual}
            for what, amount in real.items():
                self._usual[what] += LEARNING * (amount - self._usual[what])
        permit.report(status_code=200, headers=headers, cost=real)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        permit = self._end(run_id)
        if permit is not None:
            permit.__exit__(type(error), error, None)

    # ------------------------------------------------------------------ inside

    def _cost(self) -> Cost:
        return {"requests": 1, **self._usual} if self._usual else 1

    def _begin(self, permit: Permit, task: asyncio.Task[Any] | None = None) -> None:
        lost = None
        with self._lock:
            run_id = next(iter(self._waiting), None)
            if run_id is None:
                lost = permit  # its end will not be reported
            else:
                del self._waiting[run_id]
                self._open[run_id] = permit, task
                if len(self._open) > MOST_RUNS:
                    lost, _ = self._open.pop(next(iter(self._open)))
        if lost is not None:
            lost.release()
        if task is not None and run_id is not None:
            task.add_done_callback(self._task_ended)

    def _end(self, run_id: UUID) -> Permit | None:
        with self._lock:
            self._waiting.pop(run_id, None)
            permit, task = self._open.pop(run_id, (None, None))
        if task is not None:
            task.remove_done_callback(self._task_ended)
        return permit

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        """End the call: LangChain calls no callback for one that is cancelled."""
        if not task.cancelled():
            return
        with self._lock:
            under_way = list(self._open.items())
        runs = [run_id for run_id, (_, its_task) in under_way if its_task is task]
        for permit in filter(None, map(self._end, runs)):
            permit.release()


def _usage_and_headers(result: LLMResult) -> tuple[Usage | None, Mapping[str, str] | None]:
    """The tokens that a call took, and the headers of its answer, where the model hands them on."""
    message = next((getattr(one, "message", None) for several in result.generations for one in several), None)
    usage = getattr(message, "usage_metadata", None) or (result.llm_output or {}).get("token_usage") or {}
    headers = (getattr(message, "response_metadata", None) or {}).get("headers")
    return usage_of({"usage": usage}), headers if isinstance(headers, Mapping) else None
