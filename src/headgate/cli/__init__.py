"""The ``headgate`` command: a table of commands, each imported only when it is run.

``headgate --help`` must be quick, so this file imports click and nothing heavier.
A new command is one file ``cli/commands/<name>.py`` with a click command called ``command``,
and one row in ``COMMANDS``. What commands share is in ``cli/ui``.

| exit code | means                                                   |
|-----------|---------------------------------------------------------|
| 0         | done                                                    |
| 2         | the command line was wrong                              |
| 3         | some of it failed                                       |
| 4         | stopped before the end (Ctrl-C); re-run to resume       |
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, cast

import click
from click.shell_completion import CompletionItem

from .._version import __version__
from ..formatting import nearest_name, redact
from .ui.terminal import DONE, FAILED, STOPPED, USAGE, complain

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of an output file that cannot grow."""


class Entry(NamedTuple):
    section: str
    summary: str
    module: str = ""
    """The file in ``cli/commands`` that has it, by its own name, together with others."""


COMMANDS = {
    "demo": Entry("See it work", "Find a hidden, changing quota, live in the terminal."),
    "mock": Entry("See it work", "Serve a rate-limited mock API."),
    "simulate": Entry("See it work", "Try strategies on simulated servers, in virtual time."),
    "limits": Entry("Query a real API", "Send one request and explain the limits in its response."),
    "research": Entry("Query a real API", "Query several search APIs at once, merged into one page."),
    "crawl": Entry("Crawl a site", "Crawl a site politely; re-run to resume."),
    "run": Entry("Run a batch", "Send a file of requests; re-run to resume."),
    "retry": Entry("Run a batch", "Retry the failed rows of a batch."),
    "proxy": Entry("Any language", "Rate-limit any program by its base URL: a local proxy."),
    "watch": Entry("Monitor and manage", "Watch runs live in the terminal, and see why they wait."),
    "web": Entry("Monitor and manage", "Watch runs in a browser."),
    "status": Entry("Monitor and manage", "Show the progress of a batch, or what a store holds."),
    "stop": Entry("Monitor and manage", "Stop a run, on one machine or many; nothing is lost.", "run_orders"),
    "pause": Entry("Monitor and manage", "Pause a run, on one machine or many.", "run_orders"),
    "resume": Entry("Monitor and manage", "Resume a paused run.", "run_orders"),
    "verify": Entry("Monitor and manage", "Verify that a batch has no lost or duplicate rows."),
    "keys": Entry("Monitor and manage", "Show credentials; park, free or retire one."),
    "config": Entry("Monitor and manage", "Show which files, variables and options are in force."),
}

START_HERE = [
    ("headgate demo", "watch it learn a hidden quota"),
    ("headgate limits https://api.github.com/", "what does this API allow me?"),
    ("headgate mock --rate 10/s --headers openai", "a local API to test against"),
]


class LazyGroup(click.Group):
    """Commands by name and summary; a command's module is imported when it is run."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(name)
        if entry is None:
            return None
        module = import_module(f".commands.{entry.module or name}", __name__)
        return cast("click.Command", getattr(module, name if entry.module else "command"))

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = nearest_name(name, COMMANDS, 0.5)
            hint = f'did you mean "{near}"?' if near else f"the commands are {', '.join(COMMANDS)}"
            raise click.UsageError(f'unknown command "{name}"; {hint}')
        return super().resolve_command(context, args)

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and summaries, without importing the commands; then the options."""
        found = [
            CompletionItem(name, help=entry.summary) for name, entry in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*found, *super(click.Group, self).shell_complete(context, incomplete)]

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
    """Run the command line and exit with its code; an error is one sentence on stderr."""
    sys.exit(execute(arguments))


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    log, handler = logging.getLogger("headgate"), MessageHandler(logging.WARNING)
    log.addHandler(handler)
    try:
        return run_command(arguments)
    finally:
        log.removeHandler(handler)


class MessageHandler(logging.Handler):
    """Prints what the library logs like every other message; events are shown by the commands themselves."""

    def emit(self, record: logging.LogRecord) -> None:
        if not hasattr(record, "event"):
            complain(f"{record.getMessage()}.")


def run_command(arguments: Sequence[str] | None) -> int:
    try:
        code = group.main(arguments, prog_name="headgate", standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except click.UsageError as error:
        complain(f"{as_sentence(error.format_message())} {help_hint(error.ctx)}")
        return USAGE
    except click.ClickException as error:
        complain(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        complain("stopped.")
        return STOPPED
    except SystemExit:  # click raises it where the reader of a pipe has gone (`headgate ... | head`)
        return DONE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            complain(f"cannot write the output ({os.strerror(error.errno)}).")
            return FAILED
        if os.environ.get("HEADGATE_DEBUG"):
            raise
        message = redact(f"{type(error).__name__}: {error}")
        complain(f"internal error ({message}); please report it. HEADGATE_DEBUG=1 shows the traceback.")
        return FAILED


def as_sentence(text: str) -> str:
    return text if text.endswith((".", "?", "?)")) else f"{text}."


def help_hint(context: click.Context | None) -> str:
    return f'See "{context.command_path if context else "headgate"} --help".'
