"""What credentials may cost with a hundred in quarantine. ``python -m bench.credentials`` measures more."""

from __future__ import annotations

import gc
import time
import tracemalloc

from headgate.credentials import CredentialCoordinator
from headgate.lab.virtual_time import VirtualClock

SECRETS = [f"secret {number}" for number in range(100)]


def all_resting(clock: VirtualClock) -> CredentialCoordinator:
    keys = CredentialCoordinator(SECRETS, clock=clock)
    for secret in SECRETS:
        keys.release_credential(secret, rate_limited=True, backoff_seconds=60)
    return keys


def test_each_takes_less_than_a_kilobyte() -> None:
    all_resting(VirtualClock())  # what is made once
    gc.collect()
    tracemalloc.start()
    keys = all_resting(VirtualClock())
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert keys.get_quarantine_count() == 100
    assert size / 100 < 1024


def test_asking_takes_less_than_a_millisecond_while_all_rest_and_when_all_are_back() -> None:
    took = []
    for _ in range(10):  # the quickest of some, for other programs run here too
        clock = VirtualClock()
        keys = all_resting(clock)
        marks = [time.perf_counter()]
        assert keys.get_credential() is None
        marks.append(time.perf_counter())
        clock.advance(60)
        assert keys.get_credential() is not None
        marks.append(time.perf_counter())
        took.append(max(marks[1] - marks[0], marks[2] - marks[1]))
    assert min(took) < 0.001
