"""Rate controllers by name: how fast the calls of one key may start.

To add one:

1. Write ``controllers/<name>.py``: a subclass of ``core.controller.Controller``, which says what a controller promises,
   with ``to_state`` and ``load_state``, since idle keys are packed, and ``factory(options)``, which returns a function
   that makes one for a key. ``fixed.py`` is the shortest, ``aimd.py`` the one to start from. Settings of its own are
   fields of ``RateLimitConfig`` and ``ControllerOptions``.
2. Add its name to ``CONTROLLERS`` below.
3. Say what it goes by: a ``PaceReason`` in ``core/decision.py`` for its ``why()``, worded in ``reason_text.py``.
4. Test what is its own in ``tests/controllers/test_<name>.py``, and name it in docs/limiter.md, "Your own strategy".

``RateLimitConfig(strategy="<name>")``, the lab and ``headgate simulate --strategy <name>`` know it from then on, and
``tests/controllers/test_contract.py`` holds it to what every controller promises. (``headgate run`` has no option for a
strategy: it is always adaptive.)
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from ..core.controller import Controller
from ..plugins import CONTROLLERS as PLUGINS
from ..plugins import has_plugin, load_plugin


class Entry(NamedTuple):
    module: str
    """The module of this package that makes it; imported when it is first used."""
    about: str
    """One line for a list of strategies."""


CONTROLLERS = {
    "adaptive": Entry("adaptive", "the default: measures the quota, or follows the server's rate-limit headers"),
    "aimd": Entry("aimd", "additive increase, multiplicative decrease, one cut for a burst of rate-limited answers"),
    "gradient": Entry("gradient", "slows down when response times rise"),
    "fixed": Entry("fixed", "a constant rate, 2/s by default"),
    "leaky": Entry("fixed", "a constant rate without bursts, 2/s by default"),
}

ControllerFactory = Callable[[], Controller]


class ControllerOptions(Protocol):
    """What a controller may read of the configuration; ``RateLimitConfig`` has all of it."""

    @property
    def min_rps(self) -> float: ...

    @property
    def max_rps(self) -> float | None: ...

    @property
    def aimd_increase(self) -> float: ...

    @property
    def aimd_decrease(self) -> float: ...

    @property
    def latency_target(self) -> float: ...

    @property
    def latency_degrade_factor(self) -> float: ...

    def starting_rate(self) -> float: ...


def is_controller(name: object) -> bool:
    """Whether ``controller_factory`` knows it: one of ``CONTROLLERS``, or of an installed plugin."""
    return name in CONTROLLERS or has_plugin(PLUGINS, name)


def controller_factory(name: str, options: ControllerOptions) -> ControllerFactory:
    """What makes the controllers of single keys. Raises ``PluginError``."""
    if name not in CONTROLLERS:
        make = load_plugin(PLUGINS, name)
        return lambda: make(options)
    module: Any = import_module(f"{__name__}.{CONTROLLERS[name].module}")
    factory: ControllerFactory = module.factory(options)
    return factory


def rate_bounds(options: ControllerOptions) -> dict[str, float]:
    """Where to begin, and what the learned rate never leaves: fields of the settings of every controller."""
    most = float("inf") if options.max_rps is None else options.max_rps
    return {"initial": options.starting_rate(), "least": options.min_rps, "most": most}
