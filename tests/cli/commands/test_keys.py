"""``headgate keys``: the list, an operator's words, and that no key is ever taken from or shown on the command line."""

from __future__ import annotations

import json
import os

import pytest

from headgate.credentials import Credential, CredentialCoordinator, FileStore
from headgate.credentials.redis_store import RedisCredentialStore
from headgate.credentials.store_sync import CHECK_EVERY
from headgate.errors import RateLimitError
from headgate.lab.virtual_time import VirtualClock


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def used():
    """A program has used three keys: one rests, one is disabled."""
    given = [Credential("alice", "sk-canary-1", "org"), Credential("bob", "sk-canary-2"), Credential("carol", "☂")]
    keys = CredentialCoordinator(given, provider="search", store=FileStore())
    with pytest.raises(RateLimitError), keys.lease():
        raise RateLimitError("search", "slow down", retry_after=900)
    keys.retire("carol")
    return keys


def rows(result):
    return {row["label"]: row for row in map(json.loads, result.out.splitlines())}


def test_nothing_is_known_at_first_and_the_next_step_is_said(headgate):
    result = headgate("keys")
    assert result.code == 0
    assert "No credentials in" in result.out
    assert "headgate keys --from env:" in result.out


def test_the_list_shows_labels_states_resets_and_why(headgate, used):
    result = headgate("keys")
    assert result.code == 0
    header, *lines = (line.split() for line in result.out.splitlines())
    assert header == ["label", "provider", "id", "group", "state", "back", "in", "at", "why"]
    assert [(line[0], line[1], line[2]) for line in lines] == [
        (one.label, "search", one.shown) for one in used.states()
    ]
    assert "resting" in lines[0]
    assert "15" in lines[0]
    assert "free" in lines[1]
    assert lines[2][3:] == ["disabled", "disabled", "by", "hand"]


def test_programs_get_one_json_line_each(headgate, used):
    found = rows(headgate("keys", "--json"))
    assert {label: row["state"] for label, row in found.items()} == {
        "alice": "resting",
        "bob": "free",
        "carol": "retired",
    }
    assert 890 < found["alice"]["back_in"] <= 900
    assert (found["alice"]["group"], found["alice"]["reason"]) == ("org", "rate_limited")
    assert found["bob"]["back_in"] is None


def test_no_key_is_in_any_output(headgate, used, monkeypatch):
    monkeypatch.setenv("MINE", "sk-canary-1,☂")
    for arguments in (
        ["keys"],
        ["keys", "--json"],
        ["keys", "--from", "env:MINE"],
        ["keys", "park", "bob", "--for", "1m"],
        ["keys", "free", "carol"],
    ):
        result = headgate(*arguments)
        assert result.code == 0, result.err
        assert "canary" not in result.out + result.err
        assert "☂" not in result.out + result.err


def test_keys_of_a_source_are_recognised(headgate, used, monkeypatch):
    monkeypatch.setenv("MINE", "sk-canary-1")
    monkeypatch.setenv("MINE_1", "sk-never-used")
    found = rows(headgate("keys", "--from", "env:MINE", "--json"))
    assert {label: row["state"] for label, row in found.items()} == {"alice": "resting", "MINE_1": "free"}


