"""What a function may know about the call it makes, and what a call asks of credentials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from ..core.decision import UNKNOWN, Outcome
from ..core.signal import Signal
from ..errors import ConfigError
from ..limiter.permit import Permit, real_cost
from ..wire import Headers, signal_of

if TYPE_CHECKING:
    from ..clock import Clock
    from .call import Call


class Lease(Protocol):
    """A credential in use. It ends once: by ``report`` or by ``release``.

    It may have ``is_void``: whether it should not be used after all, so that another is asked for; ``paced_by``:
    the name that it and those that share its limits keep one pace under; and ``waited``: seconds in the queue for it.
    """

    @property
    def secret(self) -> str: ...
    @property
    def label(self) -> str: ...
    def report(self, answer: object = None, *, signal: Signal | None = None) -> object: ...
    def release(self) -> object: ...


class Credentials(Protocol):
    """A source of credentials, such as a ``CredentialCoordinator``.

    It may have ``labels``: a call goes on with another credential as often as there are some.
    """

    def acquire(self, timeout: float | None = None) -> Lease: ...
    async def acquire_async(self, timeout: float | None = None) -> Lease: ...  # noqa: ASYNC109 - theirs


def cannot_spend(credentials: Credentials | None) -> bool:
    """Whether the accounts of all of them are out of credit: a wait of minutes for one is not what callers mean."""
    labels, why = getattr(credentials, "labels", ()), getattr(credentials, "rests_because", None)
    return bool(labels) and why is not None and all(why(label) == Outcome.SPEND.value for label in labels)


def check_credentials(credentials: object) -> None:
    """Bare keys are refused: what one call learns of them, the next would not know."""
    if not (hasattr(credentials, "acquire") and hasattr(credentials, "acquire_async")):
        raise ConfigError(
            f"credentials={type(credentials).__name__} must be a CredentialCoordinator, made once for all calls: "
            "keys = CredentialCoordinator([...])"
        )


KEY_HEADER = "Authorization: Bearer {secret}"
"""What a credential is sent in, where nothing else is said."""
KEY_GAP = "{secret}"


def parse_key_header(number: int, form: str) -> tuple[str, str]:
    """Name and value of the header that the credentials of origin ``number`` go into; raises ``ConfigError``."""
    name, colon, value = form.partition(":")
    if not (colon and name.replace("-", "").isalnum() and form.isascii() and form.isprintable()):
        raise ConfigError(f"credentials: number {number} needs a header such as {KEY_HEADER!r}")
    if value.count(KEY_GAP) != 1:
        raise ConfigError(f"credentials: number {number} needs {KEY_GAP} once in the value of its header")
    return name, value.strip()


class CallInProgress(Protocol):
    """What a context needs to know of the call it belongs to, be it a single one or a row of a batch."""

    reported: Signal | None
    response: object
    real_cost: float | Mapping[str, float] | None

    @property
    def attempt(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def attempt_timeout(self) -> float: ...
    @property
    def correlation_id(self) -> str: ...
    @property
    def lease(self) -> Lease | None: ...
    @property
    def permit(self) -> Permit | None: ...
    @property
    def clock(self) -> Clock: ...
    def time_left(self) -> float: ...


class CallContext:
    """Passed to a function that accepts it: the credential, the time left, and where to report."""

    __slots__ = ("_call",)

    def __init__(self, call: CallInProgress) -> None:
        self._call = call

    @property
    def provider(self) -> str:
        call = cast("Call", self._call)
        return call.target or call.provider.name

    @property
    def model(self) -> str:
        """The model to ask for, where the call has moved to a fallback with another one; empty: the usual."""
        return getattr(self._call, "model", "")

    @property
    def attempt(self) -> int:
        """From 1. Sending again because of a rate limit is the same attempt."""
        return self._call.attempt

    @property
    def max_attempts(self) -> int:
        return self._call.max_attempts

    @property
    def remaining(self) -> float | None:
        """Seconds this attempt may take: a good timeout for the request. None is no bound."""
        seconds = min(self._call.time_left(), self._call.attempt_timeout)
        return None if seconds == UNKNOWN else seconds

    @property
    def correlation_id(self) -> str:
        """The same for all attempts and events of this call."""
        return self._call.correlation_id

    @property
    def credential(self) -> str | None:
        """The secret to use, if the call was given credentials."""
        lease = self._call.lease
        return None if lease is None else lease.secret

    @property
    def credential_label(self) -> str | None:
        """What to call that credential where others can read it."""
        lease = self._call.lease
        return None if lease is None else lease.label

    @property
    def permit(self) -> Permit | None:
        """The limiter's permit; None while the kill switch is off."""
        return self._call.permit

    def report(
        self,
        answer: object = None,
        *,
        status_code: int | None = None,
        headers: Headers | None = None,
        body: bytes | str | Mapping[str, object] | None = None,
        retry_after: float | None = None,
        cost: float | Mapping[str, float] | None = None,
    ) -> Outcome:
        """Say what was answered, where the function itself returns something else. Returns what it counts as.

        Headers teach the pace, and an error inside a 200 becomes an outcome like any other: if it may be
        retried, what the function returns is put aside and it is called again.
        """
        call = self._call
        call.real_cost = None if cost is None else real_cost(cost)
        if answer is None and status_code is None:
            status_code = 200  # a body, or a cost, comes with an answer
        call.reported = signal_of(answer, status_code, headers, body, retry_after, call.clock.wall())
        call.response = None if isinstance(answer, BaseException | Signal) else answer
        return call.reported.outcome

    def __repr__(self) -> str:
        return f"<CallContext {self.provider!r}, attempt {self.attempt} of {self.max_attempts}>"
