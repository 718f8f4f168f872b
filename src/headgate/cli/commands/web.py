"""``headgate web``: the page with all runs of this machine, until Ctrl-C."""

from __future__ import annotations

import time
from contextlib import suppress

import click

from ...distributed.store import StoreDown
from ...formatting import redact
from ...observe.run_registry import machine_runs
from ...observe.snapshot import MonitoredRuns
from ..ui.observe_options import WEB_TOKEN_VARIABLE as TOKEN_VARIABLE
from ..ui.observe_options import page
from ..ui.options import ExampleCommand, allow_host_option, host_option, port_option
from ..ui.session import access_token, sigterm_interrupts
from ..ui.terminal import DONE, CommandFailed

A_TOKEN = f"{TOKEN_VARIABLE}=$(openssl rand -hex 24)"


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate web", "all runs of this machine in a browser; Ctrl-C stops the page, not the runs"),
        ("headgate web --port 8765 --read-only", "a fixed port, no changes from the page"),
        ("headgate web --store redis://cache:6379", "the runs of many machines that report there"),
        (
            f"{A_TOKEN} headgate web --host 0.0.0.0 --port 8765",
            "for other machines too: needs your own token, best behind TLS",
        ),
    ],
)
@port_option(0, "The port to listen on.  [default: a free one]")
@host_option(TOKEN_VARIABLE)
@allow_host_option
@click.option("--store", metavar="URL", help="Show the runs that workers report to redis://host:6379 instead.")
@click.option("--read-only", is_flag=True, help="Allow no changes from the page (no pause, no stop, no limits).")
def command(port: int, host: str, names: tuple[str, ...], store: str | None, read_only: bool) -> int:
    """Show all runs of this machine in a browser: progress, learned rates and why they wait.

    It prints a link with a random token: anyone with the link may pause and stop runs. Every headgate run, crawl,
    proxy and demo of yours is there while it runs, and so is a program that announces itself (headgate.observe). With
    --store it shows the runs of a batch on several machines; pause and stop there hold for all workers.
    """
    token = access_token(host, TOKEN_VARIABLE)
    served = page(shown_runs(store), port, host=host, token=token, allow_hosts=names, read_only=read_only)
    with suppress(KeyboardInterrupt), sigterm_interrupts(), served:
        while True:
            time.sleep(3600)
    return DONE


def shown_runs(store: str | None) -> MonitoredRuns:
    """Those of this machine, or those of a store that answers."""
    if store is None:
        return machine_runs()
    from ..ui.run_sampler import fleet_runs

    runs = fleet_runs(store)
    try:
        runs.runs()
    except StoreDown as down:
        raise CommandFailed(redact(f"{down}.")) from None
    return runs
