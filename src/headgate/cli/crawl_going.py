"""A crawl under way: shown while it goes, stopped politely by Ctrl-C, and told about at its end."""

from __future__ import annotations

import asyncio
import atexit
import json
import signal
import time
from contextlib import suppress

from headgate.batch.formats import OutputError
from headgate.batch.formats.writing import STDOUT
from headgate.batch.ledger import LedgerError
from headgate.crawl.crawler import Crawler
from headgate.wire.redaction import redact

from . import STOPPED, CommandFailed
from .crawl_live import Looker, view_of
from .crawl_trace import CallRecorder
from .crawl_words import about, ending_of, fields_of
from .run_going import on_interrupts
from .run_live import View
from .run_words import AGAIN, Ending, with_lost_keys

LOST_AT_ONCE = 1_000
DEAF_FOR = 2.0
"""Seconds."""


async def go(
    crawler: Crawler, output: str, failures: str | None, recorder: CallRecorder | None, *, as_json: bool, quiet: bool
) -> Ending:
    """Crawl to the end. What kept it from beginning is raised."""
    view = view_of(as_json=as_json, quiet=quiet, to_stderr=output == STDOUT)
    with on_interrupts(lambda times: interrupted(crawler, view, times)):
        running = asyncio.create_task(crawler.run())
        looker = Looker(crawler)
        try:
            with view:
                while not running.done():
                    await asyncio.wait([running], timeout=view.every)
                    if not running.done():
                        view.show(looker.look())  # type: ignore[arg-type]  # it has what views ask for
        finally:
            if not running.done():
                crawler.stop(now=True)
                await asyncio.wait([running])
            if recorder is not None:
                recorder.end()
    try:
        running.result()
    except (LedgerError, OutputError) as error:
        if not crawler.report().fetches:
            raise
        ending = broken_off(crawler, error)
    else:
        if failures is not None:
            write_failures(crawler, failures)
        ending = ending_of(crawler, output, failures)
    ending = with_lost_keys(ending, (one.coordinator for one in crawler.credentials.values()))
    be_deaf()
    view.end(ending)
    return ending


def be_deaf() -> None:
    """A Ctrl-C after the last line finds nothing to stop, and does not take the place of what came of the crawl.

    It is not heard until this process has ended; Python would die of it even then. Where it goes on it hears again.
    """
    until = time.monotonic() + DEAF_FOR

    def hear(*_: object) -> None:
        if time.monotonic() > until:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.raise_signal(signal.SIGINT)

    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, hear)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def interrupted(crawler: Crawler, view: View, times: int) -> None:
    if times == 1:
        view.say("Stopping: what is under way is finished and saved. Ctrl-C again leaves it.")
        crawler.stop()
    else:
        crawler.stop(now=True)


def broken_off(crawler: Crawler, error: Exception) -> Ending:
    """Something gave way under the crawl: a full disk, a frontier that was taken away."""
    said = redact(f"{error}")
    next_ = f"{said.rstrip('.')}." if "again" in said else f"{said.rstrip('.')}. {AGAIN}"
    report = crawler.report()
    return Ending(code=STOPPED, about=about(report), next=next_, fields=fields_of(report, STOPPED, next_))


def write_failures(crawler: Crawler, path: str) -> None:
    """A line of JSON for each address that failed or was refused."""
    after = 0
    try:
        with open(path, "w", encoding="utf-8") as file:
            while lost := crawler.lost(after, LOST_AT_ONCE):
                for one in lost:
                    fields = {
                        "url": one.url,
                        "state": one.state.value,
                        "reason": one.reason,
                        "attempts": one.attempts,
                        "found_on": one.found_on,
                    }
                    file.write(json.dumps(fields, ensure_ascii=False) + "\n")
                after = lost[-1].number
    except OSError as error:
        raise CommandFailed(f"cannot write {path} ({error.strerror}); choose another file with --failures.") from None
