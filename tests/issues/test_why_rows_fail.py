"""Why rows fail is told with the server's own words and what to do: at the end, by ``status`` and in a snapshot."""

import asyncio
import json

import pytest

from headgate import BatchConfig, BatchRunner
from headgate.lab.virtual_time import run
from headgate.observe.monitor import RunMonitor

BILLING = "You exceeded your current quota, please check your plan and billing details"
SPENT = "Daily limit of 1500 requests reached for this project"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789abcdef")


def end(said):
    return json.loads(said.out.splitlines()[-1])


def told(headgate, batch, said):
    """The failures in the last line and in ``status``, which agree; and that a person is told the same words."""
    failures = end(said)["failures"]
    assert json.loads(headgate("status", batch.out, "--json").out)["failures"] == failures
    for one in failures[:1]:
        words = one["said"].rstrip(".")
        assert words in end(said)["next"]
        assert words in headgate("status", batch.out).out
    return [(one["state"], one["reason"], one["status"], one["remedy"]) for one in failures]


def test_a_wrong_address(batch, server, headgate):
    server.plan = lambda _: (404, {"error": {"message": "Invalid URL (POST /v1/v1/chat/completions)"}})
    batch.write(20)
    said = batch.run("--json")
    assert said.code == 3
    assert told(headgate, batch, said) == [("dead", "invalid", 404, "check_address")]
    (one,) = end(said)["failures"]
    assert (one["count"], one["example"]) == (20, "row-0")
    assert "Invalid URL (POST /v1/v1/chat/completions)" in one["said"]


def test_rows_that_are_not_valid(batch, server, headgate):
    server.plan = lambda n: (400, {"error": {"message": "no such parameter: n"}}) if n == 2 else (200, {})
    batch.write(5)
    said = batch.run("--json")
    assert told(headgate, batch, said) == [("dead", "invalid", 400, "check_request")]


def test_an_account_that_has_not_paid(batch, server, headgate):
    body = {"error": {"message": BILLING, "type": "insufficient_quota", "code": "insufficient_quota"}}
    server.plan = lambda _: (429, body)
    batch.write(20)
    said = batch.run("--json", "--keys", "env:ONE_KEY")
    assert said.code == 4
    assert told(headgate, batch, said) == [("waiting", "spend", None, "check_account")]
    assert BILLING in end(said)["next"]
    calls = len(server.calls)
    again = batch.run("--json", "--keys", "env:ONE_KEY")
    assert (again.code, len(server.calls)) == (4, calls), "the account rests, nothing is sent"
    assert BILLING in end(again)["next"], "and still it is told why"


def test_a_day_that_is_spent(batch, server, headgate):
    server.plan = lambda _: (429, {"error": {"message": SPENT}}, {"Retry-After": "30000"})
    batch.write(20)
    said = batch.run("--json")
    assert said.code == 4
    assert told(headgate, batch, said) == [("waiting", "rate_limited", None, "wait")]
    assert SPENT in end(said)["next"]
    assert end(said)["come_back_in"] > 20_000


def test_a_known_limit_that_is_spent(batch, server):
    batch.write(20)
    known = ("--limits", "requests=100/s,requests=7/day")
    ended = end(batch.run("--json", *known))
    assert (ended["exit_code"], len(server.calls)) == (4, 7)
    assert (ended["held_by"], ended["come_back_in"] > 20_000) == ("limiter", True)
    assert "7 requests per day" in ended["next"], "the limit is named"


def test_a_store_that_cannot_be_reached_is_named_at_the_end(batch):
    batch.write(3)
    nowhere = "redis://127.0.0.1:1/0"
    ended = end(batch.run("--json", "--store", nowhere))
    assert (ended["exit_code"], ended["sharing"]["lost"]) == (0, True)
    assert "127.0.0.1:1" in ended["sharing"]["where"]
    assert "127.0.0.1:1" in batch.run("--store", nowhere, out=batch.folder / "other.jsonl").out


def test_words_of_a_server_cannot_move_the_cursor_and_have_an_end(batch, server, headgate):
    server.plan = lambda _: (404, {"error": {"message": "\x1b[2Jgone\r" + "x" * 5000 + " sk-one-0123456789abcdef"}})
    batch.write(3)
    said = batch.run("--keys", "env:ONE_KEY")
    page = said.out + said.err + headgate("status", batch.out).out
    assert not {"\x1b", "\r"} & set(page)
    assert "sk-one-0123456789abcdef" not in page
    assert max(map(len, page.splitlines())) < 1000


def test_a_connection_that_is_refused_is_told_while_the_circuit_is_open():
    async def scenario(clock):
        async def ask(item, ctx):
            await asyncio.sleep(0.01)
            raise ConnectionRefusedError("nobody listens on port 9")

        runner = BatchRunner(ask, clock=clock)
        going = asyncio.ensure_future(runner.run(range(100)))
        await asyncio.sleep(5.0)
        lanes, snapshot = runner.lanes(), RunMonitor(job=runner).snapshot()
        runner.stop(now=True)
        await going
        return lanes, snapshot

    (lane,), snapshot = run(scenario)
    assert lane.waits_for == "circuit"
    assert "nobody listens on port 9" in lane.said
    assert [line.said for line in snapshot.waits if line.scope == "batch"] == [lane.said]


def test_dead_rows_of_a_snapshot_come_with_what_to_do():
    class NotFound(Exception):
        status_code = 404

    async def scenario(clock):
        async def ask(item, ctx):
            raise NotFound("no such page")

        runner = BatchRunner(ask, clock=clock)
        await runner.run(range(10))
        return RunMonitor(job=runner).snapshot().dead

    (line,) = run(scenario)
    assert (line.count, line.remedy) == (10, "check_address")


def test_all_rows_to_go_stand_behind_a_blocked_key():
    """Also those that were not read yet, because the window is full."""

    async def scenario(clock):
        async def ask(item, ctx):
            await asyncio.sleep(0.01)
            raise ConnectionRefusedError("nobody listens")

        runner = BatchRunner(ask, clock=clock, config=BatchConfig(window=100))
        going = asyncio.ensure_future(runner.run(range(1000)))
        await asyncio.sleep(5.0)
        snapshot = RunMonitor(job=runner, rows=lambda: 1000).snapshot()
        runner.stop(now=True)
        await going
        return snapshot

    snapshot = run(scenario)
    progress = snapshot.progress
    assert snapshot.blocked == progress.total - progress.done - progress.dead - progress.in_flight
