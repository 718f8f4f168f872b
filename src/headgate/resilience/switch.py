"""The kill switch: an operator's way back to plain retries, without a new release.

    HEADGATE_ENHANCED_RESILIENCE=false                       for everybody
    HEADGATE_ENHANCED_RESILIENCE_SEMANTIC_SCHOLAR=false      for one provider (true exempts one)

Looked at before every call, so a program can also flip it while it runs. With it off there
is no limiter and no circuit: a call is sent at most ``max_attempts`` times, with backoff, within its
time budget, and that is all. A 429 or a refused credential uses up an attempt like anything else.
"""

from __future__ import annotations

import os
import re

SWITCH = "HEADGATE_ENHANCED_RESILIENCE"
_OFF = ("false", "0", "no", "off")


def switch_of(provider: str) -> str:
    """The variable of one provider: its name upper-cased, with ``_`` for all but letters and digits."""
    return f"{SWITCH}_{re.sub('[^A-Z0-9]', '_', provider.upper())}"


def is_on(switch: str) -> bool:
    """Whether calls under this provider's switch go through the gate. The narrower word wins."""
    for variable in (switch, SWITCH):
        try:  # and not get(): every call pays for this
            value = os.environ[variable].strip().lower()
        except KeyError:
            continue
        if value:
            return value not in _OFF
    return True
