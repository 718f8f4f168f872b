"""Places where a run can be ended on purpose, to prove that it may end anywhere.

``HEADGATE_KILL_AT=commit:3`` kills the process with SIGKILL when it passes ``commit`` for the third time.
Without it there is nothing to pass: whoever has steps asks once for ``chosen_end()`` and gets None.

| step      | passed by | when                                                          |
|-----------|-----------|---------------------------------------------------------------|
| claim     | ledger    | rows are being claimed, nothing is committed yet              |
| send      | runner    | a row is claimed, its call not yet sent                       |
| receive   | runner    | the answer is there, nothing is recorded                      |
| commit    | ledger    | results are being recorded, nothing is committed yet          |
| committed | ledger    | they are on disk, nobody knows it yet                         |
| write     | output    | lines are written, the checkpoint does not know it yet        |
"""

from __future__ import annotations

import os
from collections.abc import Callable

VARIABLE = "HEADGATE_KILL_AT"
STEPS = ("claim", "send", "receive", "commit", "committed", "write")

Pass = Callable[[str], None]


def chosen_end() -> Pass | None:
    """What to call with the name of each step, or None, as is usual."""
    chosen = os.environ.get(VARIABLE)
    if not chosen:
        return None
    step, _, times = chosen.partition(":")
    if step not in STEPS or not (times or "1").isdigit():
        raise ValueError(f"{VARIABLE} is {chosen!r}; it must be one of {', '.join(STEPS)}, with :N for the Nth time")
    left = int(times or "1")

    def passing(name: str) -> None:
        nonlocal left
        if name == step:
            left -= 1
            if left == 0:
                import signal

                os.kill(os.getpid(), signal.SIGKILL)

    return passing
