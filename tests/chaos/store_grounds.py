"""What members stand on while their store fails: a real server, a slow line to one, or a file.

A ground says where the store is, and its faults (``store_faults.py``) begin and end at will. ``ready`` is called before
each fault.
"""

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import redis
from bench.redis_server import RedisServer

PATIENCE = 40.0
AWAY = (0.3, 1.0)
LONG = (2.2, 3.2)
AT_ONCE = (0.0, 0.0)
"""For how many seconds a fault lasts: from, to."""


def wait_for(what, condition):
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {PATIENCE:.0f} s"
        time.sleep(0.01)


class Ground:
    felt = True
    """Whether members cannot but notice the fault."""
    seconds = AWAY
    replaces = False
    """Whether it is a member that fails."""
    is_shared = True
    """Whether other processes can find the store."""

    def __init__(self, folder, crowd):
        self.folder, self.crowd, self.stack = folder, crowd, ExitStack()
        self.where = self.lay()

    def lay(self):
        """Make the store; returns how members call it."""
        raise NotImplementedError

    def ready(self):
        pass

    def begin(self):
        raise NotImplementedError

    def end(self):
        pass

    def clear(self):
        self.stack.close()


class Served(Ground):
    options = ()

    def lay(self):
        self.server = self.stack.enter_context(RedisServer(*self.options))
        return self.server.url

    def tell(self, *words):
        with redis.Redis(port=self.server.port, protocol=2) as client:
            client.execute_command(*words)


class FarAway(Served):
    """A line in front of the server."""

    def lay(self):
        super().lay()
        command = [sys.executable, str(Path(__file__).with_name("slow_line.py")), str(self.server.port)]
        self.line = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.stack.callback(self.line.communicate, timeout=PATIENCE)
        return f"redis://127.0.0.1:{int(self.line.stdout.readline())}"

    def tell_line(self, *words):
        self.line.stdin.write(" ".join(map(str, words)) + "\n")


class Filed(Ground):
    def lay(self):
        self.state = self.folder / "state"
        self.path = self.state / "shared.db"
        return "machine"
