"""Rows on their way into a job: names that are used twice, lines that were put right, one deadline for all of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.config import BatchConfig
from headgate.batch.input import Rows, Template
from headgate.batch.input import rows as reading_module
from headgate.batch.job import Job
from headgate.batch.ledger import LedgerError
from headgate.batch.ledger.repair import reopen
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.batch.ledger.verify import LedgerVerifier
from headgate.batch.target import RowAnswer, TargetConfig

UNPACED = RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e6)
NOWHERE = TargetConfig(to="http://127.0.0.1:9/v1")


def line(name, content="x"):
    return json.dumps({"custom_id": name, "body": {"model": "m", "input": content}}) + "\n"


class Server:
    """Answers in place of the target; refuses what is called ``bad``."""

    def __init__(self, takes=0.0):
        self.calls: Counter[str] = Counter()
        self.takes = takes

    def __call__(self, send):
        async def answer(row, ctx):
            self.calls[row.key] += 1
            await asyncio.sleep(self.takes)
            if b"bad" in row.raw:
                raise ValueError("no")
            return RowAnswer(200, "", b"{}", None)

        return answer


@pytest.fixture
def workspace(tmp_path):
    """A job on ``rows.jsonl``: ``workspace.run()`` gives its report, ``workspace.names()`` the output's."""

    class LedgerTransaction:
        source, output, server = tmp_path / "rows.jsonl", tmp_path / "out.jsonl", Server()

        def job(self, *, source=None, template=None, server=None, on_broken="dead", **more):
            rows = Rows(str(source or self.source), template=template, on_broken=on_broken)
            more.setdefault("limiter", AdaptiveRateLimiter(UNPACED))
            return Job(rows, NOWHERE, output=str(self.output), around=server or self.server, source="it", **more)

        def run(self, **more):
            job = self.job(**more)
            report = asyncio.run(job.run())
            job.rows.close()
            return report

        def lines(self):
            return [json.loads(text) for text in self.output.read_text().splitlines()]

        def names(self):
            return Counter(one["custom_id"] for one in self.lines())

        def error_of(self, name):
            return next(one["error"]["message"] for one in self.lines() if one["custom_id"] == name)

        def holds(self):
            with LedgerVerifier(f"{self.output}.ledger") as verifier:
                verifier.check_itself()
                return verifier.result.findings

    return LedgerTransaction()


class TestDuplicateNames:
    def test_the_second_is_dead_and_both_lines_are_named(self, workspace):
        workspace.source.write_text(line("a") + "\n" + line("b") + line("a", "other") + line("c"))
        report = workspace.run()
        assert (report.done, report.dead) == (3, 1)
        assert workspace.server.calls == Counter("abc")
        assert workspace.names() == Counter(["a", "b", "c", "broken-line-4"])
        assert workspace.error_of("broken-line-4").endswith(
            "line 4: custom_id 'a' is already used by line 1; each row needs its own"
        )
        assert workspace.holds() == []

    def test_or_it_stops_the_run(self, workspace):
        workspace.source.write_text(line("a") + line("b") + line("a", "other") + line("c"))
        report = workspace.run(on_broken="stop")
        assert report.stopped.startswith("broken: ")
        assert "line 3: custom_id 'a' is already used by line 1" in report.stopped
        workspace.source.write_text(line("a") + line("b") + line("A", "other") + line("c"))
        assert workspace.run(on_broken="stop").complete
        assert workspace.server.calls == Counter("abAc")

    @pytest.mark.parametrize("between", [1, 255, 256, 1000])
    def test_however_far_apart_they_are(self, workspace, between):
        names = ["same", *(f"r{number}" for number in range(between)), "same", "same"]
        workspace.source.write_text("".join(map(line, names)))
        report = workspace.run()
        assert (report.done, report.dead) == (between + 1, 2)
        assert workspace.server.calls["same"] == 1

    def test_one_that_an_earlier_run_has_done_counts(self, workspace):
        workspace.source.write_text(line("a") + line("b"))
        assert workspace.run().complete
        with workspace.source.open("a") as file:
            file.write(line("b", "again"))
        assert workspace.run().dead == 1
        assert workspace.server.calls == Counter("ab")

    def test_a_broken_lines_made_up_name_takes_no_other_rows(self, workspace):
        workspace.source.write_text("{broken\n" + line("row-1") + line("broken-line-4") + "{broken too\n")
        report = workspace.run()
        assert (report.done, report.dead) == (2, 2)

    def test_names_in_a_column_and_records_of_several_lines(self, workspace, tmp_path):
        source = tmp_path / "people.csv"
        source.write_text('custom_id,name\n1,"A\nB"\n2,C\n1,D\n')
        report = workspace.run(source=source, template=Template('{"model": "m", "input": "{name}"}'))
        assert (report.done, report.dead) == (2, 1)
        assert "line 5: custom_id '1' is already used by line 2" in workspace.error_of("broken-line-5")

    def test_rows_without_names_may_be_alike(self, workspace):
        workspace.source.write_text('{"model": "m"}\n' * 5)
        assert workspace.run().done == 5

    def test_where_lines_are_not_remembered_the_row_is_named(self, workspace, monkeypatch):
        monkeypatch.setattr(reading_module, "MOST_MARKS", 2)
        workspace.source.write_text("\n".join([line("a"), line("b"), "", line("c"), "", "", line("a")]))
        workspace.run()
        assert workspace.names().keys() >= {"a", "b", "c"}
        assert "custom_id 'a' is already used by row 1" in next(
            one["error"]["message"] for one in workspace.lines() if one["error"]
        )

    def test_two_processes_agree_on_which_is_the_first(self, workspace):
        workspace.source.write_text("".join(line(f"r{number % 300}") for number in range(600)))

        async def both():
            jobs = [workspace.job(server=Server(takes=0.001)) for _ in range(2)]
            return await asyncio.gather(*(job.run() for job in jobs))

        reports = asyncio.run(both())
        assert [(report.done, report.dead) for report in reports] == [(300, 300)] * 2
        assert workspace.names().keys() >= {f"r{number}" for number in range(300)}
        assert max(workspace.names().values()) == 1


