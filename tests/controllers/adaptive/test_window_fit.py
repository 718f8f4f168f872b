"""A log shows itself by what it held at each refusal; buckets, windows and caps do not look like one."""

from __future__ import annotations

from array import array
from collections import deque

import pytest

from headgate import RateLimitConfig
from headgate.controllers.adaptive.call_history import CallHistory
from headgate.controllers.adaptive.window import USUAL_LENGTHS
from headgate.controllers.adaptive.window_fit import STRIKES, Count, Log, WindowFit
from headgate.core.decision import Outcome
from headgate.core.gate import Gate
from headgate.core.policy import Ticket
from headgate.core.signal import Limit as ToldLimit
from headgate.core.signal import Signal
from headgate.lab.experiment import run
from headgate.lab.scenario import Budget, Limit, Scenario
from headgate.mock.quota import SlidingLog, TokenBucket
from headgate.units import Rate, Step


def count_of(let_in, sent=None, at=0.0):
    """The counts of one call, made up."""
    return Count(at, array("f", let_in), array("f", let_in if sent is None else sent), age=400.0)


def log_of(calls, seconds):
    return SlidingLog(Rate(float(calls), seconds))


def refusals(server, paces, fit=None, rest=0.0):
    """A client sends at each of the paces until it is refused, and rests; what each refusal found, in order."""
    history, fit = CallHistory(), fit or WindowFit()
    now, seq, last_seq, last_at = 0.0, 0, 0, 0.0
    history.sends.mark(now, 0)
    for pace in paces:
        while True:
            now += 1.0 / pace
            seq += 1
            history.sends.mark(now, seq)
            if not server.take(now):
                break
        history.refusals.add(seq)
        accrued = history.accepted_calls(last_seq, seq) / (now - last_at) if last_seq else 0.0
        fit.add_refusal(Count.before(history, seq, now, True, accrued))
        last_seq, last_at = seq, now
        now += rest
        yield fit


def found(server, paces, **options):
    logs = [fit.find() for fit in refusals(server, paces, **options)]
    return next((log for log in logs if log is not None), None)


@pytest.mark.parametrize(("calls", "seconds"), [(122, 5.0), (8, 1.0), (650, 5.0), (24, 10.0), (300, 60.0)])
def test_a_log_is_found_by_what_it_held_at_refusals_of_different_paces(calls, seconds):
    rate = calls / seconds
    paces = [factor * rate for factor in (3.0, 2.0, 1.2, 1.5, 2.5, 1.1, 1.3)]
    log = found(log_of(calls, seconds), paces, rest=0.5 * seconds)
    assert log is not None
    assert log.length == seconds
    assert log.calls == pytest.approx(calls, rel=0.03, abs=1.1)


def test_a_log_that_counts_refused_calls_is_told_from_one_that_does_not():
    fit, at = WindowFit(), USUAL_LENGTHS.index(10.0)
    for moment, refused in enumerate((0.0, 8.0, 12.0, 5.0, 10.0)):
        pace = 10.0 + 3.0 * moment
        sent = tuple(100.0 if length == 10.0 else pace * length for length in USUAL_LENGTHS)
        let_in = (*sent[:at], 100.0 - refused, *sent[at + 1 :])
        fit.add_refusal(count_of(let_in, sent, at=30.0 * moment))
    assert fit.find() == (10.0, 100.0, True)


@pytest.mark.parametrize(("rate", "burst"), [(50.0, 5), (50.0, 60), (3.0, 1), (3.0, 20)])
def test_a_bucket_is_no_log(rate, burst):
    paces = [rate * factor for factor in (3.0, 1.15, 2.0, 1.15, 1.3, 1.15, 1.15, 1.6)]
    assert found(TokenBucket(Rate(rate), burst), paces) is None


def test_where_the_pace_never_moved_nothing_is_found():
    assert found(log_of(50, 5.0), [11.0] * 8, rest=5.0) is None


def test_refusals_of_one_moment_are_no_proof_of_a_window_that_is_longer_than_it():
    counts = [10.0 * length for length in USUAL_LENGTHS]
    fit = WindowFit()
    for moment in range(3):
        fit.add_refusal(count_of([20.0 - 5.0 * moment, *counts[1:]], at=100.0 + moment))
    assert fit.find() is None


