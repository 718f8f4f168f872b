"""``headgate web``: the page with all runs of this machine, for as long as it is wanted."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import click

from headgate.observe.runs import machine_runs

from . import DONE
from .examples import ExampleCommand
from .notation import WholeNumber
from .seeing import HIGHEST_PORT, CannotShow, page
from .watch import polite_end

TOKEN_VARIABLE = "HEADGATE_WEB_TOKEN"  # noqa: S105  # its name, not a token
A_TOKEN = f"{TOKEN_VARIABLE}=$(openssl rand -hex 24)"


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate web", "all runs of this machine in a browser; Ctrl-C ends the page, not the runs"),
        ("headgate web --port 8765 --read-only", "always at the same port, and nothing can be changed from it"),
        (
            f"{A_TOKEN} headgate web --host 0.0.0.0 --port 8765",
            "for others too: only with a token of your own, and best behind TLS",
        ),
    ],
)
@click.option(
    "--port",
    type=WholeNumber(0, HIGHEST_PORT),
    default=0,
    metavar="PORT",
    help="Where to listen.  [default: a free one]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help=f"Listen at another address. Anything but this machine's own needs a token, in {TOKEN_VARIABLE}.",
)
@click.option(
    "--allow-host", "names", multiple=True, metavar="NAME", help="A further name that it answers to. Repeatable."
)
@click.option("--read-only", is_flag=True, help="Nothing can be paused, parked or changed from the page.")
def command(port: int, host: str, names: tuple[str, ...], read_only: bool) -> int:
    """Show all runs of this machine in a browser: what they do, what they learn, why they wait.

    It prints a link with a random token: whoever has it may pause and resume runs. Every headgate run, crawl and demo
    of yours is there while it goes, and so is a program that announces itself (headgate.observe.announcing).
    """
    token = os.environ.get(TOKEN_VARIABLE) or None
    served = page(machine_runs(), port, host=host, token=token, allow_hosts=names, read_only=read_only)
    try:
        with suppress(KeyboardInterrupt), polite_end(), served:
            while True:
                time.sleep(3600)
    except CannotShow as error:
        if "token" not in str(error):
            raise
        raise CannotShow(f"{error} Here it is taken from {TOKEN_VARIABLE}; {A_TOKEN} sets one.") from None
    return DONE
