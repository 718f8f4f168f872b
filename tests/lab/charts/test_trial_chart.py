from xml.etree import ElementTree

import pytest

from headgate.lab.charts.drawing import LEARNED, OUTAGE, QUOTA, REFUSED, Box, Line, Words
from headgate.lab.charts.trial_chart import KeyPanel, RunPicture


def panel(**changes):
    fields = {
        "name": "key-<1>",
        "headline": "100 calls, 2 rate limited (429), 1 rest",
        "learned": [(0.0, 2.0), (5.0, 90.0), (20.0, 50.0)],
        "quota": [(0.0, 100.0), (10.0, 50.0)],
        "done_at": [n / 10 for n in range(200)],
        "refused_at": [5.0, 10.1],
        "breaker_open": [(15.1, 17.5)],
    }
    return KeyPanel(**(fields | changes))


def picture(panels=None, **changes):
    fields = {"title": "a <run> & more", "headline": "100 calls", "duration": 20.0, "outages": [(15.0, 17.0)]}
    return RunPicture(**(fields | changes), panels=panels or [panel()])


def marks(kind, picture):
    return [mark for mark in picture.drawing().marks if isinstance(mark, kind)]


def ticks(picture):
    return [box for box in marks(Box, picture) if (box.colour, box.height) == (REFUSED, 14)]


def test_it_is_well_formed_and_names_what_it_shows():
    root = ElementTree.fromstring(picture().to_svg())
    words = " ".join(text.text for text in root.iter("{http://www.w3.org/2000/svg}text"))
    for word in ("a <run> & more", "key-<1>", "true quota", "learned rate", "429", "outage", "breaker open"):
        assert word in words


def test_every_refusal_is_a_tick_and_those_that_touch_are_one():
    assert len(ticks(picture())) == 2
    assert len(ticks(picture([panel(refused_at=[n / 1000 for n in range(20_000)])]))) == 1


def test_every_key_has_a_panel_with_a_scale_of_its_own():
    small = panel(name="key-2", learned=[(0.0, 1.0)], quota=[(0.0, 4.0)], done_at=[], refused_at=[])
    drawn = picture([panel(), small])
    words = [mark.text for mark in marks(Words, drawn)]
    assert {"key-<1>", "key-2", "100/s", "4/s"} <= set(words)
    assert words.count("10 s") == 1
    first, second = (line for line in marks(Line, drawn) if line.colour == QUOTA and line.points[-1][0] == 930)
    assert max(y for _, y in first.points) < min(y for _, y in second.points)
    assert drawn.drawing().height > picture().drawing().height


def test_the_quota_is_dashed_and_drops_at_once_and_the_learned_rate_is_drawn_through():
    learned, quota = (
        next(line for line in marks(Line, picture()) if line.colour == colour) for colour in (LEARNED, QUOTA)
    )
    assert quota.dash
    assert [x for x, _ in quota.points] == [64, 497, 497, 930]
    assert not learned.dash
    assert len(learned.points) >= 3


def test_an_outage_is_shaded_from_its_start_to_its_end():
    shade = next(box for box in marks(Box, picture()) if box.colour == OUTAGE)
    assert (shade.x, shade.x + shade.width) == pytest.approx((713.5, 800.1))


def test_nothing_is_drawn_outside_the_canvas():
    wild = picture([panel(learned=[(-5.0, -10.0), (50.0, 1e5)], refused_at=[99.0])] * 3)
    height = wild.drawing().height
    for box in marks(Box, wild):
        assert 0 <= box.x <= box.x + box.width <= 960
        assert 0 <= box.y <= box.y + box.height <= height
    for x, y in (point for line in marks(Line, wild) for point in line.points):
        assert 0 <= x <= 960
        assert 0 <= y <= height
    for words in marks(Words, wild):
        assert 0 <= words.left <= words.right <= 960


@pytest.mark.parametrize("empty", [{}, {"duration": 0.0}])
def test_a_run_in_which_nothing_happened_can_be_drawn(empty):
    nothing = panel(learned=[], quota=[], done_at=[], refused_at=[], breaker_open=[])
    ElementTree.fromstring(picture([nothing], outages=[], **empty).to_svg())


def test_the_same_run_gives_the_same_picture():
    assert picture().to_svg() == picture().to_svg()
