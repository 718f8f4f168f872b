"""What a run counted by half seconds, as points to draw."""

import pytest

from headgate.sim.drawing import Words
from headgate.sim.measures import Run, Sample
from headgate.sim.run_panels import panel_of, picture_of, quota_of


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
