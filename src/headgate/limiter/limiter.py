"""Many keys, many threads, many loops: the gates of ``core``, and the waiting in front of them.

One lock guards all keys and is held only while deciding, never over a call, a listener or a wait.
Who is let through, and when, is ``serving.py``; whoever must wait stands in the line of its key
(``line.py``); keys come and go in ``keys.py``; what an operator may say is ``operating.py``; what is learned
and decided is ``core.asking`` and ``core.gate``.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from types import TracebackType

from ..config import RateLimitConfig
from ..core.decision import LONGEST_WAIT, CircuitState
from ..errors import ConfigError, WaitTooLongError
from ..wire import signal_of
from .checks import Cost, WhenOpen, check_also, check_cost, check_when_open
from .line import TaskWaiter, ThreadWaiter
from .operating import Operating
from .permit import Feedback, Permit
from .serving import AGAIN
from .snapshot import LimiterSnapshot, SharingSnapshot
from .turns import refused_by
from .watching import About, CallWatcher, around


class AdaptiveRateLimiter(Operating):
    """Lets calls through as fast as each key's server will really take them.

    Safe for threads and for asyncio at once, bound to no event loop, without a thread of its own.

        limiter = AdaptiveRateLimiter()
        with limiter.permit("api.example.com") as permit:
            permit.report(requests.get(...))
    """

    # ------------------------------------------------------------------ getting a permit

    def acquire(
        self,
        key: str,
        cost: Cost = 1,
        max_wait: float | None = None,
        deadline_at: float | None = None,
        also: Iterable[str] = (),
        when_open: WhenOpen = "refuse",
    ) -> Permit:
        """Wait, in this thread, until the call may start.

        ``max_wait`` and ``deadline_at`` (an instant on the limiter's clock) are promises: if they
        cannot be kept, ``WaitTooLongError`` is raised at once. ``cost`` is a number of requests or what
        the call takes of each known limit. With ``also``, the call is let through under all keys or none.
        An open circuit raises ``CircuitOpenError`` at once; with ``when_open="wait"`` the call stays in line until the
        circuit lets it through, as the next probe or after it.
        """
        if cost == 1 and deadline_at is None and not also and (max_wait is None or _is_wait(max_wait)):
            with self._lock:
                gate = self._find(key)
                permit = None if gate is None else gate.ask_plainly(self._now())
            if permit is not None:
                return permit
        check_when_open(when_open)
        waiter = ThreadWaiter(self, cost, when_open)
        try:
            self._line_up(waiter, key, max_wait, deadline_at, also)
            if not waiter.settled and self._sharing is not None and self._sharing.is_this_thread():
                raise WaitTooLongError(key, "a listener must not wait: it would keep the thread that brings permits")
            while not waiter.settled:
                waiter.sleep()
                if not waiter.settled:
                    self.tick(waiter)
        except BaseException:
            self._step_out(waiter)
            raise
        return waiter.outcome()

    async def acquire_async(
        self,
        key: str,
        cost: Cost = 1,
        max_wait: float | None = None,
        deadline_at: float | None = None,
        also: Iterable[str] = (),
        when_open: WhenOpen = "refuse",
    ) -> Permit:
        """Wait, in this task, until the call may start. Cancelling the wait takes nothing."""
        if cost == 1 and deadline_at is None and not also and (max_wait is None or _is_wait(max_wait)):
            self._take_lock()  # not `with`: no signal handler raises here, and it costs a tenth of the whole way
            try:
                gate = self._find(key)
                permit = None if gate is None else gate.ask_plainly(self._now())
            finally:
                self._free_lock()
            if permit is not None:
                return permit
        check_when_open(when_open)
        return await self._wait_async(TaskWaiter(self, cost, when_open), key, max_wait, deadline_at, also)

    async def _wait_async(
        self, waiter: TaskWaiter, key: str, max_wait: float | None, deadline_at: float | None, also: Iterable[str]
    ) -> Permit:
        try:
            self._line_up(waiter, key, max_wait, deadline_at, also)
            while not waiter.settled:
                await waiter.future
                if not waiter.settled:
                    self.tick(waiter)
        except BaseException:
            self._step_out(waiter)
            raise
        finally:
            waiter.disarm()
        return waiter.outcome()

    def try_acquire(self, key: str, cost: Cost = 1, also: Iterable[str] = ()) -> Permit | None:
        """A permit if the call may start this instant, else None. Never waits, never overtakes anyone."""
        if cost == 1 and not also:
            with self._lock:
                gate = self._find(key)
                permit = None if gate is None else gate.ask_plainly(self._now())
            if permit is not None:
                return permit
        check_cost(cost)
        keys = check_also(also)
        with self._lock:
            now = self._now()
            gates = self._open(key, keys, cost, now)
            if any(gate.waited_for for gate in gates):
                return None
            _, decision = self._admit(gates, now, now, cost)
        self._look_after_all(gates, now)
        self.tell.flush()
        return decision if isinstance(decision, Permit) else None

    def permit(
        self,
        key: str,
        cost: Cost = 1,
        max_wait: float | None = None,
        deadline_at: float | None = None,
        also: Iterable[str] = (),
        when_open: WhenOpen = "refuse",
    ) -> PermitContext:
        """For ``with`` and ``async with``: acquires on entering, ends the permit on leaving."""
        return PermitContext(self, (key, cost, max_wait, deadline_at, also, when_open))

    def watch(self, watcher: CallWatcher) -> None:
        """Tell this one of every single call from now on."""
        with self._lock:
            self.tell.watch((*self.tell.watchers, watcher))

    def unwatch(self, watcher: CallWatcher) -> None:
        with self._lock:
            self.tell.watch(tuple(one for one in self.tell.watchers if one is not watcher))

    # ------------------------------------------------------------------ teaching and looking

    def feedback(self, key: str, feedback: Feedback) -> None:
        """Teach a key how a call ended: its oldest open permit if that fits, else a call we did not see."""
        wall = self.clock.wall()
        signal = signal_of(feedback.err, feedback.status_code, feedback.headers, None, feedback.retry_after, wall)
        latency = min(feedback.latency, LONGEST_WAIT) if feedback.latency >= 0 else 0.0
        draw = 0.0 if signal.retry_after is None else self._rng.random()
        with self._lock:
            now = self._now()
            gate = self._keys.open(key, now)
            before = gate.look()
            gate.teach(signal, latency, now, draw)
            gate.note(signal)
            self._again += signal.outcome in AGAIN
            self.tell.note_changes(gate, before, gate.look(), now)
            self.serve(gate, now)
        self.tell.flush()

    def check(self, key: str, cost: Cost) -> None:
        """Raise ``CostTooLargeError`` if a call of this cost could never start under the key's known limits."""
        check_cost(cost)
        with self._lock:
            self._open(key, (), cost, self._now())

    def has_limits(self, key: str) -> bool:
        """Whether limits are known for this key. Where none are, a call's cost is its number of requests alone."""
        with self._lock:
            return self._keys.open(key, self._now()).buckets is not None

    def check_circuit(self, key: str) -> None:
        """Raise ``CircuitOpenError`` if this key's circuit would refuse a call now. Takes nothing, not even a probe."""
        gate = self._gates.get(key)
        if gate is None or gate.breaker.state is CircuitState.CLOSED:  # a key that is put away has a closed one
            return
        with self._lock:
            now = self._now()
            objection = gate.breaker.refusal(now)
            if objection is None:
                return
            refusal = refused_by(gate, objection, now)
            self._note_refusal(gate, refusal, now)
        self.tell.flush()
        raise refusal

    def circuit_opens_in(self, key: str) -> float:
        """Seconds until this key's circuit lets a probe through; 0 unless it is open. Takes nothing, counts nothing."""
        gate = self._gates.get(key)
        if gate is None or gate.breaker.state is not CircuitState.OPEN:
            return 0.0
        with self._lock:
            now = self._now()
            refusal = gate.breaker.refusal(now)
        return 0.0 if refusal is None or refusal.retry_at is None else max(0.0, refusal.retry_at - now)

    def circuit_state(self, key: str) -> CircuitState:
        """This key's circuit as it was last left: of one that is open for long enough the next call is the probe."""
        gate = self._gates.get(key)
        return CircuitState.CLOSED if gate is None else gate.breaker.state

    def part(self, key: str, pace_key: str, config: RateLimitConfig) -> None:
        """Leave a key its circuit, under other settings, and give its pace to another key.

        With the pace go those who wait for it, the calls in flight and all that was learned.
        """
        with self._lock:
            self._keys.part(key, pace_key, config, self._now())

    def look_at_sharing(self) -> SharingSnapshot | None:
        """How it stands with the store that this limiter shares its keys through; None if it shares nothing."""
        with self._lock:
            return self._sharing_seen()

    def _sharing_seen(self) -> SharingSnapshot | None:
        sharing = self._sharing
        if sharing is None:
            return None
        members = max((gate.members for gate in self._gates.values()), default=1)
        return SharingSnapshot(
            where=sharing.store.where, members=max(1, members), is_lost=sharing.is_down, failures=sharing.failures
        )

    def close(self) -> None:
        """Give back what is held of a shared quota and leave it; a limiter that shares nothing has nothing to do.

        It happens by itself when the program ends.
        """
        if self._sharing is not None:
            self._sharing.close()

    def snapshot(self, top: int = 100) -> LimiterSnapshot:
        """What is going on: totals, and the ``top`` keys that were used last."""
        if not top >= 0:
            raise ConfigError(f"top={top!r} must be 0 or more")
        with self._lock:
            now = self._now()
            self._tidy(now, len(self._keys))
            states = [gate.breaker.state_at(now) for gate in self._gates.values()]
            snapshot = LimiterSnapshot(
                total=self._keys.calls(),
                throttled=self._waited,
                denied=self._denied,
                retries=self._again,
                open_circuits=states.count(CircuitState.OPEN),
                half_open_circuits=states.count(CircuitState.HALF_OPEN),
                keys=[self._seen(gate, now) for gate in self._keys.newest(top, now)],
                sharing=self._sharing_seen(),
            )
        self.tell.flush()
        return snapshot


def _is_wait(value: object) -> bool:
    return isinstance(value, int | float) and value >= 0


class PermitContext:
    """``with limiter.permit(key) as permit`` and ``async with``: one permit for one block."""

    __slots__ = ("_around", "_limiter", "_permit", "_request")

    def __init__(
        self,
        limiter: AdaptiveRateLimiter,
        request: tuple[str, Cost, float | None, float | None, Iterable[str], WhenOpen],
    ) -> None:
        self._limiter = limiter
        self._request = request
        self._permit: Permit | None = None
        self._around: AbstractContextManager[object] | None = None

    def __enter__(self) -> Permit:
        self._permit = permit = self._limiter.acquire(*self._request)
        return permit if not self._limiter.tell.around else self._watched(permit)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._permit is not None
        if self._around is not None:
            self._around.__exit__(kind, error, trace)
        self._permit.__exit__(kind, error, trace)

    async def __aenter__(self) -> Permit:
        self._permit = permit = await self._limiter.acquire_async(*self._request)
        return permit if not self._limiter.tell.around else self._watched(permit)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _watched(self, permit: Permit) -> Permit:
        self._around = around(self._limiter.tell.around, permit, About())
        self._around.__enter__()
        return permit
