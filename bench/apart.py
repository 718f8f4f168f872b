"""Run one behaviour test on one contender in a process of its own, under a time limit.

A limiter that hangs, patches of the clock and threads that never end stay in that process. It
prints its figures as one line of JSON and leaves without waiting for anybody.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from bench.behaviours import BEHAVIOURS, MEMORY, Behaviour
from bench.pacing import Figures

TIME_LIMIT = 20.0
"""Seconds a test may take, start of the interpreter included; the longest needs about seven."""


class NoFiguresError(Exception):
    """The test did not end in time, or failed; the message says which."""


def run_apart(behaviour: Behaviour, contender: str, *, quick: bool) -> Figures:
    command = [sys.executable, "-m", __spec__.name, behaviour.name, contender, "quick" if quick else "full"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise NoFiguresError(f"no end within {TIME_LIMIT:.0f} s") from None
    if ended.returncode != 0:
        raise NoFiguresError(f"failed: {(ended.stderr.strip() or 'no reason given').splitlines()[-1]}")
    return json.loads(ended.stdout.splitlines()[-1])


if __name__ == "__main__":
    name, contender, length = sys.argv[1:]
    behaviour = next(one for one in (*MEMORY, *BEHAVIOURS) if one.name == name)
    print(json.dumps(behaviour.measure(contender, length == "quick")), flush=True)
    os._exit(0)