def test_a_key_file_that_others_can_read_gets_a_warning(headgate, tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text("alice=sk-canary-1\n")
    path.chmod(0o644)
    result = headgate("keys", "--from", f"file:{path}")
    assert result.code == 0
    assert result.err.startswith("headgate: ")
    assert "can be read by other users" in result.err
    assert "canary" not in result.out + result.err


def test_park_free_and_retire_reach_a_program_that_runs(headgate):
    clock = VirtualClock(wall=__import__("time").time())
    keys = CredentialCoordinator(["sk-1"], clock=clock, store=FileStore())

    def then():
        clock.advance(CHECK_EVERY)
        return keys.states()[0].state

    said = headgate("keys", "park", "key-1", "--for", "10m")
    assert said.code == 0
    assert "key-1" in said.out
    assert "is resting until" in said.out
    assert then() == "resting"
    assert headgate("keys", "free", "key-1").out.split(" ", 2)[2].startswith("is enabled.")
    assert then() == "free"
    assert "is disabled." in headgate("keys", "retire", "key-1").out
    assert then() == "retired"
    assert headgate("keys", "free", "key-1", "--json").code == 0
    assert then() == "free"


def test_a_key_that_no_program_has_used_yet_can_be_parked(headgate, monkeypatch):
    monkeypatch.setenv("MINE", "sk-1")
    assert headgate("keys", "park", "MINE", "--for", "1h", "--from", "env:MINE").code == 0
    keys = CredentialCoordinator(["sk-1"], store=FileStore())
    assert keys.get_credential() is None


def test_parking_shortens_nothing(headgate, used):
    headgate("keys", "park", "alice", "--for", "1s")
    assert rows(headgate("keys", "--json"))["alice"]["back_in"] > 800


def test_one_label_of_two_providers_needs_the_provider(headgate):
    for provider in ("one", "two"):
        CredentialCoordinator([f"sk-{provider}"], provider=provider, store=FileStore())
    result = headgate("keys", "retire", "key-1")
    assert result.code == 2
    assert "one/key-1, two/key-1" in result.err
    assert headgate("keys", "retire", "two/key-1").code == 0
    states = [json.loads(line)["state"] for line in headgate("keys", "--json").out.splitlines()]
    assert states == ["free", "retired"]


@pytest.mark.parametrize(
    "words",
    [
        ["sk-canary-9"],
        ["park", "sk-canary-9", "--for", "1m"],
        ["park", "key-1"],
        ["park", "--for", "1m"],
        ["free", "key-1", "--for", "1m"],
        ["free", "a", "sk-canary-9"],
        ["--for", "1m"],
        ["--from", "sk-canary-9"],
        ["--key=sk-canary-9"],
        ["--from", "env:NOT_SET_ANYWHERE"],
        ["park", "key-1", "--for", "long"],
        ["park", "key-1", "--for", "sk-canary-9"],
    ],
)
def test_what_is_not_understood_is_said_without_repeating_it(headgate, used, words):
    result = headgate("keys", *words)
    assert result.code == 2
    assert result.out == ""
    assert "canary" not in result.err
    assert 'See "headgate keys --help"' in result.err


def test_a_file_that_cannot_be_used_is_named(headgate, tmp_path):
    (tmp_path / "broken.json").write_text("{")
    result = headgate("keys", "--state", tmp_path / "broken.json")
    assert result.code == 3
    assert "broken.json cannot be used" in result.err


def test_a_chosen_file_is_used(headgate, tmp_path):
    CredentialCoordinator(["sk-1"], store=FileStore(tmp_path / "mine.json"))
    assert "key-1" in headgate("keys", "--state", tmp_path / "mine.json").out


def test_a_pipe_gets_no_colours_and_whole_lines(headgate_process, used):
    long = Credential("a" * 64, "sk-long", "g" * 64)
    CredentialCoordinator([long], provider="p" * 40, store=FileStore())
    process = headgate_process("keys", env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "60"})
    out, _ = process.communicate(timeout=60)
    assert "\x1b" not in out
    assert len(out.splitlines()) == 5


def test_labels_are_shown_as_they_are(headgate):
    CredentialCoordinator([Credential("[bold]x[/bold]", "sk-1")], store=FileStore())
    assert "[bold]x[/bold]" in headgate("keys").out


def test_a_pause_may_be_told_in_days(headgate, used):
    assert headgate("keys", "park", "alice", "--for", "30d").code == 0
    assert 30 * 86400 - 60 < rows(headgate("keys", "--json"))["alice"]["back_in"] <= 30 * 86400


@pytest.mark.usefixtures("patient")
def test_keys_on_a_server_are_parked_for_all_machines(headgate, redis_server, monkeypatch):
    url = f"{redis_server.url}?timeout=5"  # a machine that stands still is no fault of the server's
    store = RedisCredentialStore(url)
    keys = CredentialCoordinator([Credential("prod", "sk-canary-1")], provider="search", store=store)
    assert headgate("keys", "--state", url).out.splitlines()[1].split()[:2] == ["prod", "search"]
    monkeypatch.setenv("KEY", "sk-canary-1")
    parked = headgate("keys", "park", "prod", "--for", "10m", "--from", "env:KEY", "--state", url)
    assert (parked.code, "prod [" in parked.out, "is resting until" in parked.out) == (0, True, True)
    keys.check_store(5.0)
    assert keys.states()[0].reason == "parked by hand"
    assert "canary" not in parked.out
    store.close()


def test_a_server_that_is_down_is_told_without_its_password(headgate, redis_server):
    said = headgate("keys", "--state", "redis://ann:hunter2@127.0.0.1:1")
    assert said.code == 3
    assert "redis at 127.0.0.1:1: connection refused" in said.err
    assert "hunter2" not in said.err