class TestPutRight:
    def test_a_dead_row_that_was_put_right_is_sent_as_it_is_now(self, workspace):
        workspace.source.write_text(line("a") + line("b", "bad") + "{broken\n")
        assert (workspace.run().done, workspace.run().dead) == (1, 2)
        assert reopen(f"{workspace.output}.ledger") == 2
        workspace.source.write_text(line("a") + line("b", "good") + line("c"))
        report = workspace.run()
        assert (report.complete, report.done, report.dead) == (True, 3, 0)
        assert workspace.names() == Counter("abc")
        assert workspace.holds() == []

    def test_its_new_name_must_be_its_own(self, workspace):
        workspace.source.write_text(line("a") + line("b", "bad"))
        workspace.run()
        reopen(f"{workspace.output}.ledger")
        workspace.source.write_text(line("a") + line("a", "good"))
        assert workspace.run().dead == 1
        assert workspace.server.calls["a"] == 1

    def test_and_its_old_name_is_free(self, workspace):
        workspace.source.write_text(line("a", "bad") + line("b"))
        workspace.run()
        reopen(f"{workspace.output}.ledger")
        workspace.source.write_text(line("c") + line("b") + line("a"))
        assert workspace.run().done == 3

    def test_once_it_is_done_it_may_change_no_more(self, workspace):
        workspace.source.write_text(line("a", "bad"))
        workspace.run()
        reopen(f"{workspace.output}.ledger")
        workspace.source.write_text(line("a", "good"))
        workspace.run()
        workspace.source.write_text(line("a", "better"))
        with pytest.raises(LedgerError, match="has changed since it was first read"):
            workspace.run()

    def test_other_rows_may_not_change_beside_it(self, workspace):
        workspace.source.write_text(line("a") + line("b", "bad"))
        workspace.run()
        reopen(f"{workspace.output}.ledger")
        workspace.source.write_text(line("a", "changed") + line("b", "good"))
        with pytest.raises(LedgerError, match=r"row 1 of the input \('a'\) has changed"):
            workspace.run()

    def test_without_retry_it_is_said_what_to_do(self, workspace):
        workspace.source.write_text(line("a") + line("b", "bad"))
        workspace.run()
        workspace.source.write_text(line("a") + line("b", "good"))
        with pytest.raises(LedgerError, match=r"row 2 .* has failed, .* reopen failed rows with headgate retry"):
            workspace.run()


def test_one_deadline_is_for_the_whole_job_though_rows_of_others_are_fetched_late(workspace):
    """Another process holds a row, and leaves it when most of the time is over. A standstill is allowed for."""
    workspace.source.write_text(line("a") + line("b"))

    async def main():
        other = SqliteLedger(f"{workspace.output}.ledger")
        job = workspace.job(server=Server(takes=60.0), config=BatchConfig(deadline=4.0))
        await other.begin(job.identity)
        with Rows(str(workspace.source)) as rows:
            await other.claim(list(rows))
        began_at = time.monotonic()
        running = asyncio.create_task(job.run())
        await asyncio.sleep(3.0)
        await other.close()
        report = await running
        return report, time.monotonic() - began_at

    report, took = asyncio.run(main())
    assert report.stopped == "deadline: after 4.0 s"
    assert took < 6.8, "no second one begins"
