"""Bare strings in and out: what is released as rate limited is not handed out again before its time."""

from __future__ import annotations

import logging
import threading

import pytest

from headgate.core.decision import Outcome
from headgate.core.signal import Signal
from headgate.credentials import Credential, CredentialCoordinator
from headgate.errors import ConfigError
from headgate.lab.virtual_time import VirtualClock


def coordinator(*keys: str | Credential, **more: object) -> tuple[CredentialCoordinator, VirtualClock]:
    clock = VirtualClock()
    return CredentialCoordinator(keys or ["test-key-001"], clock=clock, **more), clock  # type: ignore[arg-type]


class TestScenarios:
    """The scenarios the coordinator was first asked for, by their numbers."""

    def test_010_released_without_a_rate_limit_it_is_available_at_once(self) -> None:
        keys, _ = coordinator()
        key = keys.get_credential()
        assert key == "test-key-001"
        assert keys.get_available_count() == 0
        keys.release_credential(key, rate_limited=False)
        assert keys.get_available_count() == 1
        assert keys.get_credential() == key

    def test_020_released_with_a_rate_limit_it_is_quarantined(self) -> None:
        keys, clock = coordinator("a", "b")
        assert keys.get_credential() == "a"
        keys.release_credential("a", rate_limited=True, backoff_seconds=60)
        assert (keys.get_quarantine_count(), keys.get_available_count()) == (1, 1)
        assert [keys.get_credential(), keys.get_credential()] == ["b", None]
        clock.advance(59)
        assert keys.get_credential() is None

    def test_030_it_is_available_after_the_backoff(self) -> None:
        keys, clock = coordinator()
        keys.release_credential(keys.get_credential() or "", rate_limited=True, backoff_seconds=60)
        clock.advance(59.9)
        assert keys.get_credential() is None
        clock.advance(0.1)
        assert keys.get_credential() == "test-key-001"
        assert keys.get_quarantine_count() == 0

    def test_040_several_are_quarantined_independently(self) -> None:
        keys, clock = coordinator("a", "b")
        keys.get_credential(), keys.get_credential()
        keys.release_credential("a", rate_limited=True, backoff_seconds=30)
        keys.release_credential("b", rate_limited=True, backoff_seconds=60)
        clock.advance(30)
        assert [keys.get_credential(), keys.get_credential()] == ["a", None]
        clock.advance(30)
        assert [keys.get_credential(), keys.get_credential()] == ["b", None]

    @pytest.mark.parametrize("seconds", [0, -1, -1e9, float("-inf")])
    def test_050_no_backoff_or_less_is_no_quarantine(self, seconds: float) -> None:
        keys, _ = coordinator()
        key = keys.get_credential()
        keys.release_credential("test-key-001", rate_limited=True, backoff_seconds=seconds)
        assert keys.get_quarantine_count() == 0
        assert keys.get_credential() == key

    def test_060_with_all_in_quarantine_there_is_none(self) -> None:
        keys, _ = coordinator("a", "b", "c")
        for _ in range(3):
            keys.release_credential(keys.get_credential() or "", rate_limited=True, backoff_seconds=60)
        assert keys.get_credential() is None
        assert keys.get_available_count() == 0

    def test_070_the_quarantine_is_counted(self) -> None:
        keys, clock = coordinator("a", "b", "c", "d")
        for seconds in (10, 20, 30):
            keys.release_credential(keys.get_credential() or "", rate_limited=True, backoff_seconds=seconds)
        assert keys.get_quarantine_count() == 3
        counts = []
        for _ in range(3):
            clock.advance(10)
            counts.append((keys.get_quarantine_count(), keys.get_available_count()))
        assert counts == [(2, 2), (1, 3), (0, 4)]

    def test_080_a_bare_release_works_as_ever(self) -> None:
        keys, _ = coordinator()
        key = keys.get_credential()
        keys.release_credential("test-key-001")
        assert keys.get_credential() == key

    def test_flags_must_be_named(self) -> None:
        keys, _ = coordinator()
        with pytest.raises(TypeError):
            keys.release_credential("test-key-001", True, 60)  # type: ignore[misc]


def test_without_the_flag_a_backoff_means_nothing() -> None:
    keys, _ = coordinator()
    keys.get_credential()
    keys.release_credential("test-key-001", backoff_seconds=60)
    assert keys.get_credential() == "test-key-001"


