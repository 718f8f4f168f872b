"""What a run counted by half seconds, as points to draw."""

from __future__ import annotations

import math
import random
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.lab.charts.drawing import CALLS, IN_FLIGHT, LEARNED, OUTAGE, QUOTA, REFUSED, WAITING, Box, Line, Words
from headgate.lab.charts.drawing_file import to_svg
from headgate.lab.charts.run_chart import (
    LEFT,
    MOST_BARS,
    MOST_PANELS,
    RIGHT,
    RunPanel,
    RunsPicture,
    panel_of,
    picture_of,
    quota_of,
)
from headgate.lab.measures import Run, Sample


@pytest.fixture
def book():
    run = Run(scenario="small", strategy="adaptive", seed=0, horizon=4.0, starts=(0.0,))
    run.allowed_per_bin = [5.0] * 4 + [2.5] * 4 + [0.0]
    for at, refused in ((0.1, False), (0.2, False), (1.2, True), (3.7, False)):
        run.note_arrived(at, 429 if refused else 200, refused)
    run.samples = [Sample(0.0, None, 0, 8, ""), Sample(0.5, 4.0, 2, 6, ""), Sample(3.5, 9.0, 1, 7, "paced")]
    return run


def test_the_quota_is_drawn_where_it_changes(book):
    assert quota_of(book, 4.0) == [(0.0, 10.0), (2.0, 5.0)]


def test_counts_become_rates_and_refusals_instants(book):
    panel = panel_of(book, "well done", 4.0)
    assert panel.admitted[0] == (0.0, 4.0)
    assert panel.refused_at == [1.25]
    assert panel.learned == [(0.5, 4.0), (3.5, 9.0)]
    assert panel.waiting[0] == (0.0, 8.0)
    assert panel.in_flight[-1] == (3.5, 1.0)
    assert (panel.name, panel.headline) == ("adaptive", "well done")


def test_nothing_is_drawn_beyond_the_end(book):
    picture = picture_of([("", book)], title="t", note="n", outages=[(0.5, 1.0), (3.0, 4.0)], duration=2.0)
    assert picture.quota == [(0.0, 10.0)]
    assert picture.outages == [(0.5, 1.0)]
    assert [at for at, _ in picture.panels[0].learned] == [0.5]
    assert len(picture.panels[0].admitted) == 4


def test_without_an_end_the_whole_run_is_drawn(book):
    assert picture_of([("", book)], title="t", note="n").duration == 4.0


def test_the_quota_is_named_as_what_it_is(book):
    told = picture_of([("", book)], title="t", note="n", quota_name="quota as seen").drawing()
    words = {mark.text for mark in told.marks if isinstance(mark, Words)}
    assert "quota as seen" in words
    assert "true quota" not in words


def panel(duration=60.0, rate=100.0, **changes):
    draws = random.Random(1)
    instants = [duration * n / 120 for n in range(120)]
    fields = {
        "name": "adaptive",
        "headline": "goodput 98.2 % · 429s 0.31 %",
        "learned": [(at, rate * draws.uniform(0.8, 1.0)) for at in instants],
        "admitted": [(at, rate * draws.uniform(0.8, 1.0)) for at in instants],
        "refused_at": [duration * 0.25, duration * 0.5],
        "waiting": [(at, draws.randrange(20)) for at in instants],
        "in_flight": [(at, draws.randrange(12)) for at in instants],
    }
    return RunPanel(**(fields | changes))


def picture(*panels, **changes):
    fields = {
        "title": "step-down",
        "note": "100/s that drop to half · 32 workers · seed 1",
        "duration": 60.0,
        "quota": [(0.0, 100.0), (30.0, 50.0)],
        "outages": [(45.0, 50.0)],
        "panels": panels or (panel(),),
    }
    return RunsPicture(**(fields | changes)).drawing()


def marks(kind, drawing, colour=None):
    return [mark for mark in drawing.marks if isinstance(mark, kind) and colour in (None, mark.colour)]


def said(drawing):
    return [words.text for words in marks(Words, drawing)]


def in_legend(box):
    return box.height == 11


def across(share):
    return LEFT + (RIGHT - LEFT) * share


def overlapping(drawing):
    """Pairs of words whose frames, drawn in the widest font, touch."""
    frames = [(w.left, w.right, w.y - 0.75 * w.size, w.y + 0.2 * w.size, w.text) for w in marks(Words, drawing)]
    return [
        (one[4], two[4])
        for one, two in combinations(frames, 2)
        if one[0] < two[1] and two[0] < one[1] and one[2] < two[3] and two[2] < one[3]
    ]


