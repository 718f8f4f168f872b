"""A batch from file to file: rows, target, ledger, runner and output put together, as ``headgate run`` does.

    with Rows("rows.jsonl") as rows:
        job = Job(rows, TargetConfig(to="openai"), output="answers.jsonl", credentials=[...])
        report = await job.run()

    input ─> rows ─> runner ─> target ─> ledger ─> output

The same job started again goes on where it stopped, and several processes may run it at once. Nothing is sent
before ledger and output have been opened. A row that is broken is buried before it takes a permit, or stops the run
before it is written down (``on_broken``), so that its line may be put right.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from ..core.words import span
from ..credentials import Credential, CredentialCoordinator
from ..errors import Failed
from ..limiter import AdaptiveRateLimiter
from .attempt import ItemContext
from .collecting import seldom as collecting_seldom
from .config import BatchConfig
from .formats import InputRow, OutputError, Rows
from .formats.writing import STDOUT
from .intake import Items
from .job_report import JobReport, added_up
from .job_rows import CheckedLedger, RowJudge, RowsOfFile, rows_of_pipe
from .output import Scribe
from .prices import Prices
from .report import BatchReport, Death, Deaths
from .runner import BatchRunner
from .sqlite_file import SUFFIX
from .sqlite_reading import Holder, look
from .standing import LaneStanding
from .steps import chosen_end
from .target import Target, TargetConfig
from .watch import Silence

LOOK_EVERY = 1.0
"""Seconds between two looks at rows that other processes have."""
MOST_LEFT_BEHIND = 1_000
LONGEST_WRITER_WAIT = 60.0
"""Seconds to wait for another process to write our last rows into the output."""
COMMAND = "command"
"""The ledger's note of what was typed, for ``headgate retry`` to repeat."""
RUN_ID = "run_id"
"""The ledger's note of what makes every row's Idempotency-Key, in all runs that go on with it."""

Send = Callable[[InputRow, ItemContext], Awaitable[bytes]]


