"""A job puts rows, target, ledger, runner and output together for a program as ``headgate run`` does for a person."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.config import BatchConfig
from headgate.batch.input import Rows
from headgate.batch.job import Job
from headgate.batch.ledger import LedgerError
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.batch.output import OutputWriter
from headgate.batch.target import RowAnswer, TargetConfig
from headgate.engine.supervisor import StopReason
from headgate.errors import ConfigError, OutputError
from headgate.observe.sources.job import JobSource

UNPACED = RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e6)
NOWHERE = TargetConfig(to="http://127.0.0.1:9/v1")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "".join(json.dumps({"custom_id": f"r{n}", "body": {"model": f"m{n % 2}"}}) + "\n" for n in range(50))
    )
    return str(path)


class Server:
    """Answers in place of the target."""

    def __init__(self, takes=0.0, fails=()):
        self.calls: Counter[str] = Counter()
        self.models: Counter[str] = Counter()
        self.takes, self.fails = takes, fails

    def __call__(self, send):
        async def answer(row, ctx):
            self.calls[row.key] += 1
            self.models[ctx.key] += 1
            await asyncio.sleep(self.takes)
            if row.key in self.fails:
                raise ValueError("no")
            return RowAnswer(200, "", b"{}", None)

        return answer


def rows_of(source):
    """They are opened again when they are read."""
    rows = Rows(source)
    rows.close()
    return rows


def job_of(source, output, server, **more):
    more.setdefault("limiter", AdaptiveRateLimiter(UNPACED))
    return Job(rows_of(source), NOWHERE, output=str(output), around=server, **more)


def names(output):
    return Counter(json.loads(line)["custom_id"] for line in output.read_text().splitlines())


ALL = Counter(f"r{n}" for n in range(50))


def test_from_file_to_file(source, tmp_path):
    server, output = Server(), tmp_path / "out.jsonl"
    report = asyncio.run(job_of(source, output, server).run())
    assert (report.complete, report.done, report.rows, report.written) == (True, 50, 50, 50)
    assert names(output) == server.calls == ALL


def test_each_model_has_a_gate_of_its_own(source, tmp_path):
    server = Server()
    asyncio.run(job_of(source, tmp_path / "out.jsonl", server).run())
    assert server.models == {"127.0.0.1:9/m0": 25, "127.0.0.1:9/m1": 25}


def test_stopped_and_gone_on_with(source, tmp_path):
    server, output = Server(takes=0.02), tmp_path / "out.jsonl"

    async def first():
        job = job_of(source, output, server, workers=5)
        running = asyncio.create_task(job.run())
        while len(server.calls) < 10:
            await asyncio.sleep(0.001)
        job.stop(StopReason.CAPS, "for now")
        return await running

    report = asyncio.run(first())
    assert (report.stopped, report.complete) == ("caps: for now", False)
    assert report.done == len(server.calls) == sum(names(output).values()) < 50
    report = asyncio.run(job_of(source, output, server).run())
    assert report.complete
    assert names(output) == server.calls == ALL


def test_cancelled_and_gone_on_with(source, tmp_path):
    server, output = Server(takes=0.05), tmp_path / "out.jsonl"

    async def first():
        running = asyncio.create_task(job_of(source, output, server, workers=5).run())
        while len(server.calls) < 10:
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(first())
    assert asyncio.run(job_of(source, output, server).run()).complete
    assert names(output) == ALL
    assert server.calls.total() <= 55


def test_two_jobs_share_the_rows_and_both_end_when_all_is_done(source, tmp_path):
    server, output = Server(takes=0.01), tmp_path / "out.jsonl"

    async def both():
        jobs = [job_of(source, output, server, workers=3, config=BatchConfig(window=5)) for _ in range(2)]
        return await asyncio.gather(*(job.run() for job in jobs))

    reports = asyncio.run(both())
    assert [report.complete for report in reports] == [True, True]
    assert sum(report.run.calls for report in reports) == 50
    assert names(output) == server.calls == ALL


def test_rows_that_a_dead_process_has_left_are_fetched(source, tmp_path):
    """Another holds the first rows when we come to them, and dies before we end."""
    server, output = Server(takes=0.005), tmp_path / "out.jsonl"

    async def main():
        job = job_of(source, output, server, workers=2)
        other = SqliteLedger(f"{output}.ledger")
        await other.begin(job.identity)
        rows = list(rows_of(source))[:5]
        await other.claim(rows)
        running = asyncio.create_task(job.run())
        while len(server.calls) < 45:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        assert not running.done()
        await other.close()
        return await running

    assert asyncio.run(main()).complete
    assert names(output) == server.calls == ALL


def test_dead_rows_are_in_the_output_too(source, tmp_path):
    output = tmp_path / "out.jsonl"
    report = asyncio.run(job_of(source, output, Server(fails={"r7"})).run())
    assert (report.complete, report.done, report.dead) == (True, 49, 1)
    assert names(output) == ALL


def test_the_dead_of_earlier_runs_have_their_reasons_too(source, tmp_path):
    output = tmp_path / "out.jsonl"

    async def first():
        server = Server(takes=0.02, fails={"r0", "r1"})
        job = job_of(source, output, server, workers=5)
        running = asyncio.create_task(job.run())
        while not server.calls.keys() >= server.fails:
            await asyncio.sleep(0.001)
        job.stop()
        return job, await running

    before, report = asyncio.run(first())
    assert (report.dead, report.complete) == (2, False)
    (death,) = before.deaths()
    assert (str(death.reason), death.count, death.example in ("r0", "r1")) == ("invalid: ValueError: no", 2, True)
    job = job_of(source, output, Server(fails=ALL))
    dead = asyncio.run(job.run()).dead
    (line,) = JobSource(job).dead()
    assert (line.reason, line.count, line.example in ("r0", "r1")) == ("invalid: ValueError: no", dead, True)


def test_the_dead_of_other_processes_are_counted_by_category(source, tmp_path):
    job = job_of(source, tmp_path / "out.jsonl", Server(fails={"r7"}))
    asyncio.run(job.run())
    job.report.counts = replace(job.report.counts, reasons={"invalid": 3})
    lines = JobSource(job).dead()
    assert [(one.reason, one.count) for one in lines] == [("invalid: ValueError: no", 1), ("invalid", 2)]


def test_a_foreign_output_is_refused_before_anything_is_sent(source, tmp_path):
    server, output = Server(), tmp_path / "out.jsonl"
    output.write_text("mine\n")
    with pytest.raises(OutputError, match="was not written by this run"):
        asyncio.run(job_of(source, output, server).run())
    assert not server.calls


def test_another_target_is_refused(source, tmp_path):
    output = tmp_path / "out.jsonl"
    asyncio.run(job_of(source, output, Server()).run())
    job = Job(rows_of(source), TargetConfig(to="http://127.0.0.1:10/v1"), output=str(output))
    with pytest.raises(LedgerError, match="the target was"):
        asyncio.run(job.run())


def test_what_can_never_be_is_said_when_it_is_made(source, tmp_path):
    with pytest.raises(ConfigError, match="target"):
        Job(rows_of(source), TargetConfig(to="nowhere"), output=str(tmp_path / "o"))


class TestScribe:
    """The output role goes from hand to hand."""

    def test_one_writes_at_a_time_and_the_next_goes_on(self, tmp_path):
        path = tmp_path / "out"

        async def main():
            ledgers = [SqliteLedger(tmp_path / "l.ledger") for _ in range(2)]
            for ledger in ledgers:
                await ledger.begin({})
            first, second = (OutputWriter(ledger, str(path), None) for ledger in ledgers)
            assert await first.take_role()
            assert not await second.take_role()
            first.close()
            await ledgers[0].close()
            assert await second.take_role()
            second.close()
            await ledgers[1].close()

        asyncio.run(main())
        assert path.exists()
