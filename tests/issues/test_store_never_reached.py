"""A store that was never reached: one warning, and calls as without a store; it is followed once it is there."""

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench.ports import free_port
from bench.redis_server import RedisServer
from tests.issues.conftest import Server

from headgate import AdaptiveRateLimiter, RateLimitConfig

ROWS = 120
"""At the 2 calls a second of a start that learns nothing they would take a minute."""
NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
def no_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be made there, as in a read-only container."""
    (tmp_path / "state").write_text("not a folder")
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path / "state"))


@pytest.mark.usefixtures("no_state_folder")
@pytest.mark.parametrize("store", ["machine", NOWHERE])
def test_one_warning_names_the_option(store: str, caplog: pytest.LogCaptureFixture) -> None:
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=200.0), store=store)
    with caplog.at_level(logging.WARNING, "headgate"):
        for _ in range(40):
            limiter.acquire("api.example.com", max_wait=30.0).report(status_code=200)
    sharing = limiter.snapshot().sharing
    limiter.close()
    assert sharing is not None
    assert (sharing.is_lost, sharing.members) == (True, 1)
    assert len([record for record in caplog.records if "--store" in record.getMessage()]) == 1


def test_a_store_that_appears_later_is_followed() -> None:
    server = RedisServer(port=free_port())
    config = RateLimitConfig(strategy="fixed", initial_rps=100.0)
    limiters = [AdaptiveRateLimiter(config, store=server.url) for _ in range(2)]
    members, until = set(), time.monotonic() + 30.0
    try:
        for limiter in limiters:
            limiter.acquire("api.example.com", max_wait=30.0).report(status_code=200)
        server.start()
        while members != {2} and time.monotonic() < until:
            for limiter in limiters:
                limiter.acquire("api.example.com", max_wait=30.0).report(status_code=200)
            members = {sharing.members for one in limiters if (sharing := one.snapshot().sharing) is not None}
        assert members == {2}
    finally:
        for limiter in limiters:
            limiter.close()
        server.__exit__()


@pytest.mark.usefixtures("no_state_folder")
@pytest.mark.parametrize("store", ["machine", NOWHERE])
def test_a_run_learns_as_without_it(
    batch: SimpleNamespace, server: Server, headgate: Callable[..., SimpleNamespace], store: str
) -> None:
    batch.write(ROWS)
    said = headgate("run", batch.rows, "-o", batch.out, "--to", server.url, "--json", "--store", store)
    ended = json.loads(said.out.splitlines()[-1])
    assert (len(server.calls), ended["sharing"]["lost"], ended["sharing"]["processes"]) == (ROWS, True, 1)
    assert ended["elapsed"] < ROWS / 4.0  # it would take twice as long
