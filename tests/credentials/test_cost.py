"""What credentials may cost with a hundred in quarantine. ``python -m bench.credentials`` measures more."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable

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


def test_asking_takes_few_steps_while_all_rest_and_when_all_are_back() -> None:
    """Calls of functions; ``bench.credentials`` has what they take."""
    clock = VirtualClock()
    keys = all_resting(clock)
    assert steps(lambda: keys.get_credential() is None) < len(SECRETS), "none of them is looked at"
    clock.advance(60)
    assert steps(lambda: keys.get_credential() is not None) < 20 * len(SECRETS)


def steps(check: Callable[[], bool]) -> int:
    """How many calls of Python functions it takes."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        held = check()
    finally:
        sys.setprofile(None)
    assert held
    return count
