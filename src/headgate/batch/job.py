"""A batch from file to file: rows, target, ledger, runner and output put together, as ``headgate run`` does.

    with Rows("rows.jsonl") as rows:
        job = Job(rows, TargetConfig(to="openai"), output="answers.jsonl", credentials=[...])
        report = await job.run()

    input ─> rows ─> runner ─> target ─> ledger ─> output

The same job started again goes on where it stopped, and several processes may run it at once. Nothing is sent
before ledger and output have been opened. A row that is invalid is dead before it takes a permit, or stops the run
before it is claimed (``on_broken``), so that its line may be put right.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..engine.infrequent_gc import infrequent_gc
from ..engine.output_file import STDOUT
from ..engine.supervisor import Stop, StopReason
from ..errors import InputError, OutputError
from ..formatting import format_seconds
from ..limiter import AdaptiveRateLimiter
from ..resilience.fallback import Fallbacks, read_fallbacks
from .attempt import ItemContext
from .config import BatchConfig
from .input import InputRow, Rows
from .intake import Items
from .job_input import FileRows, JobLedger, pipe_rows
from .ledger.queries import Holder, read_status
from .ledger.schema import SUFFIX
from .output import OutputWriter
from .pricing import Prices
from .report import BatchReport, FailureGroup, FailureSummary, JobReport, added_up
from .row_targets import RowTargets
from .runner import BatchRunner
from .stalls import NoResponseMonitor
from .target import RowAnswer, Target, TargetConfig

if TYPE_CHECKING:
    from ..credentials import Credential, CredentialCoordinator

LOOK_EVERY = 1.0
"""Seconds between two looks at rows that other processes have."""
MOST_LEFT_BEHIND = 1_000
LONGEST_WRITER_WAIT = 60.0
"""Seconds to wait for another process to write our last rows into the output."""
COMMAND = "command"
"""The ledger's note of what was typed, for ``headgate retry`` to repeat."""
RUN_ID = "run_id"
"""The ledger's note of what makes every row's Idempotency-Key, in all runs that go on with it."""

