"""Packages whose names are loaded when they are first taken: to use one part is not to pay for the others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, places: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package: ``places`` has the names of each of its modules.

    For type checkers, the package imports the same names under ``TYPE_CHECKING``.
    """

    def get(name: str) -> object:
        for module, names in places.items():
            if name in names:
                found: object = getattr(import_module(f".{module}", package), name)
                setattr(sys.modules[package], name, found)
                return found
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
