"""States written by an earlier release load and are written again as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate import RateLimitConfig

pytestmark = pytest.mark.no_cover

STATES = json.loads((Path(__file__).parent / "stored_states.json").read_text())
"""By strategy, scenario and time: what ``to_state()`` gave; bytes as hex."""


def plain(value):
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"])
    return tuple(map(plain, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("name", STATES)
def test_a_state_of_an_earlier_release_loads_and_stays_what_it_was(name):
    state = plain(STATES[name])
    controller = RateLimitConfig(strategy=name.split()[0]).gate_config().controller()
    controller.load_state(state)
    assert controller.to_state() == state
    assert controller.rate > 0
