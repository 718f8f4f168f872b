"""Credentials for a monitor: what callers in line wait for, and which one an operator means."""

import pytest
from tests.observe.monitored import keys_on, refreshed

from headgate.credentials.credential import CredentialState
from headgate.lab.virtual_time import VirtualClock
from headgate.observe import snapshot
from headgate.observe.snapshot import ActionRefusedError
from headgate.observe.sources import program
from headgate.observe.sources.program import CredentialSource


class Pool:
    """A coordinator with callers in line."""

    provider, waiting = "openai", 7

    def __init__(self, *states):
        self._states = list(states)

    def states(self):
        return self._states


def state(label, state, back_in=None, reason=""):
    return CredentialState(
        label=label, shown="abc123", group=None, state=state, back_in=back_in, budget=None, reason=reason
    )


@pytest.mark.parametrize(
    ("states", "code", "seconds"),
    [
        ([state("a", "retired", reason="auth")], "retired", None),
        ([state("a", "held"), state("b", "resting", 5.0)], "held", None),
        ([state("a", "resting", 9.0), state("b", "resting", 5.0, "rate_limited")], "resting", 5.0),
    ],
)
def test_callers_in_line_wait_for_what_comes_first(states, code, seconds):
    (line,) = CredentialSource({"": Pool(*states)}).waits()
    assert (line.scope, line.behind, line.code, line.seconds) == ("openai", 7, code, seconds)


def test_without_callers_nothing_waits():
    pool = Pool(state("a", "retired"))
    pool.waiting = 0
    assert CredentialSource({"": pool}).waits() == []


def test_lines_are_bounded(monkeypatch):
    monkeypatch.setattr(program, "MOST_CREDENTIALS", 2)
    assert len(refreshed(CredentialSource({"": keys_on(VirtualClock(), 3)})).lines) == 2
    assert snapshot.MOST_CREDENTIALS == 1_000


def test_a_label_that_two_have_needs_the_digits():
    source = CredentialSource({"a": Pool(state("key", "free")), "b": Pool(state("key", "free"))})
    with pytest.raises(ActionRefusedError, match="label/mark"):
        source.find("key")
    with pytest.raises(ActionRefusedError, match="Unknown credential"):
        source.find("other")
