"""How the lab judges figures: marks, rivals, the headline, and what became worse."""

import math

import pytest
from bench.lab.marks import CLASSES, TOLD_THE_QUOTA, Verdict, compare, verdicts, without_marks
from bench.lab.misses import by_algorithm, headline, misses, read_notes, summary, worse, worst
from bench.lab.plan import ADAPTIVE, DEFAULT_CIRCUIT
from bench.lab.results import Outcome, Results

from headgate.lab.scenario_file import bundled, bundled_names

SCENARIOS = bundled()


def outcome(goodput=1.0, refused=0.0, p99=1.0, jain=1.0, **convergence):
    """A run beside an oracle that gets 10,000 calls done."""
    sent = 100_000
    return Outcome(round(10_000 * goodput), sent, round(sent * refused), p99, jain, convergence)


def results_of(cells):
    """From ``{(scenario, label): [outcome, ...]}``, one for each seed; oracles come by themselves."""
    results = Results()
    for (scenario, label), outcomes in cells.items():
        labels = results.runs.setdefault(scenario, {})
        labels[label] = dict(enumerate(outcomes))
        labels.setdefault("oracle", {}).update({seed: outcome() for seed in range(len(outcomes))})
    return results


def judged(scenario, *outcomes):
    [(_, _, found)] = verdicts(results_of({(scenario, ADAPTIVE): outcomes}), SCENARIOS)
    return {verdict.what: verdict for verdict in found}


class TestMarks:
    def test_every_scenario_there_is_has_marks_or_is_known_to_have_none(self):
        assert without_marks(bundled_names()) == ["share4-fw"]
        assert {name for one in CLASSES for name in (*one.scenarios, *one.also)} <= set(bundled_names())

    def test_a_figure_on_the_mark_meets_it(self):
        found = judged("tb50", outcome(goodput=0.97, refused=0.005, p99=1.5))
        assert {what: verdict.met for what, verdict in found.items()} == {
            "goodput": True,
            "429s": True,
            "p99 item": True,
        }

    def test_a_figure_beyond_the_mark_misses_it(self):
        found = judged("tb50", outcome(goodput=0.9699, refused=0.00501, p99=1.501))
        assert not any(verdict.met for verdict in found.values())

    def test_the_median_over_the_seeds_is_judged(self):
        found = judged("tb50", outcome(goodput=0.5), outcome(goodput=0.98), outcome(goodput=0.99))
        assert found["goodput"].measured == 0.98

    def test_what_finding_a_quota_costs_is_judged_apart_from_what_follows(self):
        found = judged("tb-burst", outcome(refused=0.00102)._replace(first_sent=70, first_refused=7))
        assert found["429s in the first minute"].measured == 0.1
        assert found["429s"].measured == pytest.approx(95 / 99_930)

    def test_a_step_up_on_bare_429s_has_the_time_the_bound_allows(self):
        found = judged("step", outcome(up=12.0, down=99.0, start=99.0))
        assert found["95 % after up"].mark == pytest.approx(1.2 * 1.5 / (0.005 * 30))
        assert found["95 % after up"].met
        assert "95 % after down" not in found

    def test_with_headers_every_step_is_followed_within_two_seconds(self):
        found = judged("hdr-tb", outcome(up=1.5, down=2.5, start=99.0))
        assert found["95 % after up"].met
        assert not found["95 % after down"].met
        assert "95 % after start" not in found

    def test_an_outage_that_is_over_is_no_step_up(self):
        assert set(judged("outage-hang", outcome(back=math.inf))) == {"goodput", "429s"}

    def test_processes_are_held_to_fairness(self):
        assert not judged("share4-together", outcome(jain=0.98))["Jain"].met
        assert judged("share4", outcome(jain=0.96))["Jain"].met

    def test_a_narrow_miss_is_shown_with_the_digits_that_tell_it(self):
        assert Verdict("s", "goodput", 0.96999, 0.97, "%", at_least=True).told == "96.999 %"
        assert Verdict("s", "goodput", 0.97001, 0.97, "%", at_least=True).told == "97.00 %"
        assert Verdict("s", "95 % after up", math.inf, 12.0, "s").told == "never"


class TestRivals:
    def test_more_goodput_for_no_more_refusals_beats_it(self):
        results = results_of({("tb50", ADAPTIVE): [outcome(0.95, 0.003)], ("tb50", "cubic"): [outcome(0.97, 0.003)]})
        [beaten] = compare(results).beaten
        assert (beaten.scenario, beaten.rival) == ("tb50", "cubic")

    def test_one_point_more_is_allowed(self):
        results = results_of({("tb50", ADAPTIVE): [outcome(0.95)], ("tb50", "cubic"): [outcome(0.96)]})
        assert compare(results) == (1, 0, [])

    def test_goodput_for_more_refusals_is_bought_too_dearly(self):
        results = results_of({("tb50", ADAPTIVE): [outcome(0.95, 0.003)], ("tb50", "cubic"): [outcome(0.99, 0.004)]})
        assert compare(results) == (1, 1, [])

    def test_the_same_seeds_are_compared(self):
        ours = [outcome(0.99), outcome(0.5), outcome(0.5)]
        results = results_of({("tb50", ADAPTIVE): ours, ("tb50", "cubic"): [outcome(0.98)]})
        assert compare(results).beaten == []

    def test_rivals_that_are_told_the_quota_are_compared_apart(self):
        results = results_of({("tb50", ADAPTIVE): [outcome(0.95)], ("tb50", "cookbook"): [outcome(1.0)]})
        assert compare(results).pairs == 0
        assert [one.rival for one in compare(results, TOLD_THE_QUOTA).beaten] == ["cookbook"]


