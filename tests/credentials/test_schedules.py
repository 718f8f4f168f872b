"""Random schedules of everything that can happen to credentials, against a model that only remembers what was said.

In every schedule: never two holders of one credential, never a lost one, never one that is back early.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from headgate import Outcome, Signal
from headgate.credentials import Credential, CredentialCoordinator, FileStore, Identities, Lease, Record
from headgate.credentials.store_sync import CHECK_EVERY
from headgate.errors import NoCredentialError
from headgate.lab.virtual_time import LoopClock, run

pytestmark = pytest.mark.no_cover

EARLY = 2e-6
"""Rounding."""
NAMES = Identities(b"the seed")


class Memory:
    """A store that survives a restart of the coordinator, not of the test."""

    def __init__(self) -> None:
        self.kept: dict[str, Record] = {}
        self.saves = 0

    def load(self) -> list[Record]:
        return list(self.kept.values())

    def save(self, records: Iterable[Record]) -> None:
        self.saves += 1
        for record in records:
            known = self.kept.get(record.identity)
            self.kept[record.identity] = record if known is None else known.merged(record)

    def stamp(self) -> int:
        return self.saves


class Schedule:
    """A few keys, a few workers and an operator, all at random."""

    def __init__(self, seed: int, clock: LoopClock, store: Memory | FileStore) -> None:
        self.random = random.Random(seed)
        self.clock, self.store = clock, store
        groups = [self.random.choice([None, None, "one"]) for _ in range(self.random.randint(1, 4))]
        self.credentials = [Credential(f"k{number}", f"s{number}", group) for number, group in enumerate(groups)]
        self.not_before = {one.label: 0.0 for one in self.credentials}
        self.retired: set[str] = set()
        self.ever_retired = False
        self.said_at = dict.fromkeys(self.not_before, -1.0)
        """When it was last sent away: a lease given before, or in that very moment, is none of it."""
        self.freed = dict.fromkeys(self.not_before, 0)
        """How often an operator has brought it back: what is heard of leases from before is void."""
        self.holders: dict[str, int] = {one.label: 0 for one in self.credentials}
        self.served = 0
        self.start()

    def start(self) -> None:
        self.keys = CredentialCoordinator(
            self.credentials, at_once=1, clock=self.clock, store=self.store, identities=NAMES
        )

    def rests(self, label: str, seconds: float, *, group: bool = False, freed: dict[str, int] | None = None) -> None:
        then = self.freed if freed is None else freed
        if then[label] != self.freed[label]:
            return
        name = next(one.group for one in self.credentials if one.label == label)
        for one in self.credentials:
            shares = group and name is not None and one.group == name and then[one.label] == self.freed[one.label]
            if (one.label == label or shares) and one.label not in self.retired:
                self.not_before[one.label] = max(self.not_before[one.label], self.clock.now() + seconds)
                self.said_at[one.label] = self.clock.now()

    def retires(self, label: str) -> None:
        self.retired.add(label)
        self.ever_retired = True
        self.said_at[label] = self.clock.now()

    def begin(self, label: str, since: float) -> None:
        self.served += 1
        self.holders[label] += 1
        assert self.holders[label] == 1, f"{label} has two holders"
        if since > self.said_at[label]:
            assert label not in self.retired, f"{label} was retired"
            assert since >= self.not_before[label] - EARLY, f"{label} is back early"

    async def work(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            await asyncio.sleep(self.random.choice([0.0, 0.0, 0.1, 1.0]))
            timeout = self.random.choice([None, 0.0, 0.5, 5.0])
            try:
                if self.random.random() < 0.3:
                    await self.as_string()
                else:
                    async with self.keys.lease(timeout) as lease:
                        await self.as_lease(lease)
            except NoCredentialError:
                assert timeout is not None or self.ever_retired

    async def as_lease(self, lease: Lease) -> None:
        label, seconds = lease.label, self.random.choice([0.05, 0.3, 2.0, 60.0])
        self.begin(label, lease.since)
        freed = dict(self.freed)
        try:
            await asyncio.sleep(self.random.choice([0.0, 0.05, 0.5]))
        finally:
            self.holders[label] -= 1
        end = self.random.random()
        if end < 0.25:
            self.rests(label, seconds, group=True, freed=freed)
            lease.report(signal=Signal(outcome=Outcome.RATE_LIMITED, retry_after=seconds))
        elif end < 0.35:
            self.rests(label, seconds, freed=freed)
            lease.report(signal=Signal(outcome=Outcome.QUOTA_EXHAUSTED, retry_after=seconds))
        elif end < 0.4:
            if freed[label] == self.freed[label]:
                self.retires(label)
            lease.report(signal=Signal(outcome=Outcome.AUTH))
        elif end < 0.6:
            lease.report(signal=Signal(outcome=Outcome.OK))
        elif end < 0.7:
            lease.release()
            lease.release()

    async def as_string(self) -> None:
        secret = self.keys.get_credential()
        if secret is None:
            return
        label = "k" + secret[1:]
        self.begin(label, self.clock.now())
        limited, seconds = self.random.random() < 0.4, self.random.choice([-1.0, 0.0, 0.3, 2.0])
        try:
            await asyncio.sleep(self.random.choice([0.0, 0.05]))
        finally:  # also when cancelled: a bare string does not give itself back
            self.holders[label] -= 1
            if limited and seconds > 0:
                self.rests(label, seconds, group=True)
            self.keys.release_credential(secret, rate_limited=limited, backoff_seconds=seconds)

    async def operate(self, workers: list[asyncio.Task[None]]) -> None:
        for _ in range(self.random.randint(0, 5)):
            await asyncio.sleep(self.random.choice([0.0, 0.1, 0.7]))
            label, chance = self.random.choice(self.credentials).label, self.random.random()
            if chance < 0.5:
                self.random.choice(workers).cancel()
            elif chance < 0.7:
                self.rests(label, 1.5)
                self.keys.park(label, 1.5)
            elif chance < 0.9:
                self.freed[label] += label in self.retired or self.not_before[label] > self.clock.now()
                self.not_before[label] = 0.0
                self.retired.discard(label)
                self.keys.free(label)
            else:
                self.retires(label)
                self.keys.retire(label)

    async def live(self) -> None:
        """From a start to a restart: all that still runs then is cancelled."""
        workers = [asyncio.create_task(self.work()) for _ in range(self.random.randint(1, 6))]
        operator = asyncio.create_task(self.operate(workers))
        _, late = await asyncio.wait([*workers, operator], timeout=self.random.choice([0.3, 3.0, 30.0]))
        for task in late:
            task.cancel()
        for outcome in await asyncio.gather(*workers, operator, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    async def settle(self) -> None:
        """Once nobody does anything and all rests are over, every credential that is not retired can be had."""
        await asyncio.sleep(max(0.0, *(at - self.clock.now() for at in self.not_before.values())) + CHECK_EVERY)
        leases = [self.keys.try_acquire() for _ in self.credentials]
        had = {lease.label for lease in leases if lease is not None}
        assert had == {one.label for one in self.credentials} - self.retired, "one was lost"
        for lease in leases:
            if lease is not None:
                lease.release()


def play(seed: int, store: Memory | FileStore) -> int:
    async def main(clock: LoopClock) -> int:
        schedule = Schedule(seed, clock, store)
        for _ in range(schedule.random.randint(0, 2)):
            await schedule.live()
            schedule.start()
        await schedule.live()
        await schedule.settle()
        return schedule.served

    try:
        return run(main)
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise


@pytest.fixture(autouse=True)
def quietly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "headgate")


def test_hundreds_of_random_schedules() -> None:
    assert sum(play(seed, Memory()) for seed in range(300)) > 900


@pytest.mark.chaos
@pytest.mark.parametrize("first", range(0, 10_000, 1_000))
def test_ten_thousand_random_schedules(first: int) -> None:
    assert sum(play(seed, Memory()) for seed in range(first, first + 1_000)) > 3_000


@pytest.mark.parametrize("name", ["state.db", "state.json"])
def test_random_schedules_over_a_real_file(name: str, tmp_path: Path) -> None:
    for seed in range(30):
        play(seed, FileStore(tmp_path / f"{seed}-{name}"))
