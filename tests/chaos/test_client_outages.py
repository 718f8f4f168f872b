"""Outages of a real server, with default settings: no client behind the gate loses a call."""

from __future__ import annotations

import pytest
from tests.integrations.outages import CLIENTS, Server, lost_in

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


@pytest.mark.parametrize("outage", [3.0, 30.0])
def test_no_client_loses_a_call(outage):
    with Server() as server:
        assert lost_in(server, outage, 300, 20.0, after=5.0) == {client: [] for client in CLIENTS}
