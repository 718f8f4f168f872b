"""What can go wrong, in two families: ``Refused`` (the call was never sent) and ``Failed`` (it was, and went wrong).

A refusal counts against no budget. It says which key, why, and, where that is known,
in how many seconds it is worth asking again (``retry_after``). A failure says which
provider answered what, never with which secret. Their messages are one line without control codes, whatever a key
or a server's words hold; their attributes are as they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .checks import ConfigError as ConfigError
from .checks import HeadgateError as HeadgateError
from .core.decision import Explanation, Outcome
from .formatting import format_seconds, printable


class LedgerError(HeadgateError):
    """A ledger or a frontier cannot be used as asked: the message says what is wrong and what to do."""


class InputError(HeadgateError):
    """The input cannot be read, or not on from here: the message says where it stopped and what to do."""


class OutputError(HeadgateError):
    """The output cannot be written. Nothing is lost: what is not in it is still to be written from the ledger."""


class Refused(HeadgateError):  # noqa: N818 - a family, not an error by itself
    """The call was not sent."""

    code = "refused"
    """Why, for programs; ``reason`` is for people."""
    sent = False
    """Whether it had been sent before, and what was refused is only to send it again."""
    explanation: Explanation | None = None
    """What ``reason`` is made of, as data, where a gate has refused."""

    def __init__(self, key: str, reason: str, retry_after: float | None = None) -> None:
        self.key = key
        self.reason = reason
        self.retry_after = retry_after
        hint = "" if retry_after is None else f"; try again in {format_seconds(retry_after)}"
        super().__init__(printable(f"{key}: {reason}{hint}"))

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.key, self.reason, self.retry_after), vars(self))


class CircuitOpenError(Refused):
    """The target has been failing; the circuit lets nothing through but a probe."""

    code = "circuit_open"


class WaitTooLongError(Refused):
    """The wait would have been longer than ``max_wait`` or the deadline allow."""

    code = "wait_too_long"


class TooManyKeysError(Refused):
    """``max_keys`` keys are in use and none can be evicted."""


class CostTooLargeError(Refused, ValueError):
    """The cost is above a known limit: no wait would ever be long enough."""


class TimeBudgetExceededError(Refused):
    """The time budget is spent, or the next step would not fit into it."""

    code = "time_budget"

    def __init__(
        self, key: str, reason: str, retry_after: float | None = None, *, elapsed: float = 0.0, attempts: int = 0
    ) -> None:
        super().__init__(key, reason, retry_after)
        self.elapsed = elapsed
        self.attempts = attempts
        self.sent = attempts > 0


class NoCredentialError(Refused):
    """No credential can be used now. ``earliest_reset`` is in how many seconds the first is back, where one will be."""

    code = "no_credential"
    reasons: Mapping[str, str] = MappingProxyType({})
    """Why each of them rests or is retired, by its label: rate_limited, quota_exhausted, auth, key_dead, ..."""

    @property
    def earliest_reset(self) -> float | None:
        return self.retry_after


class Failed(HeadgateError):  # noqa: N818 - a family, as Refused is
    """The call was sent and did not succeed."""

    code = "failed"
    """What kind of failure it is, for programs; ``reason`` is for people."""
    outcome: Outcome | None = None
    """What it counts as, where no answer is at hand to tell."""
    response: object | None = None
    """The answer, where it is still at hand: headers and body say more than these few words."""

    def __init__(
        self, provider: str, reason: str, *, status_code: int | None = None, retry_after: float | None = None
    ) -> None:
        self.provider = provider
        self.reason = reason
        self.status_code = status_code
        self.retry_after = retry_after
        hint = "" if retry_after is None else f"; try again in {format_seconds(retry_after)}"
        super().__init__(printable(f"{provider}: {reason}{hint}"))

    def __reduce__(self) -> tuple[object, ...]:
        return (_failed, (type(self), self.provider, self.reason), vars(self))


def _failed(kind: type[Failed], provider: str, reason: str) -> Failed:
    return kind(provider, reason)


class ProviderError(Failed):
    """Any other error from the provider."""

    code = "provider"


class RateLimitError(Failed):
    """The provider asks for fewer calls, or the quota is used up; ``retry_after`` says for how long, where known."""

    code = "rate_limit"
    outcome = Outcome.RATE_LIMITED


class AuthenticationError(Failed):
    """The provider rejected the credential."""

    code = "auth"
    outcome = Outcome.AUTH
