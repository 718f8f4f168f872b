"""Several runs beside each other: medians, goodput against the oracle of the same seed, and processes that end."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from headgate.lab.comparison import ORACLE, Figures, Row, Task, measure, measured, tabulate
from headgate.lab.scenario import Budget, Limit, Mark, Scenario
from headgate.units import Rate

pytestmark = pytest.mark.no_cover

SMALL = Scenario(
    name="small",
    horizon=15.0,
    workers=8,
    budgets=(Budget(limits=(Limit(rate=Rate(20.0), burst=5.0),)),),
    marks=(Mark("start", 0.0),),
)


def figures(ok, **more):
    usual = {"sent": 100, "refused_share": 0.0, "errors": 0, "p50": 1.0, "p99": 2.0, "wait_p99": 3.0, "jain": 1.0}
    return Figures(**usual | {"ok": ok, "per_process": (ok,), "convergence": {"start": 1.0}} | more)


class TestRows:
    def test_goodput_is_the_median_of_shares_of_the_same_seed(self):
        row = Row.of("mine", [figures(90), figures(50), figures(80)], [figures(100), figures(50), figures(160)])
        assert (row.goodput, row.goodput_least) == (0.9, 0.5)

    def test_the_worst_is_kept_where_it_matters(self):
        runs = [figures(1, refused_share=share, jain=1 - share) for share in (0.1, 0.3, 0.2)]
        row = Row.of("mine", runs, [figures(1)] * 3)
        assert (row.refused_share, row.refused_share_most) == (0.2, 0.3)
        assert (row.jain, row.jain_least) == (0.8, 0.7)

    def test_never_counts_as_longer_than_anything(self):
        runs = [figures(1, convergence={"start": after}) for after in (math.inf, 4.0, math.inf)]
        row = Row.of("mine", runs, [figures(1)] * 3)
        assert row.convergence == {"start": math.inf}


def tasks_of(strategies, seeds):
    names = dict.fromkeys([ORACLE, *strategies])
    return [Task(scenario=SMALL, strategy=name, seed=seed) for name in names for seed in seeds]


class TestMeasuring:
    def test_each_strategy_gets_a_row_and_the_oracle_the_whole(self):
        tasks = tasks_of(["adaptive", "oracle", "backoff"], range(2))
        rows = tabulate(tasks, measure(tasks), ["adaptive", "oracle", "backoff"])
        assert [row.strategy for row in rows.values()] == list(rows) == ["adaptive", "oracle", "backoff"]
        assert rows["oracle"].goodput == 1.0
        assert rows["adaptive"].refused_share < rows["backoff"].refused_share

    def test_progress_is_told_after_each_run(self):
        told = []
        measure(tasks_of(["fixed"], [4, 9]), progress=lambda done, total: told.append((done, total)))
        assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]

    def test_with_several_jobs_the_numbers_are_the_same(self):
        tasks = tasks_of(["adaptive"], range(2))
        assert measure(tasks, jobs=2) == measure(tasks)

    @pytest.mark.parametrize(("wrong", "message"), [({"jobs": 0}, "jobs=0"), ({"names": ["best"]}, "strategy 'best'")])
    def test_what_is_wrong_is_told_before_anything_runs(self, wrong, message):
        given = {"names": ["fixed"], "jobs": 1} | wrong
        with pytest.raises(ValueError, match=message):
            measured(tasks_of(given["names"], [0]), given["jobs"])


class TestProcesses:
    def test_an_error_in_one_of_them_is_raised_and_ends_the_others(self):
        broken = Scenario(**{name: getattr(SMALL, name) for name in SMALL.__slots__})
        object.__setattr__(broken, "jitter", None)
        with pytest.raises(TypeError):
            measure([Task(scenario=broken, strategy="adaptive", seed=seed) for seed in range(4)], jobs=2)
        assert not multiprocessing.active_children()

    def test_a_caller_that_has_seen_enough_may_stop(self):
        runs = measured([Task(scenario=SMALL, strategy="fixed", seed=seed) for seed in range(20)], jobs=2)
        place, one = next(runs)
        runs.close()
        assert place in range(20)
        assert one.ok > 0
        assert not multiprocessing.active_children()

    @pytest.mark.skipif(os.name == "nt", reason="sends a signal")
    @pytest.mark.parametrize("after", [0.0, pytest.param(0.02, marks=pytest.mark.chaos), 0.3])
    def test_an_interrupt_ends_all_of_them_quietly(self, after, tmp_path):
        """With real processes and real time, because it is about what becomes of them, also while they start."""
        script = tmp_path / "long.py"
        script.write_text(INTERRUPTED)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
        with subprocess.Popen([sys.executable, script], **pipes) as process:
            assert process.stdout.readline() == b"started\n"
            time.sleep(after)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
            began = time.monotonic()
            out, errors = process.communicate(timeout=60)
        assert out == b"interrupted, 0 left\n"
        assert errors == b""
        assert time.monotonic() - began < 30


INTERRUPTED = """
import multiprocessing
from headgate.lab.comparison import Task, measure
from headgate.units import Rate
from headgate.lab.scenario import Budget, Limit, Scenario

long = Scenario(name="long", horizon=36000.0, budgets=(Budget(limits=(Limit(rate=Rate(100.0)),)),))
if __name__ == "__main__":
    try:
        print("started", flush=True)
        measure([Task(scenario=long, strategy="adaptive", seed=seed) for seed in range(4)], jobs=2)
    except KeyboardInterrupt:
        print("interrupted,", len(multiprocessing.active_children()), "left")
"""
