"""Parts of the engine in virtual time."""

from __future__ import annotations

import pytest

from headgate.lab.virtual_time import run


@pytest.fixture(scope="session")
def play():
    """``play(scenario)``: run ``async def scenario(clock)`` in virtual time."""
    return run
