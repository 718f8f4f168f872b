"""Module paths of earlier versions: they still import, and warn.

Each is an alias that loads the new module when a name is first taken from it, so it costs nothing until then.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

MOVED: dict[str, tuple[str, dict[str, str]]] = {
    "headgate.batch.formats": ("headgate.batch.input", {}),
    "headgate.core.ticket": ("headgate.core.policy", {}),
    "headgate.crawl.fetched": (
        "headgate.crawl.fetch.response",
        {"Fetched": "FetchResponse", "FetchProblem": "FetchError"},
    ),
    "headgate.integrations.passing": ("headgate.integrations.client_gate", {}),
    "headgate.observe.announcing": ("headgate.observe.run_registry", {}),
    "headgate.observe.logs": ("headgate.observe.exporters.logs", {}),
    "headgate.observe.otel": ("headgate.observe.exporters.otel", {}),
    "headgate.observe.prometheus": ("headgate.observe.exporters.prometheus", {}),
    "headgate.observe.source": (
        "headgate.observe.snapshot",
        {"Source": "MonitoredRun", "Sources": "MonitoredRuns"},
    ),
    "headgate.observe.watched": ("headgate.observe.monitor", {"Watched": "RunMonitor"}),
    "headgate.resilience.pairing": ("headgate.resilience.credential_scope", {}),
    "headgate.sim": ("headgate.lab", {}),
    "headgate.sim.recording": ("headgate.lab.traces.replay", {}),
    "headgate.sim.replay": ("headgate.lab.traces.replay", {}),
    "headgate.sim.trace": ("headgate.lab.traces.trace", {}),
    "headgate.sim.trace_reading": ("headgate.lab.traces.reader", {}),
    "headgate.sim.virtual": ("headgate.lab.virtual_time", {}),
}
"""By old path: the new one, and names that have changed."""


class _MovedModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        path, renamed = MOVED[self.__name__]
        new = renamed.get(name, name)
        value = getattr(import_module(path), new)
        warnings.warn(f"{self.__name__}.{name} has moved: use {path}.{new}", DeprecationWarning, stacklevel=2)
        return value


def register() -> None:
    """Make the old paths importable; called once, by ``import headgate``."""
    for name in MOVED:
        sys.modules.setdefault(name, _MovedModule(name))
