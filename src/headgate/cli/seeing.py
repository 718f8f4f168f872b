"""Whoever looks on at a run: other terminals (``headgate watch``), a browser (``--web``), a colleague (``--report``).

    run, crawl, demo ──> Watched ──┬──> <state folder>/runs     headgate watch, headgate web     unless --unseen
                                   ├──> the page                --web [PORT]
                                   └──> a file at the end       --report FILE

None of them is waited for, and none of them can end the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headgate.errors import HeadgateError
from headgate.observe.announcing import announced
from headgate.observe.report import Notes, form_of, report_of, write_report
from headgate.observe.watched import Watched

from . import DONE, FAILED, STOPPED, USAGE, CommandFailed, complain
from .examples import ExampleCommand
from .notation import Notation

if TYPE_CHECKING:
    from headgate.observe.prometheus import Prometheus
    from headgate.observe.source import Sources

FREE_PORT = 0
HIGHEST_PORT = 65_535

F = TypeVar("F", bound=Callable[..., Any])


class CannotShow(CommandFailed):
    """Nothing has begun: the page that was asked for cannot be served."""

    exit_code = USAGE


def read_port(text: str) -> int:
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise ValueError(f"{text!r} is no port; write a number up to {HIGHEST_PORT}, or nothing for a free one")
    return int(text)


class SeenCommand(ExampleCommand):
    """``--web`` may stand alone: only a number after it is its own."""

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
    help="Show it in a browser too; prints the link.  [default: a free port of this machine]",
)


def seeing_options(command: F) -> F:
    """``--web``, ``--report`` and ``--unseen``."""
    options = (
        web_option,
        click.option(
            "--report",
            type=Notation("FILE", checked_form),
            metavar="FILE.html|FILE.md",
            help="Write the pictures and the numbers into one file at the end, also if it is stopped.",
        ),
        click.option("--unseen", is_flag=True, help="Do not show this run to headgate watch, status and web."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def checked_form(path: str) -> str:
    form_of(path)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was asked for on the command line."""

    web: int | None = None
    report: str | None = None
    unseen: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Wishes:
        """Raises ``UsageError`` for what can be known to fail before anything has begun."""
        web, report = given["web"], given["report"]
        if isinstance(web, bool):  # of a configuration file
            web = FREE_PORT if web else None
        if report is not None:
            folder = os.path.dirname(os.path.abspath(report))
            if not os.path.isdir(folder):
                raise click.UsageError(f"there is no directory {folder} to write the report into.")
        return cls(web=web, report=report, unseen=given["unseen"])


@dataclass(slots=True)
class Seen:
    ending: str = ""
    """What the run says at its end, for the report."""
    was_stopped: bool = False
    lost: list[str] = field(default_factory=list)

    def tell(self, code: int, about: str) -> None:
        self.was_stopped = code == STOPPED
        self.ending = about + (" It was stopped before its end." if self.was_stopped else "")

    def code(self, code: int) -> int:
        """The exit code: a report that could not be written is a failure where there is no other."""
        return FAILED if self.lost and code == DONE else code


@contextmanager
def seen(wishes: Wishes, make: Callable[[], Watched], *, quiet: bool = False) -> Iterator[Seen]:
    """Let everybody look on who is wished for, for the length of a run."""
    told = Seen()
    if wishes == Wishes(unseen=True):
        yield told
        return
    watched = make()
    notes = Notes(watched)
    steps = () if wishes.report is None else (notes.take,)
    with ExitStack() as stack:
        if wishes.web is not None:
            stack.enter_context(page(watched, wishes.web, metrics=counting(watched)))
        is_whole = False
        try:
            with watched.start(*steps) if wishes.unseen else announced(watched, *steps):
                yield told
                watched.ending = "stopped" if told.was_stopped else ""
            is_whole = True
        finally:
            watched.close()
            # A run that could not even begin must not take the place of an earlier one's report.
            if wishes.report is not None and (is_whole or notes.has_begun):
                _write(watched, notes, wishes.report, told, quiet=quiet)


def _write(watched: Watched, notes: Notes, path: str, told: Seen, *, quiet: bool) -> None:
    try:
        write_report(report_of(watched, notes, told.ending), path)
    except OSError as error:
        told.lost.append(path)
        complain(f"cannot write {path} ({error.strerror}); choose another file with --report.")
    except Exception as error:  # whatever it is, what came of the run is more important
        told.lost.append(path)
        complain(f"the report could not be made ({type(error).__name__}); the run itself is not touched by that.")
    else:
        if not quiet:
            click.echo(f"The report is in {path}.", err=True)


def counting(watched: Watched) -> Prometheus | None:
    """What counts every call of a run for ``/metrics``, if its library is there; the page says what to install."""
    try:
        from headgate.observe.prometheus import Prometheus
    except ImportError:
        return None
    metrics = Prometheus(watched)
    metrics.listen_to(watched)
    return metrics


@contextmanager
def page(sources: Sources, port: int, **settings: Any) -> Iterator[None]:
    """The page, for the length of a block; its link is printed once."""
    try:
        from headgate.web import serve

        served = serve(sources, port=port, **settings)
    except HeadgateError as error:
        raise CannotShow(f"{str(error).rstrip('.')}.") from None
    with served:
        click.echo(f"The page: {served.url}", err=True)
        yield
