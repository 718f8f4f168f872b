"""``headgate stop``: stop all workers of a run, or a run of this machine."""

from __future__ import annotations

from ..ui.run_orders import order_command

ABOUT = """Stop a run: calls in flight finish, no new row starts, and nothing is lost.

With --store it stops all workers of a run on several machines, within about two seconds; those that start later in
the same job stop too. The same run can be started again: rows that are done are not called again. Without --store,
RUN is a run of this machine, as for headgate watch.
"""

command = order_command(
    "stop",
    ABOUT,
    [
        ("headgate stop --store redis://cache:6379 --run nightly", "all workers of the run, on all machines"),
        ("headgate stop run-4711", "a run of this machine; start it again to resume"),
    ],
)
