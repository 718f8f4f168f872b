"""What can go wrong, in two families: ``Refused`` (the call was never sent) and bad input.

A refusal counts against nobody. It says which key, why, and, where that is known,
in how many seconds it is worth asking again (``retry_after``).
"""

from __future__ import annotations

from .core.words import span


class HeadgateError(Exception):
    """The root of what Headgate raises about calls and settings."""


class ConfigError(HeadgateError, ValueError):
    """Something was asked for that cannot be: the message names the field, the value and the range."""


class Refused(HeadgateError):  # noqa: N818 - a family, not an error of anyone's
    """The call was not sent."""

    def __init__(self, key: str, reason: str, retry_after: float | None = None) -> None:
        self.key = key
        self.reason = reason
        self.retry_after = retry_after
        hint = "" if retry_after is None else f"; try again in {span(retry_after)}"
        super().__init__(f"{key}: {reason}{hint}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.key, self.reason, self.retry_after), vars(self))


class CircuitOpenError(Refused):
    """The target has been failing; the circuit lets nothing through but a probe."""


class WaitTooLongError(Refused):
    """The wait would have been longer than ``max_wait`` or the deadline allow."""


class TooManyKeysError(Refused):
    """``max_keys`` are in use and none of them can be forgotten."""


class CostTooLargeError(Refused, ValueError):
    """The cost is above a known limit: no wait would ever be long enough."""


class TimeBudgetExceededError(Refused):
    """The time budget is spent, or what comes next would not fit into it."""

    def __init__(
        self, key: str, reason: str, retry_after: float | None = None, *, elapsed: float = 0.0, attempts: int = 0
    ) -> None:
        super().__init__(key, reason, retry_after)
        self.elapsed = elapsed
        self.attempts = attempts
