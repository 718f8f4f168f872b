"""One process with some members of a shared quota, under a steady load; all that happens is written to stdout.

store_member.py STORE MEMBERS LIMIT

Each member is a limiter of its own with two keys: under ``full`` more is wanted than the limit allows, which shows what
is let through; under ``calm`` a part of it, at even intervals, which shows what a call has to wait for. A
thread beside it hands out credentials. STORE may be ``jumping``: one in memory, whose clock is moved by commands.

Lines that come in (stdin):                      Lines that go out, instants on the machine's one monotonic clock:
    refused SECONDS   its next answer is a 429       permit MEMBER KEY TASK ASKED_AT GIVEN_AT
    rest LABEL SECONDS                               told MEMBER AT SECONDS           a 429 has come in
    jump SECONDS                                     event MEMBER AT KIND
    stop                                             state MEMBER AT ALONE ERA COUNT  whenever one of them changes
                                                     late PROCESS FROM TO             the machine kept the loop waiting
                                                     handed MEMBER AT LABEL           a credential
                                                     rested MEMBER AT LABEL SECONDS
                                                     blind MEMBER                     credentials: no first look
                                                     failures MEMBER COUNT            at the end
                                                     crash MEMBER WHAT
"""

import asyncio
import logging
import os
import random
import sys
import threading
import time
from types import SimpleNamespace

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.clock import SystemClock
from headgate.credentials import CredentialCoordinator, FileStore
from headgate.distributed.backends.memory import MemoryStore

FULL_TASKS = 5
CALL_TAKES = 0.01
CALM_EVERY = 0.066
TICK = 0.005
LATE = 0.01
"""Seconds by which a loop must be woken too late for it to be worth a line."""
STATE_EVERY = 0.02
CREDENTIALS = 60
HAND_EVERY = 0.03
PATIENCE = 10.0

now = time.monotonic


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class JumpingClock(SystemClock):
    def __init__(self):
        self.ahead = 0.0

    def now(self):
        return now() + self.ahead

    def wall(self):
        return time.time() + self.ahead


def credential_store(store):
    if not store.startswith("redis"):
        return FileStore()
    from headgate.credentials.redis_store import RedisCredentialStore

    return RedisCredentialStore(store)


class Member:
    def __init__(self, name, store, credentials, limit):
        self.name, self.refuse_for, self.stopping = name, 0.0, False
        config = RateLimitConfig(strategy="fixed", limits={"requests": f"{limit}/s"}, stats_window=4.0)
        self.limiter = AdaptiveRateLimiter(config, store=store, on_event=self.hear, rng=random.Random(name))
        self.keys = CredentialCoordinator(
            [f"secret-{number:03}" for number in range(CREDENTIALS)], at_once=None, store=credentials
        )
        if self.keys.store_failures:
            say("blind", name)
        self.rests, self.rng, self.state = [], random.Random(name), None

    def hear(self, event):
        say("event", self.name, f"{event.at:.6f}", event.kind)

    async def call(self, key, task):
        asked_at = now()
        permit = await self.limiter.acquire_async(key)
        say("permit", self.name, key, task, f"{asked_at:.6f}", f"{now():.6f}")
        await asyncio.sleep(CALL_TAKES)
        seconds, self.refuse_for = (self.refuse_for, 0.0) if key == "full" else (0.0, self.refuse_for)
        if seconds:
            say("told", self.name, f"{now():.6f}", seconds)
            permit.report(status_code=429, retry_after=seconds)
        else:
            permit.report(status_code=200)

    async def want_more_than_there_is(self, task):
        while not self.stopping:
            await self.call("full", task)

    async def want_little(self):
        calls = set()
        while not self.stopping:
            calls.add(asyncio.create_task(self.call("calm", 0)))
            calls = {call for call in calls if not call.done() or call.result()}
            await asyncio.sleep(CALM_EVERY * self.rng.uniform(0.7, 1.3))
        await asyncio.gather(*calls)

    async def show(self):
        while not self.stopping:
            entry = self.limiter._registry.entries.get("full")
            state = None if entry is None else (int(entry.client.alone), entry.client.era, entry.members)
            if state != self.state:
                self.state = state
                say("state", self.name, f"{now():.6f}", *state)
            await asyncio.sleep(STATE_EVERY)

    def hand_out(self):
        """In a thread of its own: handing out credentials may have to wait for their store."""
        try:
            while not self.stopping:
                while self.rests:
                    self._rest(*self.rests.pop())
                lease = self.keys.try_acquire()
                if lease is not None:
                    say("handed", self.name, f"{now():.6f}", lease.label)
                    lease.release()
                time.sleep(HAND_EVERY)
        except BaseException as error:
            say("crash", self.name, "credentials", repr(error))

    def _rest(self, label, seconds):
        lease = self.keys.try_acquire(label, only=True)
        if lease is not None:
            lease.report(SimpleNamespace(status_code=429, headers={"retry-after": str(seconds)}))
            say("rested", self.name, f"{now():.6f}", label, seconds)


async def notice_delays():
    while True:
        due_at = now() + TICK
        await asyncio.sleep(TICK)
        if now() > due_at + LATE:
            say("late", os.getpid(), f"{due_at:.6f}", f"{now():.6f}")


async def main(store, count, limit):
    clock = JumpingClock()
    shared = MemoryStore(clock) if store == "jumping" else None
    members = [
        Member(f"{os.getpid()}.{number}", shared or store, credential_store(store), limit) for number in range(count)
    ]
    stopped = asyncio.Event()
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    async def obey():
        while line := (await lines.readline()).decode().split():
            match line:
                case "refused", seconds:
                    members[0].refuse_for = float(seconds)
                case "rest", label, seconds:
                    members[0].rests.append((label, int(seconds)))
                case "jump", seconds:
                    clock.ahead += float(seconds)
                case "stop", *_:
                    break
        stopped.set()

    beside = [asyncio.create_task(obey()), asyncio.create_task(notice_delays())]
    threads = [threading.Thread(target=member.hand_out, daemon=True) for member in members]
    for thread in threads:
        thread.start()
    work = []
    for member in members:
        work += [asyncio.create_task(member.want_more_than_there_is(task)) for task in range(FULL_TASKS)]
        work += [asyncio.create_task(member.want_little()), asyncio.create_task(member.show())]
    waiting = asyncio.create_task(stopped.wait())
    await asyncio.wait([waiting, *work], return_when=asyncio.FIRST_COMPLETED)
    for member in members:
        member.stopping = True
    done, stuck = await asyncio.wait(work, timeout=PATIENCE)
    for task in done:
        if task.exception() is not None:
            say("crash", "-", repr(task.exception()))
    if stuck:
        say("crash", "-", f"{len(stuck)} tasks are stuck")
    for task in (*beside, *stuck, waiting):
        task.cancel()
    for thread in threads:
        thread.join(PATIENCE)
    for member in members:
        say("failures", member.name, member.limiter._sync.failures)
        member.limiter.close()


if __name__ == "__main__":
    logging.getLogger("headgate").setLevel(logging.ERROR)  # what is shown here is a fault of ours
    store, count, limit = sys.argv[1:]
    asyncio.run(main(store, int(count), int(limit)))
