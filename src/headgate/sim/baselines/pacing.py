"""What several baselines do alike: wait for an instant, leave in slots, spend tokens, heed Retry-After."""

from __future__ import annotations

from .contract import Headers

ROUNDING = 1e-9
"""An instant this near has come."""


def wait_until(instant: float, now: float) -> float:
    """0 when the instant has come, else the seconds until it does."""
    return instant - now if now < instant - ROUNDING else 0.0


def told_to_wait(headers: Headers) -> float:
    """Retry-After in seconds. 0 if it is absent or a date, which these clients do not read."""
    try:
        return float(headers["retry-after"]) if headers else 0.0
    except (KeyError, ValueError):
        return 0.0


class Slots:
    """Calls leave one interval apart. A slot missed by up to ``slack`` seconds is made up for, an older one is lost."""

    __slots__ = ("next_at",)

    def __init__(self) -> None:
        self.next_at = 0.0

    def ask(self, now: float, *, interval: float, slack: float, not_before: float = 0.0) -> float:
        """Take the next slot and say 0, or say in how many seconds it comes."""
        wait = wait_until(max(self.next_at, not_before), now)
        if not wait:
            self.next_at = max(self.next_at, now - slack) + interval
        return wait


class Tokens:
    """A bucket on the client's side: it fills at ``rate`` up to ``capacity``; a call takes one."""

    __slots__ = ("capacity", "filled_at", "held", "rate")

    def __init__(self, rate: float, capacity: float, held: float = 1.0) -> None:
        self.rate, self.capacity, self.held = rate, capacity, held
        self.filled_at = 0.0

    def fill(self, now: float) -> None:
        self.held = min(self.capacity, self.held + (now - self.filled_at) * self.rate)
        self.filled_at = now

    def take(self, now: float) -> float:
        """Take a token and say 0, or say in how many seconds there will be one."""
        self.fill(now)
        if self.held < 1.0 - ROUNDING:
            return (1.0 - self.held) / self.rate
        self.held -= 1.0
        return 0.0
