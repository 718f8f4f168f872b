"""A run under way: shown while it goes, stopped politely by Ctrl-C, and told about at its end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from headgate.batch.formats import InputError, OutputError
from headgate.batch.formats.writing import STDOUT
from headgate.batch.job import Job
from headgate.batch.ledger import LedgerError
from headgate.wire.redaction import redact

from . import STOPPED
from .run_live import View, view_of
from .run_progress import Looker
from .run_trace import Recorder
from .run_words import AGAIN, Ending, about, ending_of, fields_of, with_lost_keys


async def go(
    job: Job, looker: Looker, *, again: str, kept: bool, recorder: Recorder | None, as_json: bool, quiet: bool
) -> Ending:
    """Run the job to its end. What kept it from beginning is raised. ``kept``: the same command finds its ledger."""
    view = view_of(as_json=as_json, quiet=quiet, to_stderr=job.output == STDOUT)
    with on_interrupts(lambda times: interrupted(job, view, times)):
        running = asyncio.create_task(job.run())
        try:
            with view:
                while not running.done():
                    await asyncio.wait([running], timeout=view.every)
                    if recorder is not None:
                        recorder.look(job.lanes())
                    if job.began and not running.done():
                        view.show(looker.look())
        finally:
            if not running.done():
                job.stop("stopped", now=True)
                await asyncio.wait([running])
            if recorder is not None:
                recorder.end()
    try:
        running.result()
    except (LedgerError, OutputError, InputError) as error:
        if not job.report.run.calls:
            raise
        ending = broken_off(job, error)
    else:
        ending = ending_of(job, "" if kept else again)
    ending = with_lost_keys(ending, () if job.runner.credentials is None else (job.runner.credentials,))
    view.end(ending)
    return ending


def interrupted(job: Job, view: View, times: int) -> None:
    if times == 1:
        view.say("Stopping: what is under way is finished and saved. Ctrl-C again leaves it.")
        job.stop("stopped")
    else:
        job.stop("stopped", now=True)


def broken_off(job: Job, error: Exception) -> Ending:
    """Something gave way under the run: a full disk, a ledger that was taken away."""
    said = redact(f"{error}")
    next_ = f"{said.rstrip('.')}." if "run it again" in said or "run again" in said else f"{said}. {AGAIN}"
    job.report.stopped = job.report.stopped or f"failed: {said}"
    return Ending(code=STOPPED, about=about(job.report), next=next_, fields=fields_of(job, STOPPED, next_))


@contextmanager
def on_interrupts(heard: Callable[[int], None]) -> Iterator[None]:
    """Ctrl-C, or a polite request to end, is told to ``heard`` with how many there were; a third ends us at once."""
    loop, times = asyncio.get_running_loop(), 0
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def hear() -> None:
        nonlocal times
        times += 1
        if times >= 3:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        heard(times)

    for number in signals:
        try:
            loop.add_signal_handler(number, hear)
        except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
            try:
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(hear))
            except ValueError:
                before.pop(number)
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)
