"""How what the controller has learned is put into a store and taken out again.

Everything it learns lives in a few small dataclasses. What is stored are their fields, in the order in which they are
declared: nothing can be remembered that is not also saved, and a stored object is as flat as a row. Names are not
stored, so a field may be renamed in its place; dropping or moving one makes stored states unreadable. One that is added
begins with 0 or False, comes last and is counted in ``added``: it is stored once it is used, and a state without it
leaves it as it begins.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, ClassVar

_array: Any = array
no_floats: Callable[[], array[float]] = partial(_array, "d")
no_singles: Callable[[], array[float]] = partial(_array, "f")
no_integers: Callable[[], array[int]] = partial(_array, "q")
"""What fields that are arrays begin with."""


class Phase(Enum):
    """The values are stored."""

    START = "start"
    CRUISE = "cruise"
    PROBE = "look"
    CLIMB = "seek"
    BLOCK = "block"


STEADY = (Phase.CRUISE, Phase.PROBE)
"""The pace is around a quota that was measured; in the others it moves fast, or nothing starts."""


class Storable:
    __slots__: tuple[str, ...] = ()
    not_stored: ClassVar[tuple[str, ...]] = ()
    added: ClassVar[int] = 0
    stored: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.stored = tuple(name for name in cls.__slots__ if name not in cls.not_stored)

    def to_state(self) -> tuple[Any, ...]:
        """Every field as plain numbers, strings, bytes and tuples."""
        state = [_plain(getattr(self, name)) for name in self.stored]
        unused = next((back for back in range(self.added) if state[-1 - back]), self.added)
        return tuple(state[: len(state) - unused])

    def load_state(self, state: tuple[Any, ...]) -> None:
        """Go on from ``to_state()``; a state of another shape raises ``ValueError``."""
        if not 0 <= len(self.stored) - len(state) <= self.added:
            raise ValueError(f"a state of {len(state)} fields does not fit {type(self).__name__}")
        for name, value in zip(self.stored, state, strict=False):
            field = getattr(self, name)
            if isinstance(field, Storable):
                field.load_state(value)
            elif isinstance(field, array):
                loaded = array(field.typecode)
                loaded.frombytes(value)
                setattr(self, name, loaded)
            elif isinstance(field, Enum):
                setattr(self, name, type(field)(value))
            else:
                setattr(self, name, value)


def _plain(value: Any) -> Any:
    if isinstance(value, Storable):
        return value.to_state()
    if isinstance(value, array):
        return value.tobytes()
    return value.value if isinstance(value, Enum) else value