def beyond_the_page(drawing):
    edges = [(words.text, words.left, words.y - words.size) for words in marks(Words, drawing)]
    edges += [(words.text, words.right, words.y + 4) for words in marks(Words, drawing)]
    for box in marks(Box, drawing):
        edges += [(box, box.x, box.y), (box, box.x + box.width, box.y + box.height)]
    for line in marks(Line, drawing):
        edges += [(line, x, y) for x, y in line.points]
    return [mark for mark, x, y in edges if not (0 <= x <= drawing.width and 0 <= y <= drawing.height)]


def test_it_is_well_formed_and_names_what_it_shows():
    drawing = picture()
    ElementTree.fromstring(to_svg(drawing))
    for words in ("step-down", "adaptive", "goodput 98.2 % · 429s 0.31 %", "true quota", "learned rate", "429s"):
        assert words in said(drawing)


def test_the_quota_is_dashed_and_drops_at_once():
    quota = next(line for line in marks(Line, picture(), QUOTA) if len(line.points) > 2)
    assert quota.dash
    assert [x for x, _ in quota.points] == [LEFT, (LEFT + RIGHT) / 2, (LEFT + RIGHT) / 2, RIGHT]


def test_every_panel_has_its_learned_rate_its_bars_its_queue_and_the_quota():
    drawing = picture(panel(name="a"), panel(name="b"), panel(name="c"))
    for kind, colour in ((Line, LEARNED), (Line, QUOTA), (Line, IN_FLIGHT)):
        assert len(marks(kind, drawing, colour)) == 3 + 1, colour  # and one in the legend
    for colour in (CALLS, WAITING, OUTAGE, REFUSED):
        tops = {box.y + box.height for box in marks(Box, drawing, colour) if not in_legend(box)}
        assert len(tops) == 3, colour


def test_panels_share_their_axes():
    drawing = picture(panel(learned=[(0.0, 140.0)]), panel(learned=[(0.0, 10.0)]))
    quotas = [line.points for line in marks(Line, drawing, QUOTA) if len(line.points) > 2]
    (first, second) = ([y - points[0][1] for _, y in points] for points in quotas)
    assert first == pytest.approx(second)


def test_bars_stand_for_the_calls_admitted():
    drawing = picture(panel(admitted=[(0.0, 100.0), (30.0, 50.0)], learned=[]))
    bars = [box for box in marks(Box, drawing, CALLS) if not in_legend(box)]
    tallest = max(bar.height for bar in bars)
    assert {round(bar.height / tallest, 3) for bar in bars} == {1.0, 0.5}
    quota = next(line for line in marks(Line, drawing, QUOTA) if len(line.points) > 2)
    assert min(bar.y for bar in bars) == pytest.approx(quota.points[0][1], abs=0.1)


def test_the_bars_of_a_slow_run_stand_for_more_than_a_single_call():
    calls = [(at / 2, 2.0 if at % 200 == 0 else 0.0) for at in range(7200)]
    drawing = picture(panel(admitted=calls, learned=[]), quota=[(0.0, 0.01)], duration=3600.0)
    bars = [box for box in marks(Box, drawing, CALLS) if not in_legend(box)]
    quota = next(line for line in marks(Line, drawing, QUOTA) if len(line.points) == 2 and line.points[1][0] == RIGHT)
    assert len(bars) == 24
    assert all(0.5 < bar.height / (bars[0].y + bars[0].height - quota.points[0][1]) < 1.5 for bar in bars)


def test_a_tick_for_each_refusal_and_one_block_where_they_touch():
    ticks = marks(Box, picture(panel(refused_at=[10.0, 20.0, 20.0, 40.0])), REFUSED)
    assert [tick.x + tick.width / 2 for tick in ticks] == pytest.approx([across(n / 6) for n in (1, 2, 4)])
    block = marks(Box, picture(panel(refused_at=[n / 1000 for n in range(30_000)])), REFUSED)
    assert [box.width for box in block] == pytest.approx([(RIGHT - LEFT) / 2 + 1.2], abs=0.1)


def test_outages_are_shaded_and_those_after_the_end_are_not():
    drawing = picture(outages=[(45.0, 50.0), (58.0, math.inf), (70.0, 80.0)])
    shades = [box for box in marks(Box, drawing, OUTAGE) if not in_legend(box)]
    assert [box.x for box in shades] == pytest.approx([across(45 / 60), across(58 / 60)])
    assert [box.x + box.width for box in shades] == pytest.approx([across(50 / 60), RIGHT])


