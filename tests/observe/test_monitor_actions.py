"""What an operator may do to a run, and what is refused."""

import pytest
from tests.observe.monitored import KEY, SECRET, keys_on, limiter_on, sentences

from headgate.credentials import Credential, CredentialCoordinator
from headgate.identity import Identities
from headgate.lab.virtual_time import VirtualClock
from headgate.observe.monitor import RunMonitor
from headgate.observe.snapshot import Action, ActionRefusedError, ProgressLine


class TestActing:
    def acted(self, action, **more):
        clock = VirtualClock()
        limiter = limiter_on(clock)
        limiter.acquire(KEY).report(status_code=200)
        keys = keys_on(clock)
        watched = RunMonitor(limiter=limiter, credentials=keys, **more)
        return watched.act(action), limiter, keys

    def test_a_credential_is_parked_freed_and_retired_by_its_label_and_mark(self):
        clock = VirtualClock()
        keys = keys_on(clock)
        watched = RunMonitor(credentials=keys)
        mark = {line.label: line.mark for line in watched.snapshot().credentials}
        assert "rests for 60.0 s" in watched.act(Action(kind="park", target=f"key-2/{mark['key-2']}", value=60.0))
        assert keys.back_in("key-2") == 60.0
        watched.act(Action(kind="free", target="key-2"))
        assert keys.back_in("key-2") == 0.0
        watched.act(Action(kind="retire", target="key-3"))
        assert keys.back_in("key-3") is None
        assert [line.state for line in watched.snapshot().credentials] == ["free", "free", "retired"]

    def test_two_of_one_label_need_their_digits(self):
        clock = VirtualClock()
        one = CredentialCoordinator([Credential("a", "secret-1")], clock=clock, identities=Identities(b"x"))
        two = CredentialCoordinator([Credential("a", "secret-2")], clock=clock, identities=Identities(b"x"))
        watched = RunMonitor(credentials={"one": one, "two": two})
        with pytest.raises(ActionRefusedError, match="six digits"):
            watched.act(Action(kind="park", target="a", value=5.0))
        mark = next(line.mark for line in watched.snapshot().credentials if line.provider == "two")
        watched.act(Action(kind="park", target=f"a/{mark}", value=5.0))
        assert (one.back_in("a"), two.back_in("a")) == (0.0, 5.0)

    def test_a_limit_is_set_and_lifted(self):
        said, limiter, _ = self.acted(Action(kind="limit", target=KEY, value=5.0))
        assert (said, limiter.key_status(KEY).limit) == (f"{KEY}: limited to 5 calls/s", 5.0)
        watched = RunMonitor(limiter=limiter)
        assert watched.act(Action(kind="limit", target=KEY)) == f"{KEY}: limit removed"
        assert limiter.key_status(KEY).limit is None

    def test_a_whole_limiter_is_paused(self):
        _, limiter, _ = self.acted(Action(kind="pause"))
        assert limiter.is_paused
        watched = RunMonitor(limiter=limiter, progress=lambda: ProgressLine(total=10, done=4, rate=2.0, eta=3.0))
        paused = watched.snapshot()
        assert (paused.state, paused.progress) == ("paused", ProgressLine(total=10, done=4))
        assert sentences(paused) == {"run": ("the program is paused by an operator", 6)}
        watched.act(Action(kind="resume"))
        assert watched.snapshot().progress.rate == 2.0
        assert not limiter.is_paused

    @pytest.mark.parametrize(
        "action",
        [
            Action(kind="explode"),
            Action(kind="limit", target="nobody.example.com", value=5.0),
            Action(kind="limit", target="", value=5.0),
            Action(kind="limit", target="x" * 5_000, value=5.0),
            Action(kind="limit", target=KEY, value=0.0),
            Action(kind="limit", target=KEY, value=float("nan")),
            Action(kind="limit", target=KEY, value=float("inf")),
            Action(kind="park", target="key-1", value=-1.0),
            Action(kind="park", target="key-1"),
            Action(kind="park", target="key-1", value=True),
            Action(kind="park", target="key-9", value=5.0),
            Action(kind="free", target=""),
            Action(kind="free", target=SECRET + "1"),
        ],
    )
    def test_what_cannot_be_done_is_refused_in_a_sentence_without_what_was_asked_for(self, action):
        with pytest.raises(ActionRefusedError) as refusal:
            self.acted(action)
        assert SECRET not in str(refusal.value)
        assert "x" * 100 not in str(refusal.value)

    def test_a_run_that_is_over_takes_no_orders(self):
        watched = RunMonitor(limiter=limiter_on(VirtualClock())).start(alone=False)
        watched.close()
        with pytest.raises(ActionRefusedError, match="ended"):
            watched.act(Action(kind="pause"))
