"""``release_credential`` takes whatever a program has read as a backoff, and never keeps the key."""

from __future__ import annotations

import contextlib
import math

import pytest

from headgate import ConfigError, CredentialCoordinator, Outcome, Signal
from headgate.core.cooldown import FixedCooldown
from headgate.credentials import Identities
from headgate.lab.virtual_time import VirtualClock

LONGEST = 31 * 86400.0


def rested(backoff: object) -> tuple[CredentialCoordinator, float | None]:
    """A key released as rate limited, and for how long it rests."""
    keys = CredentialCoordinator(
        ["secret-of-a"], clock=VirtualClock(), identities=Identities(b"a test"), cooldown=FixedCooldown(7.0)
    )
    assert keys.get_credential() == "secret-of-a"
    with contextlib.suppress(ConfigError):
        keys.release_credential("secret-of-a", rate_limited=True, backoff_seconds=backoff)  # type: ignore[arg-type]
    return keys, keys.states()[0].back_in


@pytest.mark.parametrize("unknown", [None, math.nan])
def test_what_is_not_known_rests_as_after_a_silent_refusal(unknown: float | None) -> None:
    assert rested(unknown)[1] == 7.0


@pytest.mark.parametrize("huge", [math.inf, 1e300, 10**400, LONGEST + 1])
def test_no_rest_is_longer_than_31_days(huge: float) -> None:
    keys, seconds = rested(huge)
    assert seconds == LONGEST
    keys.clock.advance(LONGEST)  # type: ignore[attr-defined]
    assert keys.get_credential() == "secret-of-a"


@pytest.mark.parametrize("wrong", ["30", True, [30], {"seconds": 30}])
def test_what_is_no_number_is_an_error_that_does_not_keep_the_key(wrong: object) -> None:
    keys, seconds = rested(wrong)
    assert seconds == 7.0
    keys.free("key-1")
    assert keys.get_credential() == "secret-of-a"
    with pytest.raises(ConfigError):
        keys.release_credential("secret-of-a", rate_limited=True, backoff_seconds=wrong)  # type: ignore[arg-type]
    keys.free("key-1")
    assert keys.get_available_count() == 1


@pytest.mark.parametrize("ignored", [None, math.nan, "30"])
def test_without_the_flag_a_backoff_is_not_looked_at(ignored: object) -> None:
    keys = CredentialCoordinator(["secret-of-a"], clock=VirtualClock())
    keys.release_credential(keys.get_credential() or "", backoff_seconds=ignored)  # type: ignore[arg-type]
    assert keys.get_available_count() == 1


@pytest.mark.parametrize("credential", [None, 7, ["secret-of-a"]])
def test_what_cannot_be_a_credential_is_a_config_error(credential: object) -> None:
    keys = CredentialCoordinator(["secret-of-a"], clock=VirtualClock())
    with pytest.raises(ConfigError):
        keys.release_credential(credential)  # type: ignore[arg-type]


@pytest.mark.parametrize(("outcome", "seconds"), [(Outcome.RATE_LIMITED, 7.0), (Outcome.QUOTA_EXHAUSTED, 3600.0)])
def test_a_signal_with_a_nan_is_a_silent_one(outcome: Outcome, seconds: float) -> None:
    keys = CredentialCoordinator(["secret-of-a"], clock=VirtualClock(), cooldown=FixedCooldown(7.0))
    keys.acquire().report(signal=Signal(outcome=outcome, retry_after=math.nan))
    assert keys.states()[0].back_in == seconds


def test_a_cooldown_is_one_of_the_two() -> None:
    with pytest.raises(ConfigError):
        CredentialCoordinator(["secret-of-a"], cooldown=math.inf)  # type: ignore[arg-type]
