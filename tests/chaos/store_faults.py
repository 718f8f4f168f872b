"""Everything that can happen to a store, on loopback and with real servers and files."""

import os
import resource
import shutil
import sqlite3

import redis
from bench.redis_server import RedisServer
from tests.chaos.store_grounds import AT_ONCE, LONG, FarAway, Filed, Ground, Served, wait_for

# ------------------------------------------------------------------ a server


class Killed(Served):
    """It comes back with its data."""

    options = ("--appendonly", "yes", "--appendfsync", "always")

    def begin(self):
        self.server.stop()

    def end(self):
        self.server.start()


class Restarted(Served):
    """It comes back at once and has forgotten everything."""

    felt = False
    seconds = AT_ONCE

    def begin(self):
        self.server.stop()
        self.server.start()


class AwayAndEmpty(Served):
    def begin(self):
        self.server.stop()

    def end(self):
        self.server.start()


class Stalled(Served):
    def begin(self):
        self.server.stall()

    def end(self):
        self.server.go_on()


class Frozen(Stalled):
    """For so long that every member has sent it dozens of requests in vain, all of which it gets to when it goes on."""

    seconds = LONG


class Wiped(Served):
    felt = False
    seconds = AT_ONCE

    def begin(self):
        self.tell("FLUSHALL")


class ReadOnly(Served):
    def begin(self):
        self.tell("REPLICAOF", "127.0.0.1", "1")

    def end(self):
        self.tell("REPLICAOF", "NO", "ONE")


class OutOfMemory(Served):
    def begin(self):
        self.tell("CONFIG", "SET", "maxmemory", "1")

    def end(self):
        self.tell("CONFIG", "SET", "maxmemory", "0")


# ------------------------------------------------------------------ the way to a server


class Slow(FarAway):
    felt = False
    delay = 0.02

    def begin(self):
        self.tell_line("delay", self.delay)

    def end(self):
        self.tell_line("delay", 0)


class SlowToTheLimit(Slow):
    """Hardly faster than members are willing to wait: some of their requests fail, others do not."""

    delay = 0.045


class TooSlow(Slow):
    felt = True
    delay = 0.2


class Partitioned(FarAway):
    """Nothing gets through; what was sent meanwhile arrives all at once when the network is mended."""

    seconds = LONG

    def begin(self):
        self.tell_line("hold")

    def end(self):
        self.tell_line("go")


class FailingOver(FarAway):
    """The primary dies; a while later its replica is promoted, and the name leads there."""

    options = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")

    def lay(self):
        where = super().lay()
        self.other = self.stack.enter_context(RedisServer(*self.options))
        return where

    def ready(self):
        with redis.Redis(port=self.other.port, protocol=2) as client:
            client.replicaof("127.0.0.1", self.server.port)
        wait_for(
            "the replica follows", lambda: b"master_link_status:up" in (self.other.ask(b"INFO replication") or b"")
        )

    def begin(self):
        self.server.stop()

    def end(self):
        with redis.Redis(port=self.other.port, protocol=2) as client:
            client.replicaof("NO", "ONE")
        self.tell_line("to", self.other.port)
        self.server, self.other = self.other, self.server
        self.other.start()


# ------------------------------------------------------------------ a file


class Locked(Filed):
    """For less than the 2 s that an exchange has: calls go on at their shares, and the store does not count as lost."""

    felt = False

    def begin(self):
        self.lock = sqlite3.connect(self.path, isolation_level=None)
        wait_for("the lock", self._take)

    def _take(self):
        try:
            self.lock.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True

    def end(self):
        self.lock.execute("ROLLBACK")
        self.lock.close()


class LockedForLong(Locked):
    felt = True
    seconds = LONG


class Deleted(Filed):
    felt = False
    seconds = AT_ONCE

    def begin(self):
        for beside in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + beside).unlink(missing_ok=True)


class Corrupted(Filed):
    felt = False
    seconds = AT_ONCE

    def begin(self):
        with open(self.path, "r+b") as file:
            file.write(os.urandom(self.path.stat().st_size))


class FolderAway(Filed):
    """Something else is in the place of its folder."""

    def begin(self):
        self.state.rename(self.folder / "elsewhere")
        while not self.state.is_file():
            try:
                self.state.touch(exist_ok=False)
            except FileExistsError:  # a member was faster, and has made another
                shutil.rmtree(self.state, ignore_errors=True)

    def end(self):
        self.state.unlink()
        (self.folder / "elsewhere").rename(self.state)


class FolderReadOnly(Filed):
    def begin(self):
        self.state.chmod(0o500)
        self.path.chmod(0o400)

    def end(self):
        self.state.chmod(0o700)
        self.path.chmod(0o600)


class DiskFull(Filed):
    """No file of the members' may grow any more."""

    def begin(self):
        self._allow(0)

    def end(self):
        self._allow(resource.RLIM_INFINITY)

    def _allow(self, size):
        for process in self.crowd.processes:
            _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, most))


# ------------------------------------------------------------------ time, and members


class ClockJumps(Ground):
    felt = False
    is_shared = False
    seconds = AT_ONCE

    def lay(self):
        self.jumps = [30.0, -30.0, 3600.0, -3600.0, 0.7, -0.7]
        return "jumping"

    def begin(self):
        self.jumps.append(self.jumps.pop(0))
        self.crowd.tell("jump", self.jumps[-1])


class MemberKilled(Served):
    """With kill -9; another comes in its place."""

    felt = False
    seconds = AT_ONCE
    replaces = True

    def begin(self):
        self.crowd.replace()


FAULTS = {
    "killed": Killed,
    "killed, back empty": AwayAndEmpty,
    "restarted": Restarted,
    "stalled": Stalled,
    "frozen": Frozen,
    "wiped": Wiped,
    "read-only": ReadOnly,
    "out of memory": OutOfMemory,
    "20 ms slower": Slow,
    "45 ms slower": SlowToTheLimit,
    "200 ms slower": TooSlow,
    "partitioned": Partitioned,
    "failing over": FailingOver,
    "the clock jumps": ClockJumps,
    "a member killed": MemberKilled,
    "file locked": Locked,
    "file locked for long": LockedForLong,
    "file deleted": Deleted,
    "file corrupted": Corrupted,
    "folder away": FolderAway,
    "folder read-only": FolderReadOnly,
    "disk full": DiskFull,
}
