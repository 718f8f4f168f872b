"""``--web``, ``--report``, ``--unseen`` and ``--trace``: how a run can be seen, while it goes and afterwards.

    run, crawl, demo, proxy ──> RunMonitor ──┬──> <state folder>/runs    headgate watch, web, status   unless --unseen
                                             ├──> the page               --web [PORT]
                                             └──> a file at the end      --report FILE
    every call of a run or a crawl, and the rates learned ──> a recording for the simulator, --trace FILE

A run never waits for its observers, and none of them can end it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ...clock import SystemClock
from ...errors import HeadgateError
from ...observe.monitor import RunMonitor
from ...observe.run_registry import announced
from ...wire import read
from ...wire.urls import pair_key
from .display import Summary, sentence
from .options import HIGHEST_PORT, ExampleCommand, Notation
from .session import access_token
from .terminal import DONE, FAILED, STOPPED, CannotStart, complain

if TYPE_CHECKING:
    from ...batch.attempt import ItemContext
    from ...batch.input import InputRow, Rows
    from ...batch.job import Send
    from ...batch.lanes import LaneStanding
    from ...batch.target import RowAnswer
    from ...core.decision import Outcome
    from ...events import CrawlEvent
    from ...exchange import Answer
    from ...observe.exporters.prometheus import Prometheus
    from ...observe.report import Notes
    from ...observe.snapshot import MonitoredRuns


FREE_PORT = 0
LOOPBACK = "127.0.0.1"
WEB_TOKEN_VARIABLE = "HEADGATE_WEB_TOKEN"  # noqa: S105  # its name, not a token

F = TypeVar("F", bound=Callable[..., Any])


def read_port(text: str) -> int:
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise ValueError(f"{text!r} is not a port; expected a number up to {HIGHEST_PORT}, or nothing for a free one")
    return int(text)


def read_report_path(path: str) -> str:
    from ...observe.report import form_of

    form_of(path)
    return path


class ObservedCommand(ExampleCommand):
    """A command whose ``--web`` may stand alone: only a number after it is its value."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        for place, word in enumerate(args):
            if word == "--":
                words += args[place:]
                break
            alone = word == "--web" and not "".join(args[place + 1 : place + 2]).isdecimal()
            words.append(f"--web={FREE_PORT}" if alone else word)
        return super().parse_args(context, words)


web_option = click.option(
    "--web",
    type=Notation("PORT", read_port),
    metavar="[PORT]",
    help="Also show the run in a browser; prints the link.  [default: a free port]",
)