def test_one_wild_guess_does_not_flatten_the_rest_and_is_told():
    calm, wild = picture(), picture(panel(learned=[(0.0, 9_000.0), (1.0, 100.0)]))
    assert "learned up to 9,000/s" in said(wild)
    assert not any("learned up to" in words for words in said(calm))
    quotas = [next(line for line in marks(Line, one, QUOTA) if len(line.points) > 2) for one in (calm, wild)]
    falls = [line.points[2][1] - line.points[1][1] for line in quotas]
    assert falls[1] > falls[0] / 2


def test_the_learned_rate_is_drawn_to_the_end():
    line = next(line for line in marks(Line, picture(panel(learned=[(0.0, 50.0), (10.0, 60.0)])), LEARNED))
    assert line.points[-1][0] == RIGHT


@pytest.mark.parametrize(("duration", "label"), [(20.0, "20 s"), (3600.0, "60 min"), (86_400.0, "20 h")])
def test_long_runs_are_told_in_minutes_and_hours(duration, label):
    assert label in said(picture(panel(duration), duration=duration))


@pytest.mark.parametrize(("rate", "label"), [(1000.0, "1,000/s"), (2.0, "2/s"), (0.1, "6/min"), (0.01, "40/h")])
def test_the_highest_tick_tells_the_unit(rate, label):
    assert label in said(picture(panel(rate=rate), quota=[(0.0, rate)]))


def test_the_legend_explains_only_what_is_there():
    bare = said(picture(panel(learned=[], refused_at=[]), outages=[]))
    assert not {"learned rate", "429", "outage"} & set(bare)
    assert {"true quota", "calls admitted", "calls waiting", "calls in flight"} <= set(bare)


@pytest.mark.no_cover
def test_many_points_stay_a_small_drawing():
    noise = random.Random(2)
    points = [(n / 2, noise.uniform(0, 100)) for n in range(1800)]
    one = panel(learned=points, admitted=points, waiting=points, in_flight=points, refused_at=[at for at, _ in points])
    drawing = picture(*[one] * MOST_PANELS, duration=900.0)
    assert len(marks(Box, drawing)) <= MOST_PANELS * (2 * MOST_BARS + 20) + 10
    assert len(to_svg(drawing)) < 1_000_000


def test_a_run_in_which_nothing_happened_can_be_drawn():
    nothing = panel(name="", headline="", learned=[], admitted=[], refused_at=[], waiting=[], in_flight=[])
    ElementTree.fromstring(to_svg(picture(nothing, title="", note="", quota=[], outages=[])))


def test_rates_without_bound_or_meaning_can_be_drawn():
    odd = panel(learned=[(0.0, math.inf), (1.0, math.nan), (2.0, -5.0)])
    drawing = picture(odd, quota=[(0.0, math.inf), (5.0, 10.0)])
    assert not beyond_the_page(drawing)
    assert "nan" not in to_svg(drawing)
    assert "inf" not in to_svg(drawing)


@pytest.mark.parametrize("duration", [0.0, -1.0, math.inf, math.nan])
def test_a_duration_that_is_none_is_refused(duration):
    with pytest.raises(ConfigError, match="must be above 0 s"):
        picture(duration=duration)


@pytest.mark.parametrize("number", [0, MOST_PANELS + 1])
def test_too_few_or_too_many_panels_are_refused(number):
    with pytest.raises(ConfigError, match=f"panels: expected 1 to {MOST_PANELS} runs, got {number}"):
        picture(panels=[panel()] * number)


@pytest.mark.no_cover
@settings(max_examples=25, deadline=None)
@given(
    among=st.integers(1, MOST_PANELS),
    duration=st.floats(0.05, 2_000_000),
    quota=st.floats(0.001, 20_000),
    guess=st.floats(0.0, 50.0),
    crowd=st.integers(0, 2_000_000),
    name=st.text(max_size=80),
    headline=st.text(max_size=200),
    note=st.text(max_size=400),
)
def test_no_words_overlap_and_nothing_leaves_the_page(among, duration, quota, guess, crowd, name, headline, note):
    one = panel(duration, quota, learned=[(0.0, quota * guess)], waiting=[(0.0, crowd)], name=name, headline=headline)
    drawing = picture(*[one] * among, title=name, note=note, duration=duration, quota=[(0.0, quota)])
    assert overlapping(drawing) == []
    assert beyond_the_page(drawing) == []
