"""How a room of the controller is put into a store and taken out again.

Everything the controller learns lives in a few small objects. Each names its fields once,
in ``__slots__``; that list is also what is stored, so nothing can be remembered that is
not also saved, and a stored room is as flat as a row. A class that adds no field is stored as its base.
"""

from __future__ import annotations

from array import array
from enum import Enum
from typing import Any, ClassVar


class Room:
    __slots__: tuple[str, ...] = ()
    stored: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.stored = cls.__slots__ or cls.stored

    def to_state(self) -> tuple[Any, ...]:
        """Every field as plain numbers, strings, bytes and tuples."""
        return tuple(_plain(getattr(self, name)) for name in self.stored)

    def load_state(self, state: tuple[Any, ...]) -> None:
        """Go on from ``to_state()``; a state of another shape raises ``ValueError``."""
        for name, value in zip(self.stored, state, strict=True):
            mine = getattr(self, name)
            if isinstance(mine, Room):
                mine.load_state(value)
            elif isinstance(mine, array):
                mine = array(mine.typecode)
                mine.frombytes(value)
                setattr(self, name, mine)
            elif isinstance(mine, Enum):
                setattr(self, name, type(mine)(value))
            else:
                setattr(self, name, value)


def _plain(value: Any) -> Any:
    if isinstance(value, Room):
        return value.to_state()
    if isinstance(value, array):
        return value.tobytes()
    return value.value if isinstance(value, Enum) else value
