"""A setting of a wrong kind, or a number that no float can hold, is a ``ConfigError`` that names its field."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate import ConfigError, CredentialCoordinator, ExponentialCooldown, FixedCooldown, RateLimitConfig

HUGE = 10**5000


@pytest.mark.parametrize("value", ["5", None, True, [], float("nan"), 0, -1, HUGE, -HUGE], ids=range(9))
def test_a_cooldown_names_the_field(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^seconds="):
        FixedCooldown(value)  # type: ignore[arg-type]
    for field in ("base", "factor", "max"):
        with pytest.raises(ConfigError, match=rf"^{field}="):
            ExponentialCooldown(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "field",
    [
        "initial_rps",
        "min_rps",
        "max_rps",
        "token_bucket_capacity",
        "aimd_decrease",
        "error_rate_threshold",
        "open_state_duration",
        "stats_window",
        "stats_bucket",
        "max_keys",
        "retry_max_delay",
    ],
)
@pytest.mark.parametrize("value", [HUGE, -HUGE, "5"], ids=["huge", "minus huge", "text"])
def test_a_config_names_the_field(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^{field}="):
        RateLimitConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "ask"),
    [
        ("at_once", lambda: CredentialCoordinator(["a"], at_once=-HUGE)),
        ("timeout", lambda: CredentialCoordinator(["a"]).acquire(timeout=HUGE)),
        ("seconds", lambda: CredentialCoordinator(["a"]).park("key-1", HUGE)),
    ],
)
def test_a_coordinator_names_the_argument(field: str, ask: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=rf"^{field}="):
        ask()


def test_a_backoff_beyond_all_bounds_is_the_longest_there_is() -> None:
    keys = CredentialCoordinator(["a"])
    keys.release_credential("a", rate_limited=True, backoff_seconds=HUGE)
    assert keys.back_in("key-1") == pytest.approx(31 * 86400, abs=60)
