"""Fleet runs and quotas in Ray's actors; the contract of stores runs over them in tests/contract."""

from __future__ import annotations

import sys

import pytest

from headgate.errors import ConfigError
from headgate.fleet.state_store import open_run_state
from headgate.stores import open_store


@pytest.mark.parametrize("opened", [open_run_state, open_store])
def test_without_ray_it_says_what_to_install(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r'pip install "headgate\[ray\]"'):
        opened("ray")
