"""``headgate pause``: let no row start until ``headgate resume``."""

from __future__ import annotations

from ..ui.run_orders import order_command

ABOUT = """Pause a run: calls in flight finish, and no new row starts until headgate resume.

With --store it applies to all workers of a run on several machines, also to those that join later. Without
--store, RUN is a run of this machine, as for headgate watch.
"""

command = order_command(
    "pause",
    ABOUT,
    [
        ("headgate pause --store redis://cache:6379 --run nightly", "all workers of the run, on all machines"),
        ("headgate pause run-4711", "a run of this machine"),
    ],
)