def test_a_second_shorter_rate_limit_shortens_nothing() -> None:
    keys, clock = coordinator()
    keys.get_credential()
    keys.release_credential("test-key-001", rate_limited=True, backoff_seconds=60)
    keys.release_credential("test-key-001", rate_limited=True, backoff_seconds=5)
    clock.advance(59.9)
    assert keys.get_credential() is None
    clock.advance(0.1)
    assert keys.get_credential() is not None


def test_a_plain_release_ends_no_quarantine() -> None:
    keys, clock = coordinator()
    keys.get_credential()
    keys.release_credential("test-key-001", rate_limited=True, backoff_seconds=60)
    keys.release_credential("test-key-001")
    clock.advance(59.9)
    assert keys.get_credential() is None


def test_a_rate_limit_of_one_rests_its_group() -> None:
    keys, clock = coordinator(Credential("a", "sa", "org"), Credential("b", "sb", "org"), Credential("c", "sc"))
    assert keys.get_credential() == "sa"
    keys.release_credential("sa", rate_limited=True, backoff_seconds=30)
    assert [keys.get_credential(), keys.get_credential()] == ["sc", None]
    clock.advance(30)
    assert [keys.get_credential(), keys.get_credential()] == ["sb", "sa"]


def test_an_unknown_one_is_an_error_that_changes_nothing_and_does_not_repeat_it() -> None:
    keys, _ = coordinator("a", "b")
    keys.get_credential()
    with pytest.raises(ConfigError) as error:
        keys.release_credential("sk-unknown", rate_limited=True, backoff_seconds=60)
    assert "sk-unknown" not in str(error.value)
    assert (keys.get_available_count(), keys.get_quarantine_count()) == (1, 0)


def test_a_repeated_release_changes_nothing_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    keys, _ = coordinator("a", "b")
    keys.get_credential()
    keys.release_credential("a")
    assert not caplog.records
    keys.release_credential("a")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert keys.get_available_count() == 2


def test_a_string_release_never_ends_somebodys_lease() -> None:
    keys, _ = coordinator("a", at_once=1)
    lease = keys.try_acquire()
    assert lease is not None
    keys.release_credential("a")
    assert keys.try_acquire() is None
    lease.release()
    assert keys.try_acquire() is not None


def test_a_wall_clock_moved_by_an_hour_changes_nothing() -> None:
    class Moved(VirtualClock):
        offset = 0.0

        def wall(self) -> float:
            return super().wall() + self.offset

    for offset in (3600.0, -3600.0):
        clock = Moved()
        keys = CredentialCoordinator(["a"], clock=clock)
        keys.get_credential()
        keys.release_credential("a", rate_limited=True, backoff_seconds=60)
        clock.advance(30)
        clock.offset = offset
        clock.advance(29.9)
        assert keys.get_credential() is None
        clock.advance(0.1)
        assert keys.get_credential() == "a"


def test_three_threads_and_one_key_make_one_holder() -> None:
    keys = CredentialCoordinator(["only"])
    start, got = threading.Barrier(3), []

    def ask() -> None:
        start.wait()
        got.append(keys.get_credential())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got, key=str) == [None, None, "only"]


@pytest.mark.parametrize(
    ("credentials", "complaint"),
    [
        ([], "a list of 1 to"),
        ("sk-abc", "a list"),
        (["sk-abc", "sk-abc"], "'key-1' and 'key-2' are the same secret"),
        ([Credential("a", "s1"), Credential("a", "s2")], "two have the label 'a'"),
        ([""], "1 to"),
        ([7], "must be text"),
    ],
)
def test_what_cannot_be_used_is_said(credentials: object, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as error:
        CredentialCoordinator(credentials)  # type: ignore[arg-type]
    assert "sk-abc" not in str(error.value)


@pytest.mark.parametrize("at_once", [0, -1, 1.5, True, "2"])
def test_at_once_must_be_a_whole_number(at_once: object) -> None:
    with pytest.raises(ConfigError, match="at_once"):
        CredentialCoordinator(["a"], at_once=at_once)  # type: ignore[arg-type]


def test_keys_that_are_refused_together_are_proposed_as_a_group_once(caplog: pytest.LogCaptureFixture) -> None:
    keys, clock = coordinator("a", "b")
    refused = Signal(outcome=Outcome.RATE_LIMITED, retry_after=2.0)
    for _ in range(12):
        for _ in range(2):
            clock.advance(0.1)
            with keys.lease() as lease:
                lease.report(signal=refused)
        clock.advance(10.0)
    told = [record for record in caplog.records if "may share one limit" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.WARNING]
    assert "key-1, key-2 are refused together" in told[0].getMessage()
    assert "--groups auto" in told[0].getMessage()
