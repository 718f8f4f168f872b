"""Strategies tried out on small servers, and what-ifs from a small recording."""

import json
import os
import re
import signal
import tomllib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import headgate.cli.commands.simulate as simulate
from headgate.cli.commands.simulate_display import OUR_STRATEGIES, YOUR_OWN, duration, quota_text, whole_time
from headgate.lab.baselines import BASELINES
from headgate.lab.experiment import OURS
from headgate.lab.measures import Decision
from headgate.lab.scenario_file import bundled_names, named, read_scenario
from headgate.lab.traces.analysis import KeySeen, Stretch, analyze_trace
from headgate.lab.traces.trace import Call, Heading, Trace, TraceWriter
from headgate.lab.traces.whatif import as_it_was

SMALL = """
note = "a small server"
horizon = "12s"
workers = 8
limits = [{ algorithm = "bucket", rate = "40/s", burst = 10 }]
settling = "2s"
[marks]
start = "0s"
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


@pytest.fixture
def recording(tmp_path):
    """200 calls under 20/s, refused twice."""
    path = tmp_path / "run.jsonl"
    writer = TraceWriter(path, Heading(calls=200, workers=4, recorded_at="2026-11-15T08:45:22Z"))
    for number in range(200):
        writer.call("api", number / 20, 0.05, 200, 0.1, None)
    for at in (3.0, 8.0):
        writer.call("api", at, 0.002, 429, 0.1, None)
    writer.end(10.0)
    return path


def lines(result):
    return [json.loads(line) for line in result.out.splitlines()]


def test_a_scenario_is_judged_in_a_table(headgate, small):
    result = headgate("simulate", small, "--strategy", "adaptive,backoff", "--seeds", "2")
    assert result.code == 0, result.err
    for word in ("small: a small server", "8 workers", "medians of 2 seeds (0 to 1)", "goodput", "429s", "to 95 %"):
        assert word in result.out
    first_words = [line.split()[0] for line in result.out.splitlines() if line]
    assert first_words.index("adaptive") < first_words.index("backoff")
    assert "fairness" not in result.out
    assert result.err == ""


@pytest.mark.parametrize("columns", [80, 120])
def test_the_widest_table_fits_the_window(headgate, monkeypatch, columns, tmp_path):
    path = tmp_path / "changing.toml"
    marks = 'down = "4s"\nup = "8s"\n'
    path.write_text(SMALL.replace("[marks]", 'steps = ["0.5@4s", "1.5@8s"]\n[marks]') + marks, encoding="utf-8")
    monkeypatch.setenv("COLUMNS", str(columns))
    result = headgate("simulate", path, "--strategy", "adaptive,aimd-per-response", "--seeds", "1")
    assert max(map(len, result.out.splitlines())) <= columns
    assert "aimd-per-response" in result.out
    assert "…" not in result.out
    assert all(line == line.rstrip() for line in result.out.splitlines())


@pytest.mark.no_cover
@pytest.mark.parametrize("columns", [30, 50, 70])
def test_in_a_narrow_window_numbers_stay_whole(headgate, monkeypatch, small, columns):
    arguments = ("simulate", small, "--strategy", "adaptive,aimd-per-response", "--seeds", "1")
    monkeypatch.setenv("COLUMNS", "200")
    table = [line.split() for line in headgate(*arguments).out.splitlines()]
    numbers = [re.findall(r"[\d.]+(?:%| m?s)|never", " ".join(line[1:])) for line in table if line[:1] == ["adaptive"]]
    assert len(numbers[0]) == 5
    monkeypatch.setenv("COLUMNS", str(columns))
    out = headgate(*arguments).out
    assert all(number in out for number in numbers[0])
    assert "95 %" in out
    assert "…" not in out
    assert all(len(line) <= columns or " " not in line.strip() for line in out.splitlines())


def test_a_file_without_a_note_is_told_by_its_fields(headgate, tmp_path):
    path = tmp_path / "plain.toml"
    path.write_text(SMALL.replace('note = "a small server"', ""), encoding="utf-8")
    assert "plain: token bucket of 40/s, burst 10; bare 429s" in headgate("simulate", path, "--seeds", "1").out


def test_a_scenario_is_shown_as_a_file_to_start_from(headgate, tmp_path):
    result = headgate("simulate", "--show", "step")
    assert result.code == 0
    path = tmp_path / "step.toml"
    path.write_text(result.out, encoding="utf-8")
    assert read_scenario(path) == named("step")
    (line,) = lines(headgate("simulate", "--show", "step", "--json"))
    assert (line["type"], line["toml"]) == ("scenario", result.out)


def test_the_lists_file_is_never_wrapped(headgate, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    out = headgate("simulate", "--list").out
    assert all(f"  {line}".rstrip() in out.splitlines() for line in YOUR_OWN.splitlines())
    assert "docs/scenarios.md" in out


def test_machines_get_a_line_for_each_strategy_without_infinities(headgate, small):
    result = headgate("simulate", small, "--strategy", "adaptive,pause-60", "--seeds", "1", "--seed", "5", "--json")
    assert result.code == 0, result.err
    adaptive, pause = lines(result)
    assert adaptive["type"] == pause["type"] == "result"
    assert (adaptive["strategy"], adaptive["scenario"], adaptive["seeds"]) == ("adaptive", "small", [5])
    assert 0.5 < adaptive["goodput"] <= 1.1
    assert pause["convergence"] == {"start": None}
    assert "Infinity" not in result.out


@pytest.mark.no_cover
def test_the_same_seed_says_the_same_and_jobs_change_nothing(headgate, small):
    arguments = ["simulate", small, "--seeds", "2", "--json"]
    once = headgate(*arguments).out
    assert headgate(*arguments).out == once
    assert headgate(*arguments, "--jobs", "2").out == once


@pytest.mark.no_cover
def test_strategies_side_by_side_are_told_who_got_how_much(headgate, small):
    result = headgate("simulate", small, "--strategy", "adaptive+aimd", "--seeds", "1")
    assert "adaptive+aimd: of the finished calls, adaptive " in result.out
    assert "fairness" in result.out
    (line,) = lines(headgate("simulate", small, "--strategy", "adaptive+aimd", "--seeds", "1", "--json"))
    assert sum(line["shares"].values()) == pytest.approx(1.0)


def test_all_is_every_strategy_once_and_a_name_twice_is_one(monkeypatch):
    assert sorted(simulate.read_strategies("all")) == sorted({*OURS, *BASELINES})
    assert simulate.read_strategies("aimd, adaptive,aimd") == ("aimd", "adaptive")
    assert simulate.read_strategies(" aimd + adaptive ") == ("aimd+adaptive",)


@pytest.mark.no_cover
@pytest.mark.parametrize(("suffix", "start"), [(".svg", b"<svg"), (".png", b"\x89PNG")])
def test_the_run_can_be_drawn(headgate, small, tmp_path, suffix, start):
    if suffix == ".png":
        pytest.importorskip("PIL")
    picture = tmp_path / f"run{suffix}"
    result = headgate("simulate", small, "--strategy", "adaptive,cubic", "--seeds", "1", "--picture", picture)
    assert result.code == 0, result.err
    assert start in picture.read_bytes()[:200]
    assert f"picture: {picture}".replace("\n", "") in result.out.replace("\n", "")
    if suffix == ".svg":
        text = "".join(ElementTree.parse(picture).getroot().itertext())
        assert "headgate simulate small" in text
        assert "of an oracle's goodput" in text


def test_machines_are_told_of_the_picture(headgate, small, tmp_path):
    picture = tmp_path / "run.svg"
    told = lines(headgate("simulate", small, "--seeds", "1", "--picture", picture, "--json"))
    assert [line["type"] for line in told] == ["result", "picture"]


def test_a_picture_that_cannot_be_written_is_one_sentence(headgate, small, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headgate.cli.commands.simulate_whatif.save", full)
    result = headgate("simulate", small, "--seeds", "1", "-o", tmp_path / "run.svg")
    assert result.code == 3
    assert "goodput" in result.out
    assert "No space left on device" in result.err


def test_a_run_is_explained_in_the_controllers_words(headgate, small, monkeypatch):
    real = simulate.run

    def told(*arguments, **options):
        book = real(*arguments, **options)
        book.decisions[:] = [
            Decision(1.25, 0, 0, "cut", "refused at 44.0/s: 40.1/s were accepted since the last refusal")
        ]
        return book

    monkeypatch.setattr(simulate, "run", told)
    result = headgate("simulate", small, "--seeds", "1", "--explain")
    assert "adaptive, seed 0: decisions, with time and reason" in result.out
    assert "1.25 s  cut  refused at 44.0/s" in result.out
    line = lines(headgate("simulate", small, "--seeds", "1", "--explain", "--json"))[-1]
    assert line["type"] == "event"
    assert (line["kind"], line["at"], line["strategy"]) == ("cut", 1.25, "adaptive")


def test_a_strategy_that_does_not_tell_is_said_so(headgate, small):
    result = headgate("simulate", small, "--strategy", "backoff", "--seeds", "1", "--explain")
    assert "this strategy reports no events" in result.out


def test_the_list_has_every_scenario_strategy_and_a_file_to_start_from(headgate, tmp_path):
    result = headgate("simulate", "--list")
    assert result.code == 0
    words = {line.split()[0] for line in result.out.splitlines() if line.strip()}
    assert {*bundled_names(), *OURS, *BASELINES} <= words
    for line in YOUR_OWN.splitlines():
        assert line in result.out
    path = tmp_path / "my-api.toml"
    path.write_text(YOUR_OWN, encoding="utf-8")
    assert read_scenario(path).headers == "openai"
    assert tomllib.loads(YOUR_OWN)


def test_the_list_for_machines(headgate):
    told = lines(headgate("simulate", "--list", "--json"))
    assert {line["scenario"] for line in told if line["type"] == "scenario"} == set(bundled_names())
    assert all(line["group"] for line in told if line["type"] == "scenario")
    assert {line["strategy"] for line in told if line["type"] == "strategy"} == {*OURS, *BASELINES}
    assert set(OUR_STRATEGIES) == set(OURS)


def test_a_recording_is_simulated_as_it_was_and_as_asked(headgate, recording):
    result = headgate("simulate", "--trace", recording, "--rate", "x2", "--workers", "50", "--seeds", "1", "--json")
    assert result.code == 0, result.err
    really, again, asked = lines(result)
    assert {line["type"] for line in (really, again, asked)} == {"result"}
    assert (really["what"], really["seconds"], really["done"]) == ("as it was", 10.0, 200)
    assert again["what"] == "simulated as recorded"
    assert again["seconds"] == pytest.approx(10.0, rel=0.3)
    assert asked["what"] == "simulated quota x2, 50 workers"
    assert asked["seconds"] < 0.8 * again["seconds"]
    assert asked["quota_is_measured"] is True
    assert "instead of 10.0 s" in result.err


def test_the_answer_says_how_far_it_can_be_trusted(headgate, recording, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    result = headgate("simulate", "--trace", recording, "--seeds", "1")
    assert "200 calls done by 4 workers in 10.0 s" in result.out
    assert "quota as seen: 20" in result.out
    assert "Check: simulated as recorded, the run takes" in result.out
    assert "only a known lower bound" not in result.out


def test_a_run_that_was_never_refused_is_known_only_from_below(headgate, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "run.jsonl"
    writer = TraceWriter(path, Heading(calls=300, workers=4))
    for number in range(100):
        writer.call("api", number / 20, 0.05, 200, 0.1, None)
    result = headgate("simulate", "--trace", path, "--seeds", "1")
    writer.end(5.0)
    assert "at least" in result.out
    assert "lower bound" in result.out
    assert "100 of 300 calls" in result.out
    assert "is incomplete" in result.out


def test_a_what_if_can_be_drawn_explained_and_asked_of_other_strategies(headgate, recording, tmp_path):
    picture = tmp_path / "what-if.svg"
    options = ["--strategy", "adaptive,aimd", "--rate", "30/s", "--seeds", "1", "--picture", picture, "--explain"]
    result = headgate("simulate", "--trace", recording, *options)
    assert result.code == 0, result.err
    assert "simulated quota 30/s, aimd" in result.out
    assert "aimd, seed 0" in result.out
    assert "quota 30/s" in "".join(ElementTree.parse(picture).getroot().itertext())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "give a scenario"),
        (["tb50", "--list"], "give a scenario"),
        (["tb51"], 'did you mean "tb50"?'),
        (["zzz"], "--list"),
        (["no-such.toml"], "cannot read no-such.toml"),
        (["STEP"], 'did you mean "step"?'),
        (["step.toml"], 'did you mean "step", a built-in scenario?'),
        (["--show", "stepp"], 'did you mean "step"?'),
        (["--show", "zzz"], "for built-in scenarios only"),
        (["tb50", "--show", "step"], "give a scenario"),
        (["tb50", "--strategy", "zzz"], "must be one of adaptive"),
        (["tb50", "--strategy", "adpative"], 'did you mean "adaptive"?'),
        (["tb50", "--strategy", "AIMD"], 'did you mean "aimd"?'),
        (["tb50", "--strategy", "adaptive+"], "lacks a strategy beside +"),
        (["tb50", "--strategy", ","], "adaptive,aimd"),
        (["tb50", "--rate", "x2"], "add --trace FILE"),
        (["tb50", "--workers", "5"], "add --trace FILE"),
        (["tb50", "--keys", "+2"], "--keys is for recordings"),
        (["--trace", "/dev/null", "--keys", "some"], "+2 for two more"),
        (["--trace", "/dev/null", "--rate", "fast"], "x2"),
        (["--trace", "/no/such/file"], "does not exist"),
        (["tb50", "--picture", "run.gif"], ".svg or .png"),
        (["tb50", "--picture", "/no/such/directory/run.svg"], "directory"),
        (["tb50", "--picture", "run.svg", "--strategy", "all"], "at most 6"),
        (["tb50", "--seeds", "0"], "1"),
        (["tb50", "--jobs", "many"], "whole number"),
    ],
)
def test_a_wrong_command_line_says_what_is_right(headgate, arguments, word):
    result = headgate("simulate", *arguments)
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert word in result.err


def test_a_wrong_file_is_named_with_its_field(headgate, tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text('limits = [{ algorithm = "bucket", rate = "fast" }]\n', encoding="utf-8")
    result = headgate("simulate", path)
    assert result.code == 2
    assert "wrong.toml" in result.err
    assert "rate" in result.err
    assert "--show step" in result.err
    assert "docs/scenarios.md" in result.err
    assert "--help" not in result.err
    recording = tmp_path / "run.jsonl"
    recording.write_text("hello\n", encoding="utf-8")
    result = headgate("simulate", "--trace", recording)
    assert result.code == 2
    assert "run.jsonl" in result.err


def test_a_recording_in_which_nothing_was_served_cannot_be_asked(headgate, tmp_path):
    path = tmp_path / "run.jsonl"
    writer = TraceWriter(path, Heading(calls=3, workers=4))
    writer.call("api", 0.0, 0.05, 503, 0.1, None)
    writer.end(1.0)
    result = headgate("simulate", "--trace", path)
    assert result.code == 3
    assert "no served call" in result.err


def test_ctrl_c_prints_what_is_done_and_exits_with_4(headgate, small, monkeypatch):
    done = []

    def interrupted(lot, *_):
        if done:
            raise KeyboardInterrupt
        done.append(lot)
        return real(lot)

    real = simulate.measure
    monkeypatch.setattr(simulate, "measure", interrupted)
    result = headgate("simulate", small, "--seeds", "5")
    assert result.code == 4
    assert "seed 0" in result.out
    assert "Stopped: 1 of 5 seeds are done." in result.out


def test_ctrl_c_in_a_what_if_prints_the_answers_that_are_there(headgate, recording, monkeypatch):
    def interrupted(seen, asked, *_):
        if asked.workers:
            raise KeyboardInterrupt
        return as_it_was(seen)

    monkeypatch.setattr("headgate.cli.commands.simulate_whatif.simulate", interrupted)
    result = headgate("simulate", "--trace", recording, "--workers", "9")
    assert result.code == 4
    assert "simulated as recorded" in result.out
    assert "Stopped: 1 of 2 answers are done." in result.out


def test_an_answer_that_does_not_come_is_never(headgate, recording):
    result = headgate("simulate", "--trace", recording, "--rate", "1/s", "--strategy", "pause-60", "--seeds", "1")
    assert "never" in result.out
    assert "several times longer than the quota allows" in " ".join(result.out.split())


def test_keys_and_many_changes_are_told_in_few_words():
    many = tuple(Stretch(float(number), number + 1.0, 10.0 * (number + 1), True) for number in range(9))
    seen = analyze_trace(Trace(Heading(calls=1, workers=1), [Call(0.0, 0.1, 200), Call(1.0, 0.1, 200, key=2)], [], 2.0))
    assert quota_text(seen) == "on average key 1 1/s, key 2 1/s"
    labelled = tuple(replace(key, label=f"key-{number}") for number, key in enumerate(seen.keys * 4))
    assert quota_text(replace(seen, keys=labelled)).startswith("on average key-0 1/s, key-1 1/s, ")
    assert quota_text(replace(seen, keys=labelled)).endswith(", and 2 more keys")
    one = replace(seen, keys=(KeySeen(stretches=many, burst=4.0),))
    assert quota_text(one).startswith("10/s, 20/s from 1.0 s, ")
    assert quota_text(one).endswith("and 3 more changes")


@pytest.mark.skipif(os.name == "nt", reason="signals and pipes as POSIX has them")
def test_a_real_ctrl_c_ends_a_long_run_at_once(headgate_process, tmp_path):
    path = tmp_path / "long.toml"
    os.mkfifo(path)
    process = headgate_process("simulate", path, "--seeds", "3", "--json", "--strategy", "oracle,adaptive")
    with open(path, "w", encoding="utf-8") as scenario:  # opens as soon as the command reads it
        scenario.write(SMALL.replace("12s", "3h"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4, err
    assert out == ""
    assert "stopped" in err.lower()
    assert err.strip().count("\n") == 0


def test_a_pipe_gets_no_colours(headgate, small):
    for arguments in (["--list"], [small, "--seeds", "1"]):
        assert "\x1b" not in headgate("simulate", *arguments).out


def test_the_manuals_examples_can_be_typed():
    text = (Path(__file__).parents[3] / "docs" / "simulate.md").read_text(encoding="utf-8")
    typed = re.findall(r"^\$ headgate simulate (.*)$", text, re.MULTILINE)
    assert len(typed) >= 2
    known = {option for parameter in simulate.command.params for option in parameter.opts}
    for words in map(str.split, typed):
        assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 s"), (0.25, "250 ms"), (1.0, "1.0 s"), (445.2, "445 s"), (float("inf"), "never"), (float("nan"), "-")],
)
def test_durations_are_short(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(12.0, "12 s"), (90.0, "90 s"), (300.0, "5 min"), (3600.0, "1 h"), (900.0, "15 min")]
)
def test_a_horizon_is_told_in_its_own_unit(seconds, words):
    assert whole_time(seconds) == words
