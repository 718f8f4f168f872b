"""Files written by an earlier version still open, and say what they said; ``make_files.py`` wrote them.

The machine's store knows of 7 calls of 10 a day; the credentials are one retired and one that rests for an hour.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from headgate import (
    AdaptiveRateLimiter,
    Credential,
    CredentialCoordinator,
    FileStore,
    RateLimitConfig,
    SystemClock,
    VirtualClock,
    WaitTooLongError,
)
from headgate.cli import execute
from headgate.distributed.backends.sqlite import SqliteStore
from headgate.lab.traces.reader import read_trace

FILES = Path(__file__).with_name("files")


class Then(SystemClock):
    """A clock that runs, and whose wall says that the files were written a minute before the test began."""

    def __init__(self) -> None:
        self._offset = written_at() + 60.0 - self.now()

    def wall(self) -> float:
        return self.now() + self._offset


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A copy of the files, in the state folder."""
    folder = tmp_path / "state"
    shutil.copytree(FILES, folder)
    for file in folder.iterdir():
        file.chmod(0o600)
    folder.chmod(0o700)
    monkeypatch.setenv("HEADGATE_STATE", str(folder))
    return folder


def written_at():
    return json.loads((FILES / "written.json").read_text())["at"]


def test_what_was_spent_of_a_shared_limit_is_still_known(state):
    config = RateLimitConfig(limits={"requests": "10/day"})
    store = SqliteStore(state / "shared.db", clock=Then())
    with closing(AdaptiveRateLimiter(config, store=store)) as limiter:
        taken = 0
        with pytest.raises(WaitTooLongError) as caught:
            while True:
                with limiter.permit("api.example.com", max_wait=10.0) as permit:
                    permit.report(status_code=200, latency=0.05)
                taken += 1
    assert 1 <= taken <= 3, "one that was lent ahead counts as spent"
    assert caught.value.retry_after > 3600.0


@pytest.mark.parametrize("name", ["keys.db", "keys.json"])
def test_a_retired_and_a_resting_credential_stay_so(state, name):
    clock = VirtualClock(wall=written_at() + 60.0)
    keys = CredentialCoordinator(
        [Credential("alpha", "a-secret-1"), Credential("beta", "b-secret-2")],
        provider="search",
        store=FileStore(state / name),
        clock=clock,
    )
    assert [one.state for one in keys.states()] == ["retired", "resting"]
    assert keys.back_in("beta") == pytest.approx(3540.0, abs=5.0)


def test_a_recorded_run_can_be_asked(state, capsys):
    assert len(read_trace(state / "trace.jsonl").calls) == 113
    assert execute(["simulate", "--trace", str(state / "trace.jsonl"), "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["done"], first["sent"], first["refused"]) == (100, 113, 3)
