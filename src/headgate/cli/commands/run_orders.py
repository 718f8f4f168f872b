"""``headgate stop``, ``pause`` and ``resume``: one order for a run of this machine, or for all workers of a fleet."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ...distributed.store import StoreDown
from ...formatting import redact
from ...observe.run_registry import machine_runs
from ...observe.snapshot import Action, ActionRefusedError
from ..ui.options import ExampleCommand
from ..ui.run_page import HERE
from ..ui.run_sampler import MOST_NAMES, ShownRun, choose_run, fleet_runs
from ..ui.terminal import DONE, CommandFailed, say


def order_command(kind: str, about: str, examples: list[tuple[str, str]]) -> click.Command:
    """The command that gives runs this order."""

    @click.command(kind, cls=ExampleCommand, examples=examples, help=about)
    @click.argument("run", required=False, metavar="[RUN]")
    @click.option("--store", metavar="URL", help="The store that the workers of the run report to: redis://host:6379.")
    @click.option("--run", "fleet_run", metavar="NAME", help="With --store: the name of the run.")
    def command(run: str | None, store: str | None, fleet_run: str | None) -> int:
        if store is None and fleet_run is not None:
            raise click.UsageError(f"--run needs --store: headgate {kind} --store redis://host:6379 --run {fleet_run}.")
        if store is not None and run is not None:
            raise click.UsageError("with --store, name the run with --run NAME.")
        try:
            chosen = find_run(store, fleet_run if store is not None else run)
            said = chosen.act(Action(kind=kind))
        except ActionRefusedError as refusal:
            text = str(refusal)
            raise CommandFailed(f"{text[0].lower()}{text[1:]}.") from None
        except StoreDown as down:
            raise CommandFailed(redact(f"{down}.")) from None
        say(f"{chosen.name}: {said}.")
        return DONE

    return command


def find_run(store: str | None, wanted: str | None) -> ShownRun:
    """The run of this name, or the only one that goes on."""
    runs: Sequence[ShownRun] = machine_runs().runs() if store is None else fleet_runs(store).runs()
    where = HERE if store is None else "in this store"
    if wanted is not None:
        return choose_run(runs, wanted, where)
    going = [run for run in runs if run.snapshot().state != "ended"]
    if len(going) == 1:
        return going[0]
    if not going:
        raise CommandFailed(f"no run is active {where}.")
    names = ", ".join(run.name for run in going[:MOST_NAMES])
    raise click.UsageError(f"{len(going)} runs are active {where}; name one: {names}.")


pause = order_command(
    "pause",
    """Pause a run: calls in flight finish, and no new row starts until headgate resume.

With --store it applies to all workers of a run on several machines, also to those that join later. Without
--store, RUN is a run of this machine, as for headgate watch.
""",
    [
        ("headgate pause --store redis://cache:6379 --run nightly", "all workers of the run, on all machines"),
        ("headgate pause run-4711", "a run of this machine"),
    ],
)

resume = order_command(
    "resume",
    """Resume a run after headgate pause.

With --store it applies to all workers of a run on several machines. Without --store, RUN is a run of this machine,
as for headgate watch. A run that was stopped is started again instead, by the same command as before.
""",
    [
        ("headgate resume --store redis://cache:6379 --run nightly", "all workers of the run, on all machines"),
        ("headgate resume run-4711", "a run of this machine"),
    ],
)

stop = order_command(
    "stop",
    """Stop a run: calls in flight finish, no new row starts, and nothing is lost.

With --store it stops all workers of a run on several machines, within about two seconds; those that start later in
the same job stop too. The same run can be started again: rows that are done are not called again. Without --store,
RUN is a run of this machine, as for headgate watch.
""",
    [
        ("headgate stop --store redis://cache:6379 --run nightly", "all workers of the run, on all machines"),
        ("headgate stop run-4711", "a run of this machine; start it again to resume"),
    ],
)