def observe_options(command: F) -> F:
    """``--web``, ``--report`` and ``--unseen``."""
    options = (
        web_option,
        click.option(
            "--report",
            type=Notation("FILE", read_report_path),
            metavar="FILE.html|FILE.md",
            help="Write charts and numbers into one file at the end, even if stopped.",
        ),
        click.option("--unseen", is_flag=True, help="Hide this run from headgate watch, status and web."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveOptions:
    """The values of these options."""

    web: int | None = None
    report: str | None = None
    unseen: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ObserveOptions:
        """Raises ``UsageError`` for what is known to fail before anything has begun."""
        web, report = given["web"], given["report"]
        if isinstance(web, bool):  # of a configuration file
            web = FREE_PORT if web else None
        if report is not None:
            folder = os.path.dirname(os.path.abspath(report))
            if not os.path.isdir(folder):
                raise click.UsageError(f"--report: there is no folder {folder}.")
        return cls(web=web, report=report, unseen=given["unseen"])


@dataclass(slots=True)
class ObservedRun:
    """What observers are told at the end of a run."""

    headline: str = ""
    """For the report."""
    was_stopped: bool = False
    report_failed: bool = False

    def end(self, summary: Summary) -> None:
        """A report of work that was stopped says why, and how to resume it."""
        self.was_stopped = summary.code == STOPPED
        says_all = self.was_stopped or not summary.headline
        self.headline = f"{summary.headline} {summary.next}".strip() if says_all else summary.headline

    def exit_code(self, code: int) -> int:
        """A report that could not be written is a failure where there is no other."""
        return FAILED if self.report_failed and code == DONE else code


@contextmanager
def observed(options: ObserveOptions, make: Callable[[], RunMonitor], *, quiet: bool = False) -> Iterator[ObservedRun]:
    """Let the observers that were asked for see a run, for the length of a block."""
    run = ObservedRun()
    if options == ObserveOptions(unseen=True):
        yield run
        return
    monitor, notes = make(), None
    if options.report is not None:
        from ...observe.report import Notes

        notes = Notes(monitor)
    steps = () if notes is None else (notes.take,)
    with ExitStack() as stack:
        if options.web is not None:
            token = access_token(LOOPBACK, WEB_TOKEN_VARIABLE)
            stack.enter_context(page(monitor, options.web, token=token, metrics=metrics_of(monitor)))
        is_whole = False
        try:
            with monitor.start(*steps) if options.unseen else announced(monitor, *steps):
                yield run
                monitor.ending = "stopped" if run.was_stopped else ""
            is_whole = True
        finally:
            monitor.close()
            # A run that could not even begin must not replace the report of an earlier one.
            if options.report is not None and notes is not None and (is_whole or notes.has_begun):
                _write_report(monitor, notes, options.report, run, quiet=quiet)


def _write_report(monitor: RunMonitor, notes: Notes, path: str, run: ObservedRun, *, quiet: bool) -> None:
    from ...observe.report import report_of, write_report

    try:
        write_report(report_of(monitor, notes, run.headline), path)
    except OSError as error:
        run.report_failed = True
        complain(f"cannot write {path} ({error.strerror}); choose another file with --report.")
    except Exception as error:  # the outcome of the run matters more
        run.report_failed = True
        complain(f"cannot create the report ({type(error).__name__}); the results of the run are complete.")
    else:
        if not quiet:
            click.echo(f"The report is in {path}.", err=True)


def metrics_of(monitor: RunMonitor) -> Prometheus | None:
    """Counts every call of a run for ``/metrics``, if its library is there; the page says what to install."""
    try:
        from ...observe.exporters.prometheus import Prometheus
    except ImportError:
        return None
    metrics = Prometheus(monitor)
    metrics.listen_to(monitor)
    return metrics


@contextmanager
def page(runs: MonitoredRuns, port: int, **settings: Any) -> Iterator[None]:
    """The page, for the length of a block; its link is printed once."""
    try:
        from ...web import serve

        served = serve(runs, port=port, **settings)
    except HeadgateError as error:
        raise CannotStart(sentence(str(error))) from None
    with served:
        click.echo(f"The page: {served.url}", err=True)
        yield


RATES_EVERY = 0.5
"""Seconds between two records of the learned rates."""


class TraceRecorder:
    def __init__(self, path: str, *, workers: int, calls: int = 1, keys: int = 1) -> None:
        """``calls`` and ``keys`` are 1 where they are not known before the end."""
        from ...lab.traces.trace import Heading, TraceWriter  # here, because few runs are recorded

        try:
            self._writer = TraceWriter(Path(path), Heading(calls=max(1, calls), workers=workers, keys=max(1, keys)))
        except OSError as error:
            raise click.UsageError(f"--trace: cannot write {path} ({error.strerror}).") from None
        self._path = path
        self._clock = SystemClock()
        self._began_at = self._clock.now()
        self._rates_at = 0.0

    def record_sends(self, send: Send) -> Send:
        """The same ``send``, recorded."""

        async def recorded(row: InputRow, ctx: ItemContext) -> RowAnswer:
            sent_at = self._clock.now() - self._began_at
            observed = _ObservedContext(ctx)
            try:
                return await send(row, cast("ItemContext", observed))
            finally:
                latency = self._clock.now() - self._began_at - sent_at
                waited = 0.0 if ctx.permit is None else ctx.permit.waited
                label = ctx.credential_label
                key = ctx.key if label is None else pair_key(ctx.key, label)
                self._writer.call(key, sent_at, latency, observed.status, waited, observed.retry_after, label)

        return recorded

    def record_rates(self, lanes: Sequence[LaneStanding]) -> None:
        now = self._clock.now() - self._began_at
        if now < self._rates_at:
            return
        self._rates_at = now + RATES_EVERY
        for lane in lanes:
            if lane.rate is not None:
                key = lane.key if lane.credential is None else pair_key(lane.key, lane.credential)
                self._writer.learned(key, now, lane.rate)

    def on_crawl_event(self, event: CrawlEvent) -> None:
        """A listener of a crawl."""
        if event.kind == "call":
            latency, waited = event.worked["extraction"], event.waited["extraction"]
            sent_at = max(0.0, event.at - self._began_at - latency)
            label = event.credential or None
            self._writer.call(event.host, sent_at, latency, event.status or 0, waited, event.seconds, label)

    def close(self) -> None:
        self._writer.end(self._clock.now() - self._began_at)
        if self._writer.trouble is not None:
            complain(f"the trace {self._path} is incomplete ({self._writer.trouble.strerror}).")


def count_rows(rows: Rows) -> int:
    """How many rows a file has; 1 for a pipe, which cannot be read twice."""
    return sum(1 for _ in rows) if rows.can_be_read_again else 1


class _ObservedContext:
    """A row's context that notes the answer."""

    def __init__(self, ctx: ItemContext) -> None:
        self._ctx = ctx
        self.status = 0
        self.retry_after: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def report(self, answer: Answer, *, cost: float | Mapping[str, float] | None = None) -> Outcome:
        self.status = answer.status_code
        if self.status >= 400:
            signal = read(self.status, answer.headers, answer.content, wall=SystemClock().wall())
            self.retry_after = signal.retry_after
        return self._ctx.report(answer, cost=cost)
