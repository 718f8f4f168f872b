"""``headgate resume``: let a paused run go on."""

from __future__ import annotations

from ..ui.run_orders import order_command

ABOUT = """Resume a run after headgate pause.

With --store it applies to all workers of a run on several machines. Without --store, RUN is a run of this machine,
as for headgate watch. A run that was stopped is started again instead, by the same command as before.
"""

command = order_command(
    "resume",
    ABOUT,
    [
        ("headgate resume --store redis://cache:6379 --run nightly", "all workers of the run, on all machines"),
        ("headgate resume run-4711", "a run of this machine"),
    ],
)
