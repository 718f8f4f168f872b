from xml.etree import ElementTree

import pytest

from headgate.sim.drawing import Box, Line, Words
from headgate.sim.palette import LEARNED, OUTAGE, QUOTA, REFUSED
from headgate.sim.picture import MOST_TICKS, RunPicture


def picture(**changes):
    fields = {
        "title": "a <run> & more",
        "headline": "100 calls",
        "duration": 20.0,
        "learned": [(0.0, 2.0), (5.0, 90.0), (20.0, 50.0)],
        "quota": [(0.0, 100.0), (10.0, 50.0)],
        "done_at": [n / 10 for n in range(200)],
        "refused_at": [5.0, 10.1],
        "outages": [(15.0, 17.0)],
        "breaker_open": [(15.1, 17.5)],
    }
    return RunPicture(**(fields | changes))


def marks(kind, picture):
    return [mark for mark in picture.drawing().marks if isinstance(mark, kind)]


def ticks(picture):
    return [line for line in marks(Line, picture) if (line.colour, line.width) == (REFUSED, 1.2)]


def test_it_is_well_formed_and_names_what_it_shows():
    root = ElementTree.fromstring(picture().to_svg())
    words = " ".join(text.text for text in root.iter("{http://www.w3.org/2000/svg}text"))
    for word in ("a <run> & more", "true quota", "learned rate", "429", "outage", "breaker open", "calls per second"):
        assert word in words


def test_every_refusal_is_a_tick_until_there_are_too_many():
    assert len(ticks(picture())) == 2
    assert len(ticks(picture(refused_at=[n / 1000 for n in range(20_000)]))) <= MOST_TICKS


def test_the_quota_is_dashed_and_drops_at_once_and_the_learned_rate_is_drawn_through():
    learned, quota = (
        next(line for line in marks(Line, picture()) if line.colour == colour) for colour in (LEARNED, QUOTA)
    )
    assert quota.dash
    assert [x for x, _ in quota.points] == [64, 500, 500, 936]
    assert not learned.dash
    assert len(learned.points) == 3


def test_an_outage_is_shaded_from_its_start_to_its_end():
    shade = next(box for box in marks(Box, picture()) if box.colour == OUTAGE)
    assert (shade.x, shade.x + shade.width) == pytest.approx((718, 805.2))


def test_nothing_is_drawn_outside_the_canvas():
    wild = picture(learned=[(-5.0, -10.0), (50.0, 1e5)], refused_at=[99.0])
    for box in marks(Box, wild):
        assert 0 <= box.x <= box.x + box.width <= 960
        assert 0 <= box.y <= box.y + box.height <= 500
    for x, y in (point for line in marks(Line, wild) for point in line.points):
        assert 0 <= x <= 960
        assert 0 <= y <= 500
    for words in marks(Words, wild):
        assert 0 <= words.left <= words.right <= 960


@pytest.mark.parametrize("empty", [{}, {"duration": 0.0}])
def test_a_run_in_which_nothing_happened_can_be_drawn(empty):
    nothing = {"learned": [], "quota": [], "done_at": [], "refused_at": [], "outages": [], "breaker_open": []}
    ElementTree.fromstring(picture(**(nothing | empty)).to_svg())


def test_the_same_run_gives_the_same_picture():
    assert picture().to_svg() == picture().to_svg()
