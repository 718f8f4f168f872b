"""Ports that no other process takes between the look and the use.

The kernel gives those from 32,768 up to any connection, so one of those can be gone before the second server binds
it, or while the first is down. The ones here are below, each is given once until the end of the range is reached, and
processes begin at places of their own.
"""

import itertools
import os
import socket
import threading

FIRST, COUNT = 15_000, 7_700
FOR_A_CLUSTER = 10_000
"""A node of a Redis Cluster listens there too, above its port."""

_BEGIN = os.getpid() * 64 % COUNT
_NEXT = itertools.cycle(FIRST + (_BEGIN + number) % COUNT for number in range(COUNT))
_ONE_AT_A_TIME = threading.Lock()


def free_port(*addresses: str) -> int:
    """One that is free at all the addresses, and at loopback with what a Cluster needs."""
    with _ONE_AT_A_TIME:
        for port in itertools.islice(_NEXT, COUNT):
            wanted = [(address, port) for address in addresses]
            if all(map(_is_free, [("127.0.0.1", port), ("127.0.0.1", port + FOR_A_CLUSTER), *wanted])):
                return port
    raise OSError("no free port")


def _is_free(place: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(place)
        except OSError:
            return False
    return True
