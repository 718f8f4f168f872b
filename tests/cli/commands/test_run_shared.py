"""Runs that use the same key of the same API share its limit by themselves."""

import json
import re
import time
from types import SimpleNamespace

import pytest

ROWS = 40
LIMIT, TAKES = 40, 50
"""Calls in any second that runs are told of, and that the server really takes: on their way calls come closer."""


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setenv("FIRST", "sk-mock-do-not-show-0123456789")
    monkeypatch.setenv("SAME", "sk-mock-do-not-show-0123456789")


@pytest.fixture
def server(mock_api):
    """An API that refuses more calls in any second than it takes, and announces no limit."""
    api = mock_api(rate=f"{TAKES}/s", algorithm="log", latency=0.005)
    return SimpleNamespace(url=f"{api.url}/v1", truth=api.truth)


def write(path, rows):
    path.write_text("".join(json.dumps({"model": "m", "input": number}) + "\n" for number in range(rows)))


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    write(path, ROWS)
    return path


@pytest.fixture
def run(headgate_process, server, rows, tmp_path):
    """Start a run, with the key in that variable; all of them know the limit, and not of each other."""

    def start(name, *more):
        return headgate_process(
            "run", rows, "-o", tmp_path / f"{name}.jsonl", "--to", server.url, "--path", "/v1/things",
            "--keys", f"env:{name}", "--limits", f"requests={LIMIT}/s", "--json", *more,
        )  # fmt: skip

    return start


def ends(*runs):
    """What each has said, line by line."""
    said = [process.communicate(timeout=60) for process in runs]
    assert [process.returncode for process in runs] == [0] * len(runs), said
    return [[json.loads(line) for line in out.splitlines()] for out, _ in said]


def refused(server):
    return server.truth()["rate_limited"]


def test_two_processes_stay_within_one_limit_whatever_they_call_the_key(run, server):
    ends(run("FIRST"), run("SAME"))
    assert (server.truth()["answered"], refused(server)) == (2 * ROWS, 0)


@pytest.mark.chaos  # the same by another store, whose sharing is tested without the command line
def test_so_do_two_that_share_a_server(run, server, redis_server):
    store = ("--store", redis_server.url)
    ends(run("FIRST", *store), run("SAME", *store))
    assert (server.truth()["answered"], refused(server)) == (2 * ROWS, 0)


def test_two_that_share_nothing_do_not(run, server, rows):
    write(rows, 100 * ROWS)  # they are cut off at the first refusal, however far apart they begin
    runs = [run(name, "--store", "none") for name in ("FIRST", "SAME")]
    while not refused(server) and any(process.poll() is None for process in runs):
        time.sleep(0.05)
    assert refused(server) > 0


class TestSaying:
    def test_what_is_shared_and_that_the_store_is_lost(self):
        from headgate.cli.ui.display import sharing_text
        from headgate.limiter.snapshot import SharingSnapshot

        def said(**more):
            usual = {"where": "redis at h:1", "members": 1, "is_lost": False, "failures": 0}
            return sharing_text(SharingSnapshot(**(usual | more)))

        assert (sharing_text(None), said()) == ("", "")
        assert said(members=2) == "redis at h:1, shared by 2 processes"
        assert said(members=4) == "redis at h:1, shared by 4 processes"
        assert "continuing without it" in said(is_lost=True)
        assert "own share" in said(is_lost=True, members=2)

    def test_a_store_that_is_down_stops_no_run(self, headgate, rows, tmp_path, server, own_port):
        rows.write_text('{"model": "m"}\n')
        done = headgate(
            "run", rows, "-o", tmp_path / "out.jsonl", "--to", server.url, "--path", "/v1/things", "--json",
            "--store", f"redis://127.0.0.1:{own_port}",
        )  # fmt: skip
        assert done.code == 0, done.err
        assert json.loads(done.out.splitlines()[-1])["done"] == 1

    def test_a_password_in_the_address_is_shown_nowhere(self, headgate, rows, tmp_path, server):
        out = tmp_path / "out.jsonl"
        done = headgate("run", rows, "-o", out, "--to", server.url, "--store", "redis://ann:hunter2@h:port")
        assert done.code == 2
        assert "hunter2" not in done.out + done.err

    @pytest.mark.parametrize("where", ["nonsense", "hunter2://x", "memory2"])
    def test_a_store_that_is_none_is_told(self, headgate, rows, tmp_path, server, where):
        done = headgate("run", rows, "-o", tmp_path / "out.jsonl", "--to", server.url, "--store", where)
        assert done.code == 2
        assert "'machine'" in done.err

    def test_a_configuration_file_and_the_environment_may_say_it(self, headgate, rows, tmp_path, server, monkeypatch):
        rows.write_text('{"model": "m"}\n')
        (tmp_path / "run.toml").write_text('store = "nonsense"\n')
        words = ("run", rows, "-o", tmp_path / "out.jsonl", "--to", server.url)
        assert "is unknown" in headgate(*words, "--config", tmp_path / "run.toml").err
        monkeypatch.setenv("HEADGATE_STORE", "nonsense")
        assert "is unknown" in headgate(*words).err
        assert headgate(*words, "--store", "none", "--path", "/v1/things").code == 0


@pytest.fixture
def own_port():
    """One on which nobody listens."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_what_was_typed_is_shown_without_a_login():
    from headgate.cli.ui.shared_state import hide_login

    assert hide_login("redis://ann:p@ss@host:1/0") == "redis://***@host:1/0"
    assert hide_login("redis://host:1/0") == "redis://host:1/0"
    assert hide_login("rows@home.jsonl") == "rows@home.jsonl"
    assert not re.search("ann|p@ss", hide_login("rediss+sentinel://ann:p@ss@a:1,b:2/main"))
