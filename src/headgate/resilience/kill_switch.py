"""The kill switch: an operator's way back to plain retries, without a new release.

    HEADGATE_ENHANCED_RESILIENCE=false                       for all providers
    HEADGATE_ENHANCED_RESILIENCE_SEMANTIC_SCHOLAR=false      for one provider (true exempts one)

Looked at before every call, so a program can also flip it while it runs. With it off there
is no limiter and no circuit: a call is sent at most ``max_attempts`` times, with backoff, within its
time budget, and that is all. A 429 or a refused credential uses up an attempt like anything else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

SWITCH = "HEADGATE_ENHANCED_RESILIENCE"
_OFF = ("false", "0", "no", "off")
_variables: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
"""What ``os.environ`` keeps its variables in. To find there that one is not set takes 0.04 us instead of 0.7, and every
call asks for two."""
_encode = getattr(os.environ, "encodekey", str) if _variables is not os.environ else str


class KillSwitch:
    """The switch of one provider."""

    __slots__ = ("_encoded", "variable")

    def __init__(self, provider: str) -> None:
        self.variable = f"{SWITCH}_{re.sub('[^A-Z0-9]', '_', provider.upper())}"
        """The provider's name upper-cased, with ``_`` for all but letters and digits."""
        self._encoded = _encode(self.variable)

    def is_enabled(self) -> bool:
        """Whether calls to the provider go through the gate. Its own variable goes before that of all providers."""
        if self._encoded not in _variables and _ENCODED_SWITCH not in _variables:
            return True
        for variable in (self.variable, SWITCH):
            value = os.environ.get(variable, "").strip().lower()
            if value:
                return value not in _OFF
        return True


_ENCODED_SWITCH = _encode(SWITCH)
