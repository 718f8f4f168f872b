"""Plugins: vendors, stores and controllers of other packages, found by their entry points.

    group                    named by                                  the entry point is
    headgate.vendors         --to NAME, TargetConfig(to=NAME)          a batch.endpoints.Vendor
    headgate.stores          --store NAME or NAME://..., store=        a function (where, timeout) -> Store
    headgate.controllers     RateLimitConfig(strategy=NAME)            a function (config) -> Controller, or the class

An installed package alone changes nothing: its entry point is imported when its name is used, and never in place of a
name that Headgate knows itself. ``examples/plugin`` is a package with one of each.
"""

from __future__ import annotations

from typing import Any

VENDORS, STORES, CONTROLLERS = "headgate.vendors", "headgate.stores", "headgate.controllers"


class PluginError(Exception):
    """The plugin of this name cannot be imported; the message says which package and why."""


def has_plugin(group: str, name: object) -> bool:
    """Whether an installed package offers this name. Nothing of it is imported."""
    return isinstance(name, str) and bool(_entry_points(group, name))


def load_plugin(group: str, name: str) -> Any:
    """The object of this entry point; None if no installed package offers the name. Raises ``PluginError``."""
    found = _entry_points(group, name)
    if not found:
        return None
    if len({point.value for point in found}) > 1:
        raise PluginError(f"{name!r} is registered by several packages: {', '.join(map(_package_of, found))}; keep one")
    try:
        return found[0].load()
    except Exception as error:
        raise PluginError(f"{name!r} of {_package_of(found[0])} cannot be loaded ({type(error).__name__})") from error


def _entry_points(group: str, name: str) -> list[Any]:
    from importlib.metadata import entry_points  # here, because it costs as much as all of ``import headgate``

    return list(entry_points(group=group, name=name)) if name else []


def _package_of(point: Any) -> str:
    return "an unknown package" if point.dist is None else str(point.dist.name)