def test_a_probe_that_was_let_in_after_as_many_speaks_against_a_log():
    server, paces = log_of(120, 5.0), [72.0, 48.0, 29.0, 36.0, 60.0]
    assert found(server, paces, rest=5.0) is not None
    *_, fit = refusals(log_of(120, 5.0), paces, rest=5.0)
    fit.add_probe(count_of([140.0] * len(USUAL_LENGTHS)), refused=False)
    assert fit.find() is None


LOG = Log(5.0, 120.0, False)


def after(calls, strikes=0.0):
    """A fit whose last refusal came after so many calls in every length."""
    fit = WindowFit(strikes=strikes)
    fit.add_refusal(count_of([float(calls)] * len(USUAL_LENGTHS)))
    return fit


def test_a_refusal_that_fits_confirms_a_log_and_refines_it():
    fit = after(122, strikes=3.0)
    assert fit.confirm(LOG, climbed=False, soon=False) == (5.0, 121.0, False)
    assert fit.strikes == 0.0


def test_a_log_that_is_refused_with_fewer_let_in_but_as_many_sent_counts_refused_calls():
    fit = WindowFit()
    fit.add_refusal(count_of([112.0] * len(USUAL_LENGTHS), [120.0] * len(USUAL_LENGTHS)))
    assert fit.confirm(LOG, climbed=False, soon=False) == (5.0, 120.0, True)


def test_a_search_upwards_shows_what_a_log_holds_now():
    assert after(250).confirm(LOG, climbed=True, soon=False) == (5.0, 250.0, False)


def test_a_log_that_is_full_of_a_search_is_refused_often_and_stays_known():
    fit = after(120)
    for _ in range(20):
        known = fit.confirm(LOG, climbed=False, soon=True)
    assert known == LOG
    for _ in range(4):
        known = fit.confirm(LOG, climbed=False, soon=True)
    assert known is None, "but not for ever"


def test_a_log_that_is_refused_with_less_in_it_each_time_is_none():
    """A slow bucket's refusals: what it lets in within ten seconds falls with the pace."""
    fit, log = WindowFit(), Log(5.0, 120.0, False)
    for calls in (116, 113, 110):
        fit.add_refusal(after(calls).refusals[-1])
        log = fit.confirm(log, climbed=False, soon=False)
        assert log is not None
    fit.add_refusal(after(107).refusals[-1])
    assert fit.confirm(log, climbed=False, soon=False) is None


def test_one_refusal_that_finds_as_much_as_the_log_holds_is_enough_to_keep_it():
    fit, log = WindowFit(), Log(5.0, 120.0, False)
    for calls in (116, 113, 110, 112, 108, 105, 102, 104):
        fit.add_refusal(after(calls).refusals[-1])
        log = fit.confirm(log, climbed=False, soon=False)
    assert log is not None


def test_refusals_that_do_not_fit_end_a_log():
    fit, log = WindowFit(), LOG
    for calls in (90, 70, 50):
        fit.add_refusal(after(calls).refusals[-1])
        log = fit.confirm(log, climbed=False, soon=False)
    assert log is None
    assert fit.strikes >= STRIKES
    assert len(fit.refusals) == 1, "what comes next is judged anew, from here on"


def test_a_probe_refused_with_less_before_it_shows_that_a_log_has_fallen():
    fit = WindowFit()
    assert fit.fallen(LOG) is None, "none was refused"
    fit.add_probe(after(118).refusals[-1], refused=True)
    fit.add_probe(after(110).refusals[-1], refused=False)
    assert fit.fallen(LOG) is None, "it still holds what it held"
    fit.add_probe(after(80).refusals[-1], refused=True)
    fit.add_probe(after(70).refusals[-1], refused=False)
    assert fit.fallen(LOG) == (5.0, 75.0, False)


def test_what_refuses_far_below_a_log_may_be_another_limit():
    assert after(1).confirm(LOG, climbed=False, soon=False) == LOG
    fit = WindowFit()
    fit.add_probe(after(1).refusals[-1], refused=True)
    fit.add_probe(after(0).refusals[-1], refused=False)
    assert fit.fallen(LOG) == (5.0, 60.0, False), "half of it is asked for again at once"


def test_what_speaks_for_a_log_is_forgotten():
    fit = after(120, strikes=2.0)
    fit.add_probe(fit.refusals[-1], refused=True)
    fit.forget()
    assert (fit.refusals, fit.probes_refused, fit.probes_let_in, fit.strikes) == ((), (), (), 0.0)