class Job:
    def __init__(
        self,
        rows: Rows,
        to: TargetConfig,
        *,
        output: str,
        ledger: str | None = None,
        credentials: CredentialCoordinator | Iterable[str | Credential] | None = None,
        limiter: AdaptiveRateLimiter | None = None,
        workers: int | str = "auto",
        config: BatchConfig | None = None,
        prices: Prices | None = None,
        source: str = "",
        command: str = "",
        around: Callable[[Send], Send] | None = None,
    ) -> None:
        """``output`` may be "-"; ``ledger`` is then needed. ``source`` names the input in the ledger, ``command`` what
        was typed. ``around`` wraps what sends a row, for whoever wants to see each call. Raises ``ConfigError``."""
        if os.path.isdir(output):
            raise OutputError(f"{output}: cannot be written (it is a folder)")
        self.rows, self.output, self.command = rows, output, command
        self.config = BatchConfig() if config is None else config
        self.prices = prices or Prices()
        self.target = Target(to, prices=self.prices)
        self.judge = RowJudge(
            self.target, prices=self.prices, has_cap=self.config.max_cost is not None, counts=self._counts_tokens
        )
        self.book = CheckedLedger(ledger or output + SUFFIX, self)
        self.runner = BatchRunner(
            self._send,
            workers=workers,
            ledger=self.book,
            limiter=limiter,
            credentials=credentials,
            config=replace(self.config, deadline=None),  # it is for the job, however often its input is gone through
            key=self.judge.key,
            cost=self.judge.cost,
            row_of=Target.row,
            encode=Target.line,
            identity=self._identity(source),
        )
        self.silence = Silence(self.config, to.timeout, self.runner.clock)
        self.report = JobReport()
        self._added: BatchReport | None = None
        """The runner's report that is in it already."""
        self.cut_off = ""
        """Why the input ends where it does, if that is not its end."""
        self.began = False
        """Whether ledger and output are open, and rows may be sent."""
        self.waits_for: list[Holder] = []
        """The processes that have all rows that are left; empty while this one has work of its own."""
        self._around = around
        self._sending: Send = self.target
        self._scribe = Scribe(self.book, output, chosen_end())

    # ------------------------------------------------------------------ running

    async def run(self) -> JobReport:
        """Work until every row is final or something stops it; ``report.stopped`` says what. What cannot even begin
        raises ``LedgerError``, ``OutputError`` or ``InputError``. Cancelling it stops at once; nothing is lost."""
        report, begun = self.report, False
        if (deadline := self.config.deadline) is not None:
            over = f"deadline: {span(deadline)} are over"
            timer = asyncio.get_running_loop().call_later(deadline, lambda: self.stop(over, now=True))
        try:
            report.counts = await self.book.begin(self.runner.identity)
            report.before = report.done + report.dead
            await self._scribe.take()
            config = self.target.config
            run_id = await self.book.settle(RUN_ID, secrets.token_hex(16))
            self.target = Target(config, prices=self.prices, run_id=run_id)
            await self.book.note(COMMAND, self.command)
            self.began = begun = True
            writing = asyncio.create_task(self._write())
            watching = asyncio.create_task(self._watch())
            try:
                with collecting_seldom():
                    async with self.target as target:
                        self._sending = target if self._around is None else self._around(target)
                        await self._work()
            finally:
                watching.cancel()
                self._scribe.end()
                await asyncio.gather(watching, return_exceptions=True)
                await asyncio.wait([writing])
                failure = writing.exception()
            if failure is not None:
                raise failure
            report.counts = await self.book.counts()
            report.failures = await self.book.failures()
            report.written = await self._written()
        finally:
            if deadline is not None:
                timer.cancel()
            self.began = False
            self._scribe.close()
            await self.book.close(unused=not begun)
        return report

    def stop(self, reason: str = "stopped", *, now: bool = False) -> None:
        """Start nothing any more and finish what is under way, or give that back too (``now``)."""
        if not self.report.stopped:
            self.report.stopped = reason
        self.runner.stop(now=now)

    def lanes(self) -> list[LaneStanding]:
        return self.runner.lanes()

    def deaths(self) -> list[Death]:
        """Why rows have died in this process so far. Safe for threads."""
        now, all_ = self.runner.report, Deaths()
        all_.take(self.report.run.deaths.all())
        if now is not self._added:
            all_.take(now.deaths.all())
        return all_.all()

    async def _work(self) -> None:
        report = self.report
        while not report.stopped:
            self.waits_for = []
            items = self._items()
            try:
                run = await self.runner.run(items)
            finally:
                if isinstance(items, RowsOfFile):
                    items.close()
                report.run, self._added = added_up(report.run, self.runner.report), self.runner.report
            report.stopped = report.stopped or run.stopped or self.cut_off
            if report.stopped:
                return
            report.rows = run.seen
            if not await self._is_more_to_do(run.seen):
                return

    async def _is_more_to_do(self, rows: int) -> bool:
        """Wait for the rows that other processes have. True if some were left behind, and we can go and get them."""
        while not self.report.stopped:
            self.report.counts = counts = await self.book.counts()
            left = await self.book.abandoned(MOST_LEFT_BEHIND) if counts.open else []
            if any(index < rows for index in left):
                return self._is_file
            if len(left) >= min(counts.open, MOST_LEFT_BEHIND):
                if left:
                    self.report.stopped = (
                        f"shorter: the input has {rows:,} rows, and {len(left):,} open ones of the ledger are not in it"
                    )
                return False
            self.waits_for = [one for one in await self.book.others() if one.rows]
            await asyncio.sleep(LOOK_EVERY)
        return False

    async def _write(self) -> None:
        """The output must not end the run at once when it fails: what is in flight is still to be written down."""
        try:
            await self._scribe.go()
        except OutputError as error:
            self.stop(f"output: {error}")

    async def _written(self) -> int:
        """Rows in the output; where another process writes it, it is given a moment to write ours."""
        ours = self.report.done + self.report.dead
        give_up_at = self.runner.clock.now() + LONGEST_WRITER_WAIT
        while not self._scribe.has_role:
            standing = await asyncio.to_thread(look, self.book.path)
            if standing.written >= ours or self.runner.clock.now() > give_up_at:
                return standing.written
            if any(one.writes_output and one.alive for one in standing.holders):
                await asyncio.sleep(0.1)
            else:
                await self._write()  # it has gone, and left the rest to us
        return self._scribe.written

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.report.counts = await self.book.counts()
            if reason := self.silence.trouble(self.runner.report, is_paused=self.runner.is_paused):
                self.stop(reason)

    # ------------------------------------------------------------------ rows

    def _items(self) -> Items:
        """A file is read in passing, and again if need be; what may keep us waiting is read by a thread."""
        return RowsOfFile(self) if self._is_file else rows_of_pipe(self)

    @property
    def _is_file(self) -> bool:
        return self.rows.can_be_read_again and os.path.isfile(self.rows.name)

    async def _send(self, row: InputRow, ctx: ItemContext) -> bytes:
        try:
            line = await self._sending(row, ctx)
        except Failed as error:
            self.silence.heard_nothing(str(error))
            raise
        self.silence.heard()
        return line

    def _counts_tokens(self, key: str) -> bool:
        """Whether there is a cap or a limit that the tokens of this key's rows must fit."""
        config = self.config
        return config.max_tokens is not None or config.max_cost is not None or self.runner.has_limits(key)

    def _identity(self, source: str) -> dict[str, str]:
        """Files are named as seen from the ledger, so that all of them may be moved together."""
        folder = os.path.dirname(self.book.path)
        if not source:
            source = os.path.relpath(self.rows.name, folder) if self.rows.can_be_read_again else self.rows.name
        output = self.output if self.output == STDOUT else os.path.relpath(self.output, folder)
        return {"input": source, "output": output, **self.rows.identity, **self.target.identity}