Send = Callable[[InputRow, ItemContext], Awaitable[RowAnswer]]


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
        fallback: Fallbacks | None = None,
        fallback_credentials: Sequence[CredentialCoordinator | None] = (),
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        """``output`` may be "-"; ``ledger`` is then needed. ``source`` names the input in the ledger, ``command`` what
        was typed. ``around`` wraps what sends a row, for callers that want to see each call. ``fallback``: targets for
        rows that the first cannot take, and their credentials. ``on_step`` is called with the name of each step before
        and after something is on disk. Raises ``ConfigError``."""
        if os.path.isdir(output):
            raise OutputError(f"cannot write {output} (it is a folder)")
        self.rows, self.output, self.command = rows, output, command
        self.config = BatchConfig() if config is None else config
        self.prices = prices or Prices()
        limiter = AdaptiveRateLimiter() if limiter is None else limiter
        self.responses = NoResponseMonitor(self.config, to.timeout, limiter.clock)
        self.targets = RowTargets(
            to,
            read_fallbacks(fallback),
            prices=self.prices,
            has_cap=self.config.max_cost is not None,
            counts_tokens=self._counts_tokens,
            credentials=fallback_credentials,
            responses=self.responses,
        )
        validator = self.targets.validator
        self.ledger = JobLedger(
            ledger or output + SUFFIX,
            rows,
            validator,
            on_invalid=lambda error: self.stop(StopReason.BROKEN, str(error)),
            is_stopped=lambda: self.report.stop is not None,
            durability=self.config.durability,
            on_step=on_step,
        )
        self.identity = self._identity(source)
        self.runner = BatchRunner(
            self.targets.fetch if around is None else around(self.targets.fetch),
            workers=workers,
            ledger=self.ledger,
            limiter=limiter,
            credentials=credentials,
            config=replace(self.config, deadline=None),  # it is for the job, however often its input is gone through
            key=validator.key,
            cost=validator.cost,
            row_of=Target.row,
            encode=self.targets.line,
            targets=self.targets,
            identity=self.identity,
        )
        self.report = JobReport()
        self._earlier_deaths: list[FailureGroup] = []
        """Why rows had failed before this run."""
        self._added: BatchReport | None = None
        """The runner's report that is in it already."""
        self._input_stop: Stop | None = None
        """Why the input ends where it does, if that is not its end."""
        self.has_begun = False
        """Whether ledger and output are open, and rows may be sent."""
        self.holders: list[Holder] = []
        """The processes that have all rows that are left; empty while this one has work of its own."""
        self._writer = OutputWriter(self.ledger, output, on_step)

    # ------------------------------------------------------------------ running

    async def run(self) -> JobReport:
        """Work until every row is final or something stops it; ``report.stopped`` says what. What cannot even begin
        raises ``LedgerError``, ``OutputError`` or ``InputError``. Cancelling it stops at once; nothing is lost."""
        report, begun = self.report, False
        if (deadline := self.config.deadline) is not None:
            over = f"after {format_seconds(deadline)}"
            timer = asyncio.get_running_loop().call_later(
                deadline, lambda: self.stop(StopReason.DEADLINE, over, now=True)
            )
        try:
            report.counts = await self.ledger.begin(self.identity)
            report.before = report.done + report.dead
            if report.dead:
                self._earlier_deaths = (await self.ledger.failures()).dead
            await self._writer.take_role()
            self.targets.for_run(await self.ledger.note_once(RUN_ID, secrets.token_hex(16)))
            await self.ledger.note(COMMAND, self.command)
            self.has_begun = begun = True
            writing = asyncio.create_task(self._write())
            watching = asyncio.create_task(self._watch())
            try:
                with infrequent_gc():
                    async with self.targets:
                        await self._work()
            finally:
                watching.cancel()
                self._writer.end()
                await asyncio.gather(watching, return_exceptions=True)
                await asyncio.wait([writing])
                failure = writing.exception()
            if failure is not None:
                raise failure
            report.counts = await self.ledger.counts()
            report.failures = await self.ledger.failures()
            report.written = await self._written()
        finally:
            if deadline is not None:
                timer.cancel()
            self.has_begun = False
            self._writer.close()
            await self.ledger.close(unused=not begun)
        return report

    def stop(self, reason: StopReason = StopReason.STOPPED, detail: str = "", *, now: bool = False) -> None:
        """Start nothing any more and finish what is under way, or give that back too (``now``)."""
        if self.report.stop is None:
            self.report.stop = Stop(reason, detail)
        self.runner.stop(now=now)

    def deaths(self) -> list[FailureGroup]:
        """Why rows have failed, in earlier runs and in this process so far. Safe for threads."""
        now, all_ = self.runner.report, FailureSummary()
        all_.take(self._earlier_deaths)
        all_.take(self.report.run.deaths.all())
        if now is not self._added:
            all_.take(now.deaths.all())
        return all_.all()

    async def _work(self) -> None:
        report = self.report
        while report.stop is None:
            self.holders = []
            items = self._items()
            try:
                run = await self.runner.run(items)
            finally:
                if isinstance(items, FileRows):
                    items.close()
                report.run, self._added = added_up(report.run, self.runner.report), self.runner.report
            report.stop = report.stop or run.stop or self._input_stop
            if report.stop is not None:
                return
            report.rows = run.seen
            if not await self._is_more_to_do(run.seen):
                return

    async def _is_more_to_do(self, rows: int) -> bool:
        """Wait for the rows that other processes have. True if some were left behind and can be read again."""
        report = self.report
        while report.stop is None:
            report.counts = counts = await self.ledger.counts()
            left = await self.ledger.abandoned(MOST_LEFT_BEHIND) if counts.open else []
            if any(index < rows for index in left):
                return self._is_file
            if len(left) >= min(counts.open, MOST_LEFT_BEHIND):
                if left:
                    gone = f"the input has {rows:,} rows; {len(left):,} open rows of the ledger are missing from it"
                    report.stop = Stop(StopReason.SHORTER, gone)
                return False
            self.holders = [one for one in await self.ledger.others() if one.rows]
            await asyncio.sleep(LOOK_EVERY)
        return False

    async def _write(self) -> None:
        """An output that fails does not end the run at once: what is in flight is still to be recorded."""
        try:
            await self._writer.run()
        except OutputError as error:
            self.stop(StopReason.OUTPUT, str(error))

    async def _written(self) -> int:
        """Rows in the output; where another process writes it, it is given a moment to write ours."""
        ours = self.report.done + self.report.dead
        give_up_at = self.runner.clock.now() + LONGEST_WRITER_WAIT
        while not self._writer.has_role:
            status = await asyncio.to_thread(read_status, self.ledger.path)
            if status.written >= ours or self.runner.clock.now() > give_up_at:
                return status.written
            if any(one.writes_output and one.alive for one in status.holders):
                await asyncio.sleep(0.1)
            else:
                await self._write()  # that process has ended, and left the rest to this one
        return self._writer.written

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.report.counts = await self.ledger.counts()
            if stop := self.responses.check(self.runner.report, is_paused=self.runner.is_paused):
                self.stop(stop.reason, stop.detail)

    # ------------------------------------------------------------------ rows

    def _items(self) -> Items:
        """A file is read as it is needed, and again if need be; what may block is read by a thread."""
        return (FileRows if self._is_file else pipe_rows)(self.rows, self._on_input_error)

    def _on_input_error(self, error: InputError) -> None:
        self._input_stop = Stop(StopReason.INPUT, str(error))

    @property
    def _is_file(self) -> bool:
        return self.rows.can_be_read_again and os.path.isfile(self.rows.name)

    def _counts_tokens(self, key: str) -> bool:
        """Whether there is a cap or a limit that the tokens of this key's rows must fit."""
        has_cap = self.config.max_tokens is not None or self.config.max_cost is not None
        return has_cap or self.runner.has_limits(key)

    def _identity(self, source: str) -> dict[str, str]:
        """Files are named as seen from the ledger, so that all of them may be moved together."""
        folder = os.path.dirname(self.ledger.path)
        if not source:
            source = os.path.relpath(self.rows.name, folder) if self.rows.can_be_read_again else self.rows.name
        output = self.output if self.output == STDOUT else os.path.relpath(self.output, folder)
        return {"input": source, "output": output, **self.rows.identity, **self.targets.primary.identity}
