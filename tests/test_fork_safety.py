"""A fork while the garbage collector is at work."""

import gc

import pytest

from headgate import fork_safety


class Owner:
    """Of a cycle, so that its lock ends with a collection."""

    def __init__(self):
        self.lock, self.itself = fork_safety.lock(), self


@pytest.mark.no_cover
def test_locks_that_are_collected_while_a_fork_takes_them_disturb_nothing():
    before = gc.get_threshold()
    gc.collect()
    gc.disable()
    try:
        kept = [Owner() for _ in range(10_000)][:10]
        gc.set_threshold(gc.get_count()[0] + 3_000)  # in the middle of listing them
        gc.enable()
        locks = fork_safety._alive(fork_safety._quick)
    finally:
        gc.enable()
        gc.set_threshold(*before)
    assert {id(one.lock) for one in kept} <= {id(lock) for _, lock in locks}
