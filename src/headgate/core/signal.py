"""What an answer says about its limits, the same for every server and dialect.

``wire`` makes signals out of status, headers and body; controllers and gates read them. Times are seconds from the
moment the answer came in, never instants, so a signal means the same on every clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from .decision import Outcome

SUBSCRIPTION = "subscription"
"""The dimension of a plan's windows of hours and days, in percent: what they count is not told, only when they end."""

CALLS_BY_TOKENS = "requests_by_tokens"
"""The dimension of a limit on tokens that is given in calls, as large as they are on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit that the server states. What it did not state is ``None``."""

    dimension: str = "requests"
    """What is counted: requests, tokens, input_tokens, output_tokens, concurrency, content-bytes, ..."""
    limit: float | None = None
    """How much fits into one window."""
    remaining: float | None = None
    reset: float | None = None
    """Seconds until it is whole again, within [0, 31 days]."""
    window: float | None = None
    """Seconds that ``limit`` is counted over."""
    name: str = ""
    """The server's own name for this budget (a policy, a bucket, a resource)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One answer, normalised."""

    outcome: Outcome
    retry_after: float | None = None
    """A floor: nothing under this scope starts sooner, in seconds within [0, 31 days]."""
    limits: tuple[Limit, ...] = ()
    scope: str | None = None
    """Who must rest, where the server says so: a model, a bucket, ``global``, ``credential``, ..."""
    dialect: str = ""
    """Which dialect was recognised, for people."""
    reason: str = ""
    """The server's own code for what happened (``insufficient_quota``), bounded, for people."""
    is_forbidden: bool = False
    """A 403 that says nothing of the key: it may be about this one request, and the key as good as before."""
    account: tuple[str, ...] = ()
    """Whose limits these are, where headers say so: an organisation, and a project or a workspace in it."""
    is_unknown_model: bool = False
    """The server has no such model (any more): every call that names it fails in the same way."""
    is_refused_content: bool = False
    """The model, or a filter before it, will not answer this; another model may."""


SILENT = {outcome: Signal(outcome=outcome) for outcome in Outcome}
"""The signals of answers that said nothing but how they ended."""