def unseen_results(goodputs, refused=0.0, seed=0):
    return results_of(
        {(f"unseen-{seed}-{number}", ADAPTIVE): [outcome(goodput, refused)] for number, goodput in enumerate(goodputs)}
    )


class TestUnseen:
    def test_the_headline_is_quantiles_over_scenarios(self):
        found = headline(unseen_results([0.5 + number / 200 for number in range(100)], refused=0.004), ADAPTIVE)
        assert (found.goodput_p50, found.goodput_p10, found.goodput_least) == (0.75, 0.55, 0.5)
        assert (found.scenarios, found.refused_p90, found.refused_most) == (100, 0.004, 0.004)
        assert [verdict.met for verdict in found.verdicts()] == [False, False, True, True, True]

    def test_of_short_runs_the_refusals_are_counted(self):
        results = unseen_results([0.99] * 9)
        results.runs["unseen-0-0"][ADAPTIVE][0] = Outcome(900, 1_000, 61, 1.0, 1.0, {})
        found = headline(results, ADAPTIVE)
        assert (found.refused_most, found.few_refused) == (0.0, 61)
        assert [verdict.met for verdict in found.verdicts()][-2:] == [True, False]

    def test_there_is_none_without_runs(self):
        assert headline(Results(), ADAPTIVE) is None

    def test_the_worst_are_told_with_what_they_are(self):
        name, cell, note = worst(unseen_results([0.99, 0.6, 0.98]), ADAPTIVE)[0]
        assert (name, cell.goodput) == ("unseen-0-1", 0.6)
        assert note

    def test_what_is_missing_is_told_by_how_the_server_counts(self):
        results = unseen_results([0.9, 0.8] * 20)
        found = by_algorithm(results, ADAPTIVE)
        assert set(found) == {"bucket", "gcra", "window", "log", "strict-log", "concurrency"}
        assert all(0.8 <= share <= 0.9 for share in found.values())
        assert by_algorithm(results, "informed") == {}


class TestWorse:
    def test_a_figure_may_move_a_little(self):
        old = results_of({("tb50", ADAPTIVE): [outcome(0.99, 0.003)]})
        assert list(worse(old, results_of({("tb50", ADAPTIVE): [outcome(0.985, 0.004)]}))) == []

    def test_a_cell_that_lost_goodput_or_won_refusals_is_told(self):
        old = results_of({("tb50", ADAPTIVE): [outcome(0.99, 0.003)]})
        assert list(worse(old, results_of({("tb50", ADAPTIVE): [outcome(0.984, 0.0042)]}))) == [
            "tb50: goodput fell from 99.00% to 98.40%",
            "tb50: 429s rose from 0.300% to 0.420%",
        ]

    def test_seeds_that_both_have_are_compared(self):
        old = results_of({("tb50", ADAPTIVE): [outcome(0.9), outcome(0.99), outcome(0.99)]})
        assert list(worse(old, results_of({("tb50", ADAPTIVE): [outcome(0.9)]}))) == []

    def test_others_may_become_what_they_like(self):
        old = results_of({("tb50", "cubic"): [outcome(0.9)], ("new", ADAPTIVE): [outcome()]})
        new = results_of({("tb50", "cubic"): [outcome(0.1)], ("tb50", ADAPTIVE): [outcome(0.1)]})
        assert list(worse(old, new)) == []

    def test_the_default_circuit_counts(self):
        old = results_of({("outage", DEFAULT_CIRCUIT): [outcome(0.9)]})
        [told] = worse(old, results_of({("outage", DEFAULT_CIRCUIT): [outcome(0.8)]}))
        assert told.startswith("outage, adaptive with the default circuit: goodput fell")

    def test_the_headline_counts_over_the_scenarios_that_both_have(self):
        old = unseen_results([0.99] * 12)
        assert list(worse(old, unseen_results([0.99] * 3))) == []
        told = list(worse(old, unseen_results([0.99, 0.8, 0.8])))
        assert told[0] == "unseen (3 scenarios): p50 of goodput fell from 99.00% to 80.00%"

    def test_another_controller_has_other_scenarios(self):
        assert list(worse(unseen_results([0.99] * 3), unseen_results([0.8] * 3, seed="f00"))) == []


class TestMisses:
    BOOK = results_of(
        {
            ("tb50", ADAPTIVE): [outcome(0.9, 0.0, p99=1.2)],
            ("tb50", "cubic"): [outcome(0.95)],
            ("tb-rpm", ADAPTIVE): [outcome()],
        }
    )

    def test_all_that_was_asked_for_and_not_reached_is_told(self):
        assert [(one.name, one.what) for one in misses(self.BOOK, SCENARIOS)] == [
            ("tb50", "goodput 90.00 %, asked >= 97 %"),
            ("rivals", "cubic in tb50: 95.0% / 0.00% beside 90.0% / 0.00%"),
        ]

    def test_what_has_no_note_is_told_and_so_are_notes_without_need(self):
        told = summary(self.BOOK, SCENARIOS, {"rivals": "because", "tb-rpm": "because"})
        assert told == (
            "5 of 6 marks met. The rule about rivals is broken 1 times. "
            "Not explained: tb50. Explained without need: tb-rpm."
        )

    def test_notes_are_texts(self, tmp_path):
        path = tmp_path / "notes.toml"
        path.write_text("tb50 = 7")
        with pytest.raises(ValueError, match=r"notes\.toml: tb50=7 must be a text"):
            read_notes(path)

    def test_the_notes_there_are_speak_of_scenarios(self):
        assert set(read_notes()) <= {*bundled_names(), "unseen", "rivals"}