SERVED, REFUSED = Signal(outcome=Outcome.OK), Signal(outcome=Outcome.RATE_LIMITED)


class BusyClient:
    """One that always has a call to make, beside a log of 122 calls in 5 s; answers take 50 ms."""

    def __init__(self):
        self.gate = Gate.local(RateLimitConfig(strategy="adaptive").gate_config())
        self.server, self.answers, self.now, self.served = log_of(122, 5.0), deque(), 0.0, 0
        self.strikes, self.answer = 0, SERVED

    @property
    def curve(self):
        return self.gate.controller.models.search.curve

    def work_until(self, end):
        """Calls that are served on the way."""
        before = self.served
        while self.now < end:
            while self.answers and self.answers[0][0] <= self.now:
                _, ticket, signal = self.answers.popleft()
                self.gate.record(ticket, signal, self.now - ticket.sent_at, self.now, 0.5)
            asked = self.gate.ask(self.now)
            if isinstance(asked, Ticket):
                let_in = self.server.take(self.now) and not self.strikes
                self.strikes = max(0, self.strikes - 1)
                self.served += let_in
                self.answers.append((self.now + 0.05, asked, self.answer if let_in else REFUSED))
            else:
                next_answer = max(self.answers[0][0], self.now + 1e-6) if self.answers else end
                self.now = min(max(asked.until, self.now + 1e-4), end, next_answer)
        return self.served - before


@pytest.fixture
def client():
    """It has learned the log."""
    client = BusyClient()
    client.work_until(100.0)
    assert client.curve.log == 5.0
    assert client.curve.log_calls == pytest.approx(122.0, abs=1.0)
    return client


@pytest.mark.no_cover
@pytest.mark.parametrize("refused", [1, 11])
def test_a_few_refusals_that_are_not_the_logs_do_not_take_it_down(client, refused):
    client.now += 30.0
    client.strikes = refused
    assert client.work_until(200.0) > 0.62 * 70.0 * 24.4


@pytest.mark.no_cover
def test_headers_that_tell_of_more_lift_a_log_at_once(client):
    client.server.scale(10.0, client.now)
    told = ToldLimit(dimension="requests", limit=1220.0, remaining=1200.0, reset=5.0, window=5.0)
    client.answer = Signal(outcome=Outcome.OK, limits=(told,))
    assert client.work_until(client.now + 20.0) > 1500


@pytest.mark.no_cover
def test_a_look_above_a_log_ends_also_where_nothing_is_refused(client):
    client.server.scale(8.0, client.now)
    client.work_until(150.0)
    assert client.gate.controller.rate > 60.0


def served_by(*limits, horizon, steps=()):
    """A server of bare 429s with these limits."""
    return Scenario(
        name="log",
        horizon=horizon,
        budgets=(Budget(limits=limits),),
        steps=steps,
        service_time=0.3,
        retry_after="none",
        headers="none",
        round_trip=0.03,
        workers=200,
    )


@pytest.mark.no_cover
def test_a_longer_limit_beside_a_log_does_not_take_it_down():
    log, window = Limit(algorithm="log", rate=Rate(122.0, 5.0)), Limit(algorithm="window", rate=Rate(1500.0, 150.0))
    scenario = served_by(log, window, horizon=400.0)
    assert run(scenario, "adaptive", 0).ok >= 0.95 * run(scenario, "oracle", 0).ok


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("algorithm", "rate", "steps", "goodput"),
    [
        ("log", Rate(122.0, 5.0), (), 0.93),
        ("log", Rate(342.0, 2.0), (Step(0.58, 60),), 0.9),
        ("strict-log", Rate(108.0, 10.0), (), 0.9),
        ("log", Rate(170.0, 10.0), (Step(2.0, 60),), 0.7),
    ],
)
def test_a_log_is_used_well_also_when_it_falls_or_grows(algorithm, rate, steps, goodput):
    scenario = served_by(Limit(algorithm=algorithm, rate=rate), horizon=120.0, steps=steps)
    done = run(scenario, "adaptive", 0)
    assert done.ok >= goodput * scenario.allowed_between(0.0, scenario.horizon)
    assert done.refused_share <= 0.02


def test_a_log_that_is_full_of_a_search_is_not_overrun():
    scenario = served_by(Limit(algorithm="log", rate=Rate(170.0, 10.0)), horizon=120.0, steps=(Step(2.0, 60),))
    assert run(scenario, "adaptive", 0).refused <= 25
