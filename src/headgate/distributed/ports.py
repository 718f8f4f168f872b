"""What the parts of a shared quota need of those around them: the limiter, the process among its members, and a key."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from ..core.policy import GateStatus

if TYPE_CHECKING:
    from .lease_client import LeaseClient


class LimiterPort(Protocol):
    """What the loop needs of the limiter whose keys it shares. ``owner`` is the limiter's own record of a key."""

    @property
    def lock(self) -> AbstractContextManager[Any]: ...

    @property
    def is_paused(self) -> bool: ...

    @property
    def draw(self) -> Callable[[], float]: ...

    def now(self) -> float: ...

    def serve(self, owner: Any, now: float) -> None:
        """Let through the waiters whose turn has come."""

    def note_synced(self, owner: Any, before: GateStatus, now: float) -> None:
        """The coordinator's reply was taken: tell what has changed since ``before``."""

    def note_store(self, kind: str, owner: Any, now: float, reason: str) -> None:
        """The store was lost, or is back."""

    def flush_events(self) -> None:
        """Tell listeners what was noted, with no lock held."""


class Membership(Protocol):
    """What a client needs of its process's place among the members."""

    member: str
    """The name of this process in the store."""
    where: str
    """For people: which store."""
    refuses: bool
    """Whether nothing may start while the store is lost."""
    draw: Callable[[], float]

    @property
    def is_paused(self) -> bool:
        """Whether an operator lets nothing start."""
        ...

    def next_number(self) -> int:
        """The number of this member's next request."""
        ...

    def wake(self, client: LeaseClient) -> None:
        """This client's exchange is due."""
        ...


class KeyRecord(Protocol):
    """The limiter's own record of a key; it is only handed back."""

    used_at: float
    """When it was opened, or a call of it last ended."""


class Wake(Protocol):
    """What a round waits for."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...
