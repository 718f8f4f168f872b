"""Options whose values are written in the short forms of ``sim.notation``: 50/s, 40ms, 0.5@10s."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from headgate.sim.notation import read_whole_number


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


WHOLE = Notation("INTEGER", read_whole_number)


class WholeNumber(click.IntRange):
    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        return super().convert(WHOLE.convert(value, parameter, context), parameter, context)


class Number(click.FloatRange):
    """Not a range for "nan", which compares with nothing and so would pass every bound."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", parameter, context)
        return super().convert(number, parameter, context)
