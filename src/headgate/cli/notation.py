"""Options whose values are written in the short forms of ``sim.notation``: 50/s, 40ms, 0.5@10s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class Notation(click.ParamType):  # type: ignore[type-arg]
    """Read by a function that raises ``ValueError`` with a sentence for people."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), parameter, context)
