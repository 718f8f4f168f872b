"""Running the lab: what is run in which order, what is written, and how it ends."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from bench.lab import __main__ as lab
from bench.lab import scale
from bench.lab.page import page
from bench.lab.plan import ADAPTIVE, DEFAULT_CIRCUIT, FULL, LAB, QUICK
from bench.lab.results import Outcome, Results

from headgate.config import RateLimitConfig
from headgate.lab.comparison import ORACLE
from headgate.lab.scenario_file import bundled, named

ROOT = Path(__file__).parents[2]


class TestPlan:
    def test_adaptive_runs_over_20_seeds_and_the_published_over_3(self):
        jobs = LAB.jobs([named("tb50")], with_unseen=False)
        counts = Counter(job.label for job in jobs)
        assert (counts[ADAPTIVE], counts[ORACLE], counts["cubic"], counts["sre"]) == (20, 20, 3, 3)
        assert {job.task.seed for job in jobs if job.label == "cubic"} == {0, 1, 2}

    def test_all_run_over_20_seeds_in_full(self):
        counts = Counter(job.label for job in FULL.jobs([named("tb500")], with_unseen=False))
        assert set(counts.values()) == {20}

    def test_every_unseen_scenario_runs_once(self):
        counts = Counter(job.label for job in LAB.jobs([], with_unseen=True))
        assert counts == {ADAPTIVE: 200, ORACLE: 200, "informed": 200, "cubic": 200}

    def test_only_ours_run_together(self):
        labels = {job.label for job in LAB.jobs([named("share4-together")], with_unseen=False)}
        assert labels == {ADAPTIVE, ORACLE, "aimd", "gradient"}

    def test_where_circuits_open_the_default_one_is_tried_as_well(self):
        jobs = LAB.jobs([named("outage")], with_unseen=False)
        usual = [job.task.config == RateLimitConfig() for job in jobs if job.label == DEFAULT_CIRCUIT]
        assert usual == [True] * 5
        assert not any(job.task.config == RateLimitConfig() for job in jobs if job.label == ADAPTIVE)

    def test_the_longest_start_first(self):
        costs = [job.cost for job in LAB.jobs([named(name) for name in ("tb50", "step", "share4")], with_unseen=False)]
        assert costs == sorted(costs, reverse=True)


class TestTheBook:
    def test_it_comes_back_from_its_file_as_it_was(self, tmp_path):
        results = Results({"when": "now"}, {"measured": {}})
        results.runs["a"] = {"x": {0: Outcome(1, 2, 1, math.inf, 0.5, {"up": math.inf, "down": 1.5}, 70, 4)}}
        results.write(tmp_path / "results.json")
        assert Results.read(tmp_path / "results.json") == results

    def test_its_file_is_plain_json(self, tmp_path):
        results = Results(runs={"a": {"x": {0: Outcome(1, 2, 1, math.inf, 0.5, {})}}})
        results.write(tmp_path / "results.json")
        assert json.loads((tmp_path / "results.json").read_text())["runs"] == {
            "a": {"x": {"0": [1, 2, 1, None, 0.5, {}, 0, 0]}}
        }


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A lab of one scenario, without the published strategies: the folder it wrote, and how it ended."""
    folder = tmp_path_factory.mktemp("lab")
    nothing = str(folder / "nothing.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab, "QUICK", replace(QUICK, published=0))
        ended = lab.main(["--quick", "--only", "tb-slow", "--jobs", "2", "--output", str(folder), "--against", nothing])
    return folder, ended


class TestACommand:
    def test_it_writes_a_page_and_its_figures(self, first):
        folder, ended = first
        assert ended == 0
        told = (folder / "controllers.md").read_text()
        assert "| tb-slow | **" in told
        assert "python -m bench.lab" in told
        assert set(Results.read(folder / "controllers.json").seeds("tb-slow", ADAPTIVE)) == {0, 1}

    def test_the_page_can_be_written_again(self, first):
        folder, _ = first
        told = (folder / "controllers.md").read_text()
        (folder / "controllers.md").unlink()
        assert lab.main(["--render", "--output", str(folder)]) == 0
        assert (folder / "controllers.md").read_text() == told

    def test_it_fails_when_a_cell_became_worse_and_still_writes(self, first, tmp_path, capsys, monkeypatch):
        folder, _ = first
        same = Results.read(folder / "controllers.json").runs
        monkeypatch.setattr(lab, "_measure", lambda jobs, processes, results, say: results.runs.update(same))
        better = Results.read(folder / "controllers.json")
        runs = better.runs["tb-slow"][ADAPTIVE]
        for seed, one in runs.items():
            runs[seed] = one._replace(ok=one.ok + 50, refused=0)
        better.write(tmp_path / "better.json")
        against = ["--against", str(tmp_path / "better.json"), "--output", str(tmp_path)]
        assert lab.main(["--quick", "--only", "tb-slow", "--jobs", "2", *against]) == 1
        assert "WORSE tb-slow: goodput fell from" in capsys.readouterr().out
        assert "## Worse than the committed table" in (tmp_path / "controllers.md").read_text()

    def test_what_became_worse_is_not_what_the_next_run_is_compared_with(self, tmp_path, monkeypatch):
        monkeypatch.setattr(lab, "COMMITTED", tmp_path)
        for is_bar, exists in ((False, False), (True, True)):
            lab._write(tmp_path, "told", Results(), lambda line: None, is_bar=is_bar)
            assert (tmp_path / "controllers.json").exists() is exists
        assert (tmp_path / "controllers.md").read_text() == "told"

    @pytest.mark.parametrize("wrong", [["--only", "tb51"], ["--jobs", "0"], ["--full", "--quick"]])
    def test_it_does_not_guess_what_was_meant(self, wrong, capsys):
        with pytest.raises(SystemExit):
            lab.main(wrong)
        assert "error:" in capsys.readouterr().err

    def test_an_interrupt_stops_it_cleanly(self):
        command = [sys.executable, "-m", "bench.lab", "--only", "tb500", "--jobs", "2"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True, "cwd": ROOT}
        with subprocess.Popen(command, **pipes) as process:
            assert b"runs to make, 2 at a time" in process.stderr.readline()
            time.sleep(0.1)  # its processes start, or are at work
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
            out, errors = process.communicate(timeout=30)
        assert (process.returncode, out) == (130, b"")
        assert errors.decode().splitlines()[-1].endswith("stopped; nothing was written")
        assert b"Traceback" not in errors


class TestThePage:
    def test_an_empty_book_makes_one_too(self):
        results = Results(circumstances={"command": "c", "when": "w", "minutes": 1.0, "machine": "m", "seeds": SEEDS})
        told = page(results, {}, {})
        assert "Nothing is missed." in told
        assert "No other strategy was run beside it." in told

    def test_a_missed_mark_is_explained_by_its_note_or_not_at_all(self):
        runs = {ADAPTIVE: {0: Outcome(1, 10, 9, 1.0, 1.0, {})}, ORACLE: {0: Outcome(10, 10, 0, 1.0, 1.0, {})}}
        results = Results(circumstances={"command": "c", "when": "w", "minutes": 1.0, "machine": "m", "seeds": SEEDS})
        results.runs = {"tb50": runs, "tb-rpm": runs}
        told = page(results, bundled(), {"tb50": "It cannot be done."})
        assert "**tb50** (goodput 10.00 %, asked >= 97 %; 429s 90.00 %, asked <= 0.5 %): It cannot be done." in told
        assert "asked <= 0.5 %): not explained." in told


def test_the_page_shows_what_could_be_reached_at_all_beside_the_headline():
    results, reached = Results(), {"oracle": 1000, "adaptive": 900, "informed": 990}
    for number in range(8):
        labels = {label: {0: Outcome(ok, 3000, 9, 1.0, 1.0, {})} for label, ok in reached.items()}
        results.runs[f"unseen-0-{number}"] = labels
    results.circumstances = {"command": "", "when": "", "minutes": 1.0, "machine": "", "seeds": SEEDS}
    told = page(results, {}, {})
    assert "| informed | 99.00% | 99.00% |" in told
    assert "none is beyond reach" in told
    assert "| 10.0% | 1.0% |" in told


SEEDS = {"ours": 2, "published": 1, "lesser": 1, "circuit": 1, "unseen": 12, "herds": 0}


class TestScale:
    def test_a_size_is_measured_in_a_process_of_its_own(self):
        measured = scale.measure_apart("keys", 1000)
        assert measured.size == 1000
        assert measured.calls >= 1000
        assert measured.microseconds > 0

    def test_all_sizes_make_a_table(self):
        found = {kind.name: [scale.Measured(kind.sizes[-1], 10, 1.0, 2.0, 1.0, 1.0)] for kind in scale.KINDS}
        told = list(scale.rows(found))
        assert [row[1] for row in told[2:]] == ["1,000,000", "10,000", "64", "64"]
