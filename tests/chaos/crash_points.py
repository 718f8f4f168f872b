"""Places where a process of a test ends itself, to prove that it may end anywhere.

``HEADGATE_KILL_AT=commit:3`` in the environment of one of the workers here kills it with SIGKILL when it comes to
``commit`` for the third time. The product knows nothing of it: its parts take a hook (``on_step``), which the workers
install.

| step      | of     | when                                                          |
|-----------|--------|---------------------------------------------------------------|
| claim     | ledger | rows are being claimed, nothing is committed yet              |
| send      | worker | a row is claimed, its call not yet sent                       |
| receive   | worker | the answer is there, nothing is recorded                      |
| commit    | ledger | results are being recorded, nothing is committed yet          |
| committed | ledger | they are on disk, and not yet acknowledged                    |
| write     | output | lines are written, the checkpoint does not know it yet        |
"""

import os
import signal
from pathlib import Path

VARIABLE = "HEADGATE_KILL_AT"
STEPS = ("claim", "send", "receive", "commit", "committed", "write")


def environment(kill_at=None):
    """Of a worker, which is a script beside this file; ``kill_at`` is where it shall end."""
    found = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return {**found, VARIABLE: kill_at} if kill_at else found


def on_step():
    """The hook that the environment asks for; one that does nothing, if it does not."""
    step, _, times = os.environ.get(VARIABLE, "").partition(":")
    assert not step or step in STEPS, step
    left = int(times or "1")

    def hook(name):
        nonlocal left
        if name == step:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook
