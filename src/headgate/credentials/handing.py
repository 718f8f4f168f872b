"""Who gets which credential, and when: the pool of ``core.quarantine``, the line in front of it, one lock.

    nobody waits, one is free ──> a lease
    none is free ──> a place in line ──one is given back, or has rested──> a lease
                          │ none can come in time
                          └──> NoCredentialError, with the time the first is back

Whoever holds the lock hands out what is free; that is done when a lease ends, when a rest is
over and when an operator speaks: everything that can bring somebody's turn. The lock is held
while deciding, never over a wait, a listener or a file.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from itertools import islice

from ..clock import Clock
from ..core.cooldown import ExponentialCooldown, FixedCooldown
from ..core.decision import UNKNOWN
from ..core.pace import INSTANT
from ..core.quarantine import Pool
from ..core.signal import Signal
from ..errors import NoCredentialError
from .credential import Credential, Key
from .deciding import Deciding
from .lease import Lease
from .waiting import TaskWaiter, ThreadWaiter, Waiter

MOST_WAITING = 100_000
"""Callers that may wait at the same time."""
LATE = 0.02
"""A head of the line that has not woken up so many seconds after its time is looked after by somebody else."""
LOOKED_AT_FOR_DEPUTY = 64
MOST_REASONS = 100
"""Credentials of which a refusal says why they cannot be used."""


class Handing(Deciding):
    """The inside of a ``CredentialCoordinator``."""

    def __init__(
        self,
        credentials: Iterable[Credential],
        at_once: int | None,
        name: str,
        clock: Clock | None,
        cooldown: FixedCooldown | ExponentialCooldown,
    ) -> None:
        super().__init__(clock)
        self.name = name
        self._pool = Pool([Key(credential) for credential in credentials], at_once, cooldown)
        self._line: OrderedDict[Waiter, None] = OrderedDict()
        self._told: deque[tuple[str, Key | None, float, str]] = deque()
        """What happened and was not told yet: kind, to which credential or to all, for how long, why."""
        self._look_at = UNKNOWN
        """When to look at the store again."""

    # ------------------------------------------------------------------ taking

    def take(self, lease: Lease, timeout: float | None, prefer: str | None = None) -> None:
        """Wait, in this thread, until the lease has a credential."""
        if self.try_take(lease, prefer):
            return
        waiter = ThreadWaiter(self, lease, prefer)
        try:
            self._line_up(waiter, timeout)
            while not waiter.settled:
                waiter.sleep()
                self.tick(waiter)
        except BaseException:
            self._soon(lambda: self._leave(waiter))
            raise
        if waiter.refusal is not None:
            raise waiter.refusal

    async def take_async(  # the timeout refuses what could never come in time; cancelling cannot
        self,
        lease: Lease,
        timeout: float | None,  # noqa: ASYNC109
        prefer: str | None = None,
    ) -> None:
        """Wait, in this task, until the lease has a credential. Cancelling the wait takes nothing."""
        if self.try_take(lease, prefer):
            return
        waiter = TaskWaiter(self, lease, prefer)
        try:
            self._line_up(waiter, timeout)
            if not waiter.settled:
                await waiter.future
        except BaseException:
            self._soon(lambda: self._leave(waiter))
            raise
        finally:
            waiter.disarm()
        if waiter.refusal is not None:
            raise waiter.refusal

    def try_take(self, lease: Lease, prefer: str | None = None, *, only: bool = False) -> bool:
        """Take one, or ``only`` the preferred one, if it is free this instant. Overtakes nobody."""
        if self._look_at != UNKNOWN:
            self._look_if_due()
        with self._lock:
            now = self._begin()
            if not self._line and not (only and self._pool.by_label.get(prefer or "") not in self._pool.free):
                self._fill(lease, prefer, now)
            self._torn = False
        if self._told or self._left:
            self._after()
        return lease.key is not None

    def tick(self, waiter: Waiter) -> None:
        """A waiter woke up: serve the line, and let it go if its time is up."""
        with self._lock:
            now = self._begin()
            waiter.is_up()
            self._serve(now)
            if not waiter.settled and now >= waiter.give_up_at - INSTANT:
                self._refuse(waiter, now)
                self._serve(now)
            elif not waiter.settled:
                waiter.arm(waiter.wake_at)
            self._torn = False
        self._after()
        self._look_if_due()

    # ------------------------------------------------------------------ giving back

    def end(self, lease: Lease, signal: Signal | None) -> None:
        """Take a lease back, with what the answer said, if there was one."""
        with self._lock:
            now = self._begin()
            key = lease.key
            if key is not None and not lease.ended and lease.generation == self.generation:
                changed = [] if signal is None else self._pool.hear(key, signal, lease.since, now, lease.use)
                self._give_back(key, lease)
                if changed or self._line:
                    self._follow(changed, now)
            lease.ended = True
            self._torn = False
        if self._told or self._left:
            self._after()

    def end_later(self, key: Key, generation: int) -> None:
        """A lease was forgotten. Called by garbage collection, so perhaps in the middle of a decision."""

        def give_back() -> None:
            if generation == self.generation:
                self._give_back(key)

        self._soon(give_back)

    def _fill(self, lease: Lease, prefer: str | None, now: float) -> None:
        """Put into the lease the credential whose turn it is, if one is free."""
        lease.since = now
        key = lease.key = self._pool.pick(prefer)
        if key is not None:
            lease.use = key.used

    def _give_back(self, key: Key, lease: Lease | None = None) -> None:
        if lease is not None:
            lease.ended = True
        key.holders -= 1
        self._pool.file(key)

    def _leave(self, waiter: Waiter) -> None:
        """A waiter was cancelled or interrupted: nothing stays taken, nobody behind it is held up."""
        self._line.pop(waiter, None)
        waiter.settled = True
        lease = waiter.lease
        if lease.key is not None and not lease.ended and lease.generation == self.generation:
            self._give_back(lease.key, lease)

    # ------------------------------------------------------------------ under the lock

    def _begin(self) -> float:
        """Start a decision: mend what an interrupted one left, read the clock, bring back who has rested."""
        if self._torn:
            self._pool.mend()
        self._torn = True
        now = self._now()
        if now >= self._pool.change_at:
            back = self._pool.turn(now)
            self._told.extend(("credential_back", key, 0.0, "") for key in back)
            if back and self._line:
                self._serve(now)
        return now

    def _line_up(self, waiter: Waiter, timeout: float | None) -> None:
        """Serve or refuse the waiter at once where that is clear, else give it a place in line."""
        with self._lock:
            now = self._begin()
            waiter.joined_at = now
            if timeout is not None:
                waiter.give_up_at = now + timeout
            self._line[waiter] = None
            self._serve(now)
            if not waiter.settled and (
                waiter.give_up_at <= now or len(self._line) > MOST_WAITING or self._in_vain((waiter,))
            ):
                self._refuse(waiter, now)
            elif not waiter.settled:
                waiter.arm(waiter.wake_at)
                if len(self._line) == 1:
                    self._tell_of_line(now)
            self._torn = False
        self._after()

    def _tell_of_line(self, now: float) -> None:
        """A caller has to wait, the first since the line was empty."""
        pool = self._pool
        if pool.may_come_any_moment():
            self._told.append(("credential_pool_exhausted", None, 0.0, "held"))
        else:
            self._told.append(("credential_pool_exhausted", None, pool.back_at - now, "resting"))

    def _serve(self, now: float) -> None:
        """Hand out what is free, the first in line first, and set the alarm of the one after."""
        line, pool = self._line, self._pool
        while line:
            head = next(iter(line))
            lease = head.lease
            if not head.settled and not head.is_dead():
                if lease.key is None:
                    self._fill(lease, head.prefer, now)
                if lease.key is None:
                    break
                lease.waited = now - head.joined_at
                if not head.settle():  # its loop has closed this very moment
                    self._give_back(lease.key, lease)
            line.pop(head, None)
        else:
            return
        wake_at = min(pool.back_at, self._look_at)
        head.arm(wake_at)
        if isinstance(head, TaskWaiter):  # its loop may hang: somebody who lives elsewhere looks after its turn too
            others = (other for other in islice(line, 1, LOOKED_AT_FOR_DEPUTY) if other.home != head.home)
            deputy = next(others, None)
            if deputy is not None:
                deputy.arm(wake_at + LATE)

    def _follow(self, away: Iterable[Key], now: float) -> None:
        """Something was given back or sent away: remember what, serve, and refuse at once who now waits in vain."""
        for key in away:
            kind = "credential_retired" if key.retired else "credential_rested"
            self._told.append((kind, key, 0.0 if key.retired else key.until - now, key.reason))
        self._serve(now)
        in_vain = self._in_vain(self._line) if away else ()
        for waiter in in_vain:
            self._refuse(waiter, now)
        if in_vain:
            self._serve(now)

    def _in_vain(self, waiters: Iterable[Waiter]) -> list[Waiter]:
        """Those who give up before a credential can be there."""
        pool = self._pool
        if pool.is_spent():
            return list(waiters)
        if pool.may_come_any_moment():
            return []
        return [waiter for waiter in waiters if waiter.give_up_at < pool.back_at - INSTANT]

    def _refuse(self, waiter: Waiter, now: float) -> None:
        self._line.pop(waiter, None)
        waiter.settle(self.refusal(now))

    def refusal(self, now: float) -> NoCredentialError:
        """Why there is none now, and in how many seconds the first is back."""
        pool = self._pool
        found = Counter((key.state(now), key.reason) for key in pool.slots)
        counts = [
            f"{count} {state}" + (f": {why}" if why else "")
            for (state, why), count in sorted(found.items())
            if state in ("held", "resting", "retired")
        ]
        reason = f"no credential is free ({', '.join(counts) or 'others wait for them'})"
        refusal = NoCredentialError(self.name, reason, pool.back_at - now if pool.resting else None)
        refusal.reasons = dict(islice(((key.label, key.reason) for key in pool.slots if key.reason), MOST_REASONS))
        return refusal

    def _look_if_due(self) -> None:
        """Look at the store, if there is one. Without the lock."""

    def _start_over_in_child(self) -> None:
        super()._start_over_in_child()
        self._line.clear()
        for key in self._pool.slots:
            key.holders = 0
        self._pool.mend()
