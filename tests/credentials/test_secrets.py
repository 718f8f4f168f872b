"""Canaries: secrets that appear in no log, text, exception, event, state or file, not even one of one character."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from pathlib import Path

import pytest

from headgate import Outcome, Signal
from headgate.core.signal import Limit
from headgate.credentials import Credential, CredentialCoordinator, FileStore, credentials_from
from headgate.errors import ConfigError, NoCredentialError, RateLimitError
from headgate.events import ResilienceEvent

CANARIES = ["sk-canary-0123456789", "☂", "tvly-canary\x1b[31m"]


def everything_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> str:
    """Put the canaries through all that can happen to them, and return all that anybody could read of it."""
    caplog.set_level(logging.DEBUG)
    events: list[ResilienceEvent] = []

    def listener(event: ResilienceEvent) -> None:
        events.append(event)
        raise ValueError("a listener of little use")

    keys = CredentialCoordinator(CANARIES, provider="search", store=FileStore(tmp_path / name), on_event=listener)
    said: list[str] = [repr(keys), str(keys), repr(keys.lease())]
    errors: list[BaseException] = []

    def note(error: BaseException) -> None:
        errors.append(error)
        said.append("".join(traceback.format_exception(error)))

    answers = [
        Signal(outcome=Outcome.RATE_LIMITED, retry_after=60.0, reason=CANARIES[0], scope=CANARIES[1]),
        Signal(outcome=Outcome.QUOTA_EXHAUSTED, retry_after=60.0, reason=CANARIES[1], dialect=CANARIES[1]),
        Signal(outcome=Outcome.KEY_DEAD, reason=CANARIES[2], limits=(Limit(remaining=1.0, name=CANARIES[1]),)),
    ]
    for answer in answers:
        with keys.lease() as lease:
            said += [repr(lease), str(lease)]
            lease.report(signal=answer)
            said.append(repr(lease))
    said += [repr(keys.states()), str(keys.states())]
    for attempt in (
        lambda: keys.acquire(timeout=0),
        lambda: keys.park(CANARIES[0][:-1], 5),
        lambda: keys.release_credential(CANARIES[1] + "x"),
        lambda: CredentialCoordinator([CANARIES[1], CANARIES[1]]),
        lambda: Credential(CANARIES[0], CANARIES[0]),
        lambda: Credential(f"my {CANARIES[0]}", CANARIES[0]),
        lambda: Credential("label", CANARIES[1], group=CANARIES[1]),
        lambda: credentials_from(CANARIES[0]),
        lambda: credentials_from(f"cmd:{CANARIES[1]}"),
    ):
        with pytest.raises((NoCredentialError, ConfigError)) as caught:
            attempt()
        note(caught.value)
    keys.free("key-1")
    keys.release_credential(CANARIES[0])
    with pytest.raises(RateLimitError) as limited, keys.lease():
        raise RateLimitError("search", "slow down", retry_after=5)
    note(limited.value)
    one = Credential("alice", CANARIES[1], "group")
    said += [repr(one), str(one), f"{one}", repr([one]), repr({"one": one})]
    said += [repr(keys.__dict__), repr(list(keys._pool.slots))]
    said += [repr(event) for event in events]
    said += [caplog.text, *(repr(record.__dict__) for record in caplog.records)]
    said += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(events) >= 4
    return "\n".join(said)


@pytest.mark.parametrize("name", ["keys.db", "keys.json"])
def test_no_canary_is_in_anything_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    said = everything_that_is_said(tmp_path, caplog, name)
    out, err = capfd.readouterr()
    lines = "".join(line for line in (said + out + err).splitlines(keepends=True) if "CANARIES" not in line)
    for canary in CANARIES:
        for form in (canary, ascii(canary)[1:-1], canary.encode().decode("latin-1")):
            assert form not in lines
        assert "canary" not in lines
    assert "key-1" in lines


def test_a_source_that_cannot_be_read_does_not_quote_itself(tmp_path: Path) -> None:
    wrong = {
        "a.toml": "a = ☂",
        "b.toml": "[a]\nsecret = 7\n",
        "c.toml": "[a]\nsekret = '☂'\n",
        "d.txt": "☂=☂",
        "e.txt": "# only ☂",
        "f.toml": "☂ = ",
    }
    for name, text in wrong.items():
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        if name == "d.txt":  # no label can look like that, so it is the secret as a whole
            assert credentials_from(f"file:{path}")[0].label == ""
            continue
        with pytest.raises(ConfigError) as caught:
            credentials_from(f"file:{path}")
        assert "☂" not in "".join(traceback.format_exception(caught.value)).split("E   ")[0].replace(str(text), "")
        assert "☂" not in str(caught.value)


def test_logs_name_the_label_and_six_digits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    keys = CredentialCoordinator(["sk-1"], provider="search")
    (state,) = keys.states()
    keys.park("key-1", 60)
    keys.free("key-1")
    keys.retire("key-1")
    assert [record.getMessage() for record in caplog.records] == [
        f"search: key-1 [{state.shown}] rests for 60.0 s (parked by an operator)",
        f"search: key-1 [{state.shown}] is available again (freed by an operator)",
        f"search: key-1 [{state.shown}] is disabled (disabled by an operator)",
    ]
    assert len(state.shown) == 6
    assert int(state.shown, 16) >= 0


def test_events_name_the_label() -> None:
    from headgate.lab.virtual_time import VirtualClock

    events: list[ResilienceEvent] = []
    clock = VirtualClock()
    keys = CredentialCoordinator(["sk-1"], provider="search", clock=clock, on_event=events.append)
    keys.release_credential(keys.get_credential() or "", rate_limited=True, backoff_seconds=60)
    clock.advance(60)
    keys.get_credential()
    keys.retire("key-1")
    assert [(event.event_type, event.credential, event.wait_ms, event.error_type) for event in events] == [
        ("credential_rested", "key-1", 60_000, "rate_limited"),
        ("credential_back", "key-1", None, None),
        ("credential_retired", "key-1", None, "retired by hand"),
    ]
    assert {event.provider for event in events} == {"search"}
    assert (events[1].timestamp - events[0].timestamp).total_seconds() == 60


def test_a_listener_may_call_the_coordinator() -> None:
    seen = []
    keys = CredentialCoordinator(["a"], on_event=lambda event: seen.append(keys.get_quarantine_count()))
    keys.park("key-1", 60)
    assert seen == [1]


def test_refusals_can_be_sent_to_another_process() -> None:
    keys = CredentialCoordinator(["a"], provider="search")
    keys.park("key-1", 60)
    with pytest.raises(NoCredentialError) as refusal:
        keys.acquire(timeout=0)
    again = pickle.loads(pickle.dumps(refusal.value))
    assert (again.key, again.earliest_reset) == ("search", refusal.value.earliest_reset)
    assert copy.copy(Credential("a", "s")) == Credential("a", "s")
