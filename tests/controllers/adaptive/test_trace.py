"""What a controller tells a listener: what was learned, when, and why."""

from __future__ import annotations

import re

import pytest

from headgate.controllers.adaptive import Adaptive, AdaptiveSettings
from headgate.lab.experiment import decision_text

pytestmark = pytest.mark.no_cover

KINDS = {"cut", "raise", "hold", "resume", "learn", "mode"}


def events_of(world, until):
    told = []
    world.controller.listen(lambda now, event: told.append((now, event.kind, decision_text(event))))
    world.run(until)
    return told


def sentences(told, kind):
    return [sentence for _, each, sentence in told if each == kind]


def test_each_turning_point_is_told_as_it_happens(lab):
    told = events_of(lab.World(lab.TokenBucket(50, 50)), 60)
    assert {"cut", "raise", "hold", "resume"} <= {kind for _, kind, _ in told} <= KINDS
    instants = [now for now, _, _ in told]
    assert instants == sorted(instants)
    assert 0.0 < instants[0] < instants[-1] <= 60.0


def test_a_cut_names_the_pace_that_was_refused_what_was_measured_and_the_new_pace(lab):
    cuts = sentences(events_of(lab.World(lab.TokenBucket(50, 50)), 60), "cut")
    last = re.fullmatch(
        r"refused at ([\d.]+)/s; (\d+) admitted in the ([\d.]+) s since the last refusal, [\d.]+/s: "
        r"the quota is ([\d.]+)/s; continuing at ([\d.]+)/s",
        cuts[-1],
    )
    refused_at, calls, span, quota, pace = map(float, last.groups())
    assert refused_at > quota > pace
    assert abs(calls / span - 50.0) < 1.0


def test_a_first_cut_says_that_there_was_nothing_to_measure_by(lab):
    cuts = sentences(events_of(lab.World(lab.TokenBucket(50, 50)), 3), "cut")
    assert re.fullmatch(r"refused while searching: back to [\d.]+/s, measuring on the way up", cuts[0])


def test_a_raise_names_how_long_which_quota_was_held_and_how_far_it_looks(lab):
    told = events_of(lab.World(lab.TokenBucket(50, 50)), 60)
    looks = sentences(told, "raise")
    assert re.fullmatch(r"[\d.]+ s at (49|50)\.?\d*/s: probing at 5\d\.?\d*/s for more", looks[-1])


def test_growth_is_told_with_the_quota_it_grew_from(lab):
    bucket = lab.TokenBucket(30, 10)
    world = lab.World(bucket)
    world.run(60)
    bucket._fill(60)
    bucket.rate = 90
    assert any(
        re.fullmatch(r"more than (29|30)\.?\d*/s admitted: the quota has grown, searching upwards", sentence)
        for sentence in sentences(events_of(world, 120), "raise")
    )


def test_a_quota_that_collapses_is_told_by_the_share_refused(lab):
    bucket = lab.TokenBucket(100, 5)
    world = lab.World(bucket)
    world.run(60)
    bucket._fill(60)
    bucket.rate = 30
    cuts = sentences(events_of(world, 70), "cut")
    assert any(re.fullmatch(r"\d+ of \d+ refused right after a cut: down to [\d.]+/s", cut) for cut in cuts)


def test_a_hold_says_whether_the_server_asked_for_it_and_when_the_probe_is(lab):
    silent = sentences(events_of(lab.World(lab.TokenBucket(50, 50)), 5), "hold")
    assert re.fullmatch(r"no call is admitted: a probe in 0\.\d\d s", silent[0])
    told = sentences(events_of(lab.World(lab.TokenBucket(5, 5), retry_after=7.0), 20), "hold")
    assert "asked to wait 7 s: a probe in 7.00 s" in told


def test_a_resume_says_how_long_it_was_shut(lab):
    resumes = sentences(events_of(lab.World(lab.TokenBucket(5, 5), retry_after=7.0), 20), "resume")
    assert re.fullmatch(r"a probe was admitted after 7\.\d\d s", resumes[0])


def test_a_window_that_was_learned_is_told_with_its_length_and_quota(lab):
    lessons = sentences(events_of(lab.World(lab.FixedWindow(600, 60, phase=20.0)), 300), "learn")
    assert re.fullmatch(
        r"blocked for [\d.]+ s: the server counts over about [\d.]+ s, [\d.]+/s on average", lessons[-1]
    )


def test_a_change_of_rule_is_told(lab):
    modes = sentences(events_of(lab.World(lab.TokenBucket(50, 50), headers=True), 5), "mode")
    assert modes == ["the headers state what remains of 50: following them"]
    modes = sentences(events_of(lab.World(lab.AtOnce(16), service=0.4), 60), "mode")
    assert re.match(r"always refused with 1[4-7] in flight: a concurrency cap, staying below it", modes[0])
    modes = sentences(events_of(lab.World(lab.Queue(8), workers=256, service=0.1), 30), "mode")
    assert re.fullmatch(r"latency doubled without more throughput: at most \d+ in flight", modes[0])


def test_headers_that_fall_silent_about_what_refuses_us_are_left_with_the_pace_to_go_on_at(lab):
    class Liar(lab.TokenBucket):
        def limits(self, now):
            return (lab.Limit(limit=6000, remaining=5000, reset=30, window=60),)

    modes = sentences(events_of(lab.World(Liar(20, 20), headers=True), 20), "mode")
    assert re.fullmatch(r"the headers do not describe the limit that refused calls; continuing at [\d.]+/s", modes[1])


def test_without_a_listener_nothing_is_told_and_listening_changes_no_decision(lab):
    silent, heard = lab.World(lab.TokenBucket(50, 50)), lab.World(lab.TokenBucket(50, 50))
    told = []
    heard.controller.listen(lambda *each: told.append(each))
    silent.run(30, record=True)
    heard.run(30, record=True)
    assert told
    assert silent.controller.models.search.trace.listener is None
    assert heard.decisions == silent.decisions


def test_the_story_is_not_of_what_is_stored(lab):
    silent, heard = lab.World(lab.TokenBucket(50, 50)), lab.World(lab.TokenBucket(50, 50))
    heard.controller.listen(lambda *each: None)
    silent.run(30)
    heard.run(30)
    state = heard.controller.to_state()
    assert state == silent.controller.to_state()
    reborn = Adaptive(AdaptiveSettings(initial=4.0))
    reborn.load_state(state)
    assert reborn.to_state() == state
    assert reborn.models.search.trace.listener is None


def test_a_listener_that_comes_later_hears_the_rest(lab):
    world = lab.World(lab.TokenBucket(50, 50))
    world.run(30)
    told = events_of(world, 60)
    assert told
    assert min(now for now, _, _ in told) > 30.0
