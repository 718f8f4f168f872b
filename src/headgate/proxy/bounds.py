"""What a proxy allows, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import check


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    kept: int = 1 << 20
    """Bytes of a body that is kept, so that it can be sent again."""
    kept_in_all: int = 128 << 20
    """Beside them are ``UNREAD`` bytes of each body that is streamed: 125 MiB with all connections."""
    connections: int = 2_000
    """Of clients, at once."""
    stalled: float = 60.0
    """Seconds for which a client may neither send nor read what it should."""
    idle: float = 75.0
    """Seconds until a connection without a whole request is closed."""

    def __post_init__(self) -> None:
        check("kept", self.kept, 0 <= self.kept <= 1 << 20, "0 to 1,048,576 bytes")
        for name in ("kept_in_all", "connections", "stalled", "idle"):
            check(name, getattr(self, name), getattr(self, name) > 0, "more than 0")


@dataclass(slots=True)
class Counts:
    answered: int = 0
    """The API's response was passed on."""
    moved: int = 0
    """Of these, and of those that broke off: the response was a fallback's."""
    refused: int = 0
    """By the gate: 429, 503."""
    failed: int = 0
    """No response, or not all of it."""
    turned_away: int = 0
    """Rejected by admission."""
    left: int = 0
    """The client disconnected."""


class MemoryBudget:
    """Bytes that all kept bodies together may take."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    def take(self, size: int) -> bool:
        if self.taken + size > self.most:
            return False
        self.taken += size
        return True

    def give_back(self, size: int) -> None:
        self.taken -= size
