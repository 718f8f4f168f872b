"""``headgate status --store`` says which processes share which quota, by name where it is told the name."""

import json
import os

import pytest
from bench.redis_server import RedisServer

from headgate import AdaptiveRateLimiter, CredentialCoordinator, RateLimitConfig
from headgate.cli.ui.shared_state import SharedState
from headgate.cli.ui.store_page import gate_rows
from headgate.distributed.protocol import NO_CAP
from headgate.stores import MemberView, QuotaView

SECRET = "sk-canary-0123456789"


@pytest.fixture(params=["machine", "redis"])
def where(request):
    """A machine that stands still for a moment is no fault of a server's."""
    return "machine" if request.param == "machine" else f"{request.getfixturevalue('redis_server').url}?timeout=5"


@pytest.fixture
def used(where, patient):
    """A store that a program with one key uses right now."""
    shared = SharedState.open(where)
    keys = CredentialCoordinator([SECRET], provider="openai", store=shared.credentials())
    limiter = shared.limiter(RateLimitConfig(initial_rps=100.0), lambda _: keys)
    for status in (200, 200, 429):
        with limiter.permit("openai/gpt-4o/key-1") as permit:
            permit.report(status_code=status, retry_after=30.0 if status == 429 else None)
    with limiter.permit("api.example.com") as permit:
        permit.report(status_code=200)
        yield keys
    limiter.close()


def test_a_line_for_each_key_and_who_uses_it(headgate, where, used):
    page = headgate("status", "--store", where)
    assert (page.code, page.err) == (0, "")
    lines = page.out.splitlines()
    assert lines[0].endswith("2 keys, 1 active process")
    assert lines[2].split()[:3] == ["key", "pace", "state"]
    (held,) = [line for line in lines if "held for" in line]
    assert f"{os.getpid()}@" in held
    assert "leads" in held


def test_a_key_that_is_named_is_shown_by_its_name_and_its_credential(headgate, where, used):
    page = headgate("status", "--store", where, "--key", "openai/gpt-4o", "--key", "https://API.example.com/v1")
    (held,) = [line for line in page.out.splitlines() if "held for" in line]
    assert "openai/gpt-4o key-1" in held
    (other,) = [line for line in page.out.splitlines() if "passing" in line]
    assert "api.example.com" in other


def test_one_json_line_for_programs(headgate, where, used):
    (line,) = headgate("status", "--store", where, "--key", "openai/gpt-4o", "--json").out.splitlines()
    fields = json.loads(line)
    assert sorted(str(key["name"]) for key in fields["keys"]) == ["None", "openai/gpt-4o key-1"]
    (held,) = [key for key in fields["keys"] if key["name"]]
    assert 25.0 < held["hold"] < 40.0  # jitter only adds
    assert held["state"].startswith("held for")
    (member,) = held["members"]
    assert member["process"].startswith(f"{os.getpid()}@")
    assert (member["leads"], member["seen_ago"] < 60.0) == (True, True)
    assert [(one["label"], one["state"]) for one in fields["credentials"]] == [("key-1", "free")]


def test_credentials_that_rest_are_listed(headgate, where, used):
    used.retire("key-1")
    used.flush_store(5.0)
    page = headgate("status", "--store", where)
    assert page.out.splitlines()[-1].split() == ["key-1", "openai", page.out.splitlines()[-1].split()[2], "disabled",
                                                 "disabled", "by", "hand"]  # fmt: skip
    assert SECRET not in page.out


def test_an_empty_store_is_told_and_left_empty(headgate, where, request):
    page = headgate("status", "--store", where)
    assert page.code == 0
    assert page.out.startswith("Nothing is shared in ")
    if where != "machine":
        assert request.getfixturevalue("redis_server").ask(b"DBSIZE") == b":0\r\n"


def test_a_server_that_is_down_is_a_failure_in_words(headgate):
    with RedisServer() as server:
        url = f"redis://ann:hunter2@127.0.0.1:{server.port}"
    page = headgate("status", "--store", url)
    assert page.code == 3
    assert page.err == f"headgate: redis at 127.0.0.1:{server.port}: connection refused.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--store", "none"], "machine, redis://host:6379 or ray"),
        (["--store", "redis://:hunter2@h:x"], "a port must be a number"),
        (["--store", "machine", "out.jsonl"], "give an output or --store"),
        (["--key", "openai"], "--key needs --store"),
    ],
)
def test_what_makes_no_sense_is_told(headgate, words, said):
    page = headgate("status", *words)
    assert page.code == 2
    assert said in page.err
    assert "hunter2" not in page.err


def coordinator(**more):
    usual = {
        "name": "abcdef", "rate": 5.0, "issued": 0.0, "line": 0.0, "hold": 0.0, "cap": NO_CAP, "circuit_open": False,
        "open_for": 0.0, "era": 0, "leader": "", "members": (), "learned_ago": None,
    }  # fmt: skip
    return QuotaView(**(usual | more))


@pytest.mark.parametrize(
    ("more", "cells"),
    [
        ({}, {"state": "idle", "most in flight": "", "learned": "", "pace": "5.0/s"}),
        ({"rate": 1e12}, {"pace": ""}),
        ({"learned_ago": 7200.0, "cap": 16.0}, {"state": "idle", "most in flight": "16", "learned": "2.0 h ago"}),
        ({"circuit_open": True, "open_for": 3.0}, {"state": "circuit open, 3.0 s to go"}),
        ({"circuit_open": True}, {"state": "circuit half open"}),
    ],
)
def test_what_a_call_would_meet(more, cells):
    (row,) = gate_rows(coordinator(**more), "")
    assert {name: row[name] for name in cells} == cells


def test_of_many_members_the_first_are_shown():
    crowd = tuple(
        MemberView(name=f"{number:016x}-{number}@host", seen_ago=0.1, flying=1, hungry=True, leads=False)
        for number in range(64)
    )
    rows = gate_rows(coordinator(members=crowd), "api")
    assert [row["name"] for row in rows] == ["api"] + [""] * 10
    assert (rows[0]["process"], rows[0]["role"], rows[-1]["process"]) == ("0@host", "waits", "... and 54 more")


def test_a_program_that_shares_nothing_is_not_there(headgate, where):
    AdaptiveRateLimiter().acquire("api").release()
    assert headgate("status", "--store", where).out.startswith("Nothing is shared in ")
