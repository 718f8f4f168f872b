"""The ``headgate`` command: a table of commands, each imported only when it is run.

``headgate --help`` must be quick, so this file imports click and nothing heavier.
A new command is one file ``cli/<name>.py`` with a click command called ``command``,
and one row in ``COMMANDS``.

| exit code | means                                                   |
|-----------|---------------------------------------------------------|
| 0         | done                                                    |
| 2         | the command line was wrong                              |
| 3         | some of it failed                                       |
| 4         | stopped before the end (Ctrl-C); run it again to go on  |
"""

from __future__ import annotations

import difflib
import errno
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, cast

import click

from headgate._version import __version__

DONE, USAGE, FAILED, STOPPED = 0, 2, 3, 4
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What goes wrong when the output goes to a file that cannot grow."""


class Entry(NamedTuple):
    section: str
    summary: str


COMMANDS = {
    "demo": Entry("See it work", "Find a hidden, changing quota, live in the terminal."),
    "mock": Entry("See it work", "Serve a rate-limited API to practise on."),
    "simulate": Entry("See it work", "Try strategies on simulated servers, in virtual time."),
    "limits": Entry("Ask a real API", "Ask once and explain what the answer says of its limits."),
    "research": Entry("Ask a real API", "Ask several search APIs at once, and read one page."),
    "crawl": Entry("Crawl a site", "Visit a site's pages politely, and go on where it stopped."),
    "run": Entry("Run a batch", "Send a file of requests, and go on where it stopped."),
    "retry": Entry("Run a batch", "Give dead rows of a batch another chance."),
    "proxy": Entry("Serve any language", "Put the gate before any program, by its base URL."),
    "watch": Entry("Look after a run", "See live what runs do and why they wait, in the terminal."),
    "web": Entry("Look after a run", "See the same in a browser."),
    "status": Entry("Look after a run", "Show how far a batch is, or who shares which quota."),
    "verify": Entry("Look after a run", "Prove that a batch has lost no row and has none twice."),
    "keys": Entry("Look after a run", "Show how credentials stand; park, free or retire one."),
}

START_HERE = [
    ("headgate demo", "watch it learn a hidden quota"),
    ("headgate limits https://api.github.com/", "what does this API allow me?"),
    ("headgate mock --rate 10/s --headers openai", "an API of your own to test on"),
]


class CommandFailed(click.ClickException):
    """The command was right but could not be done: one sentence for a person, exit code 3."""

    exit_code = FAILED


class LazyGroup(click.Group):
    """Knows its commands by name and summary; their modules are imported when they are run."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return cast(click.Command, import_module(f".{name}", __name__).command)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
            hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(COMMANDS)}"
            raise click.UsageError(f'there is no command "{name}"; {hint}')
        return super().resolve_command(context, args)

    def format_help(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(context, formatter)
        self.format_help_text(context, formatter)
        with formatter.section("Start here"):
            formatter.write_dl(START_HERE, col_max=50)
        widest = max(map(len, COMMANDS))
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            rows = [(name.ljust(widest), entry.summary) for name, entry in COMMANDS.items() if entry.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)
        super(click.Group, self).format_options(context, formatter)
        formatter.write_paragraph()
        formatter.write_text('"headgate COMMAND --help" shows examples of each command.')


@click.group(cls=LazyGroup, no_args_is_help=False, invoke_without_command=True)
@click.version_option(__version__, "-V", "--version", message="headgate %(version)s", help="Show the version and exit.")
@click.help_option("-h", "--help", help="Show this page and exit.")
@click.pass_context
def group(context: click.Context) -> None:
    """The gate between your program and the rate-limited APIs it calls."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code; whatever goes wrong is told in one sentence on stderr."""
    sys.exit(execute(arguments))


def execute(arguments: Sequence[str] | None = None) -> int:
    log, sentences = logging.getLogger("headgate"), Sentences(logging.WARNING)
    log.addHandler(sentences)
    try:
        return run_command(arguments)
    finally:
        log.removeHandler(sentences)


class Sentences(logging.Handler):
    """What the library would log is told as everything else is; events are a command's own to show."""

    def emit(self, record: logging.LogRecord) -> None:
        if not hasattr(record, "event"):
            complain(f"{record.getMessage()}.")


def run_command(arguments: Sequence[str] | None) -> int:
    try:
        code = group.main(arguments, prog_name="headgate", standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except click.UsageError as error:
        complain(f"{as_sentence(error.format_message())} {where_to_look(error.ctx)}")
        return USAGE
    except click.ClickException as error:
        complain(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        complain("stopped.")
        return STOPPED
    except SystemExit:  # click's word for a reader who has gone (`headgate ... | head`): nothing is left to say
        return DONE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            complain(f"cannot write the output ({os.strerror(error.errno)}).")
            return FAILED
        if os.environ.get("HEADGATE_DEBUG"):
            raise
        from headgate.wire.redaction import redact

        told = redact(f"{type(error).__name__}: {error}")
        complain(f"this should not have happened ({told}); please report it. HEADGATE_DEBUG=1 shows where it was.")
        return FAILED


def as_sentence(text: str) -> str:
    return text if text.endswith((".", "?", "?)")) else f"{text}."


def where_to_look(context: click.Context | None) -> str:
    return f'See "{context.command_path if context else "headgate"} --help".'


def say(text: str, *, err: bool = False) -> None:
    """Print lines for people. Control codes that a name or a server's words bring along are shown, not obeyed."""
    from headgate.core.words import printable

    from .live_display import echo

    echo("\n".join(map(printable, text.split("\n"))), err=err)


def complain(sentence: str) -> None:
    """One line on stderr, without control codes."""
    say(f"headgate: {' '.join(sentence.split())}", err=True)
