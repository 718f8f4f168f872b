from xml.etree import ElementTree

import pytest

from headgate.sim.picture import MOST_TICKS, REFUSED, RunPicture, nice_ceiling, nice_step, ticks_up_to


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
    return RunPicture(**(fields | changes)).to_svg()


def marks(svg):
    return svg.count(f'stroke="{REFUSED}" stroke-width="1.2"')


def test_it_is_well_formed_and_names_what_it_shows():
    root = ElementTree.fromstring(picture())
    words = " ".join(text.text for text in root.iter("{http://www.w3.org/2000/svg}text"))
    for word in ("a <run> & more", "true quota", "learned rate", "429", "outage", "breaker open", "calls per second"):
        assert word in words


def test_every_refusal_is_a_tick_until_there_are_too_many():
    assert marks(picture()) == 2
    assert marks(picture(refused_at=[n / 1000 for n in range(20_000)])) <= MOST_TICKS


def test_nothing_is_drawn_outside_the_canvas():
    svg = picture(learned=[(-5.0, -10.0), (50.0, 1e9)], refused_at=[99.0])
    for rect in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect"):
        assert float(rect.get("x", 0)) + float(rect.get("width")) <= 960


@pytest.mark.parametrize("empty", [{}, {"duration": 0.0}])
def test_a_run_in_which_nothing_happened_can_be_drawn(empty):
    nothing = {"learned": [], "quota": [], "done_at": [], "refused_at": [], "outages": [], "breaker_open": []}
    ElementTree.fromstring(picture(**(nothing | empty)))


def test_the_same_run_gives_the_same_picture():
    assert picture() == picture()


@pytest.mark.parametrize(("span", "about", "step"), [(200.0, 5, 50.0), (28.0, 10, 5.0), (0.3, 4, 0.1), (7.0, 5, 2.0)])
def test_steps_are_one_two_or_five(span, about, step):
    assert nice_step(span, about) == pytest.approx(step)


def test_axes_end_at_or_above_the_highest_value():
    for value in (0.0, 0.3, 1.0, 187.2, 999.9, 12_345.0):
        assert nice_ceiling(value, about=5) >= value
    assert ticks_up_to(200.0, about=4) == [0.0, 50.0, 100.0, 150.0, 200.0]
