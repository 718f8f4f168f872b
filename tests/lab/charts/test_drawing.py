from pathlib import Path
from xml.etree import ElementTree

import pytest

from headgate.errors import ConfigError
from headgate.lab.charts.drawing import (
    Box,
    Drawing,
    Line,
    Scale,
    Words,
    brief,
    fitted,
    means,
    nice_ceiling,
    nice_step,
    one_line,
    outline,
    pace_unit,
    stairs,
    ticks_up_to,
    time_unit,
    width_of,
    wrapped,
)
from headgate.lab.charts.drawing_file import save, to_svg, writer_for

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*marks, **changes):
    return Drawing(**({"width": 100, "height": 50, "title": "a page", "marks": marks} | changes))


def svg(*marks, **changes):
    return ElementTree.fromstring(to_svg(drawn(*marks, **changes)))


def test_the_page_is_as_large_as_asked_and_covered_by_its_background():
    root = svg(background="#fafafa")
    assert root.get("viewBox") == "0 0 100 50"
    cover = root.find(f"{SVG}rect")
    assert (cover.get("width"), cover.get("height"), cover.get("fill")) == ("100", "50", "#fafafa")


def test_marks_are_written_in_their_order():
    root = svg(Box(1, 2, 3, 4, "#111111"), Line([(0, 0), (5, 5)], "#222222"), Words(1, 2, "hello"))
    assert [child.tag.removeprefix(SVG) for child in root] == ["title", "rect", "rect", "path", "text"]


def test_a_line_goes_through_all_its_points_and_may_be_dashed():
    path = svg(Line([(0, 0), (5, 5.25), (9, 1)], "#222222", 2.5, (7, 4))).find(f"{SVG}path")
    assert path.get("d") == "M0.0 0.0L5.0 5.2L9.0 1.0"
    assert (path.get("stroke-width"), path.get("stroke-dasharray")) == ("2.5", "7 4")


def test_what_is_said_cannot_break_the_file():
    root = svg(Words(0, 10, "a <b> & \x00\x1b[31m\nc \ud800 \uffff"), title="<script>\x07")
    assert root.find(f"{SVG}text").text == "a <b> & [31m c"
    assert root.find(f"{SVG}title").text == "<script>"


def test_one_line_is_one_line():
    assert one_line(" a\n\tb  c\u2028d ") == "a b c d"


def test_words_know_their_reach_whatever_their_anchor():
    width = width_of("hello", 12)
    for anchor, left in (("start", 50.0), ("middle", 50.0 - width / 2), ("end", 50.0 - width)):
        words = Words(50.0, 10.0, "hello", anchor=anchor)
        assert (words.left, words.right) == pytest.approx((left, left + width))


def test_bold_and_large_words_take_more_room():
    assert width_of("hello", 12) < width_of("hello", 12, 600) < width_of("hello", 20, 600)


def test_text_that_fits_stays_and_text_that_does_not_is_cut():
    assert fitted("goodput", 100, 12) == "goodput"
    cut = fitted("goodput 99 % " * 10, 100, 12)
    assert cut.endswith("…")
    assert 60 < width_of(cut, 12) <= 100


def test_long_text_is_wrapped_into_no_more_lines_than_asked():
    lines = wrapped("one two three four " * 20, 200, 13, most_lines=2)
    assert len(lines) == 2
    assert lines[0].startswith("one two three")
    assert lines[1].endswith("…")
    assert all(width_of(line, 13) <= 200 for line in lines)
    assert wrapped("short", 200, 13, most_lines=2) == ["short"]
    assert wrapped("", 200, 13, most_lines=2) == []


def test_saving_picks_the_form_by_the_name(tmp_path):
    save(drawn(), tmp_path / "page.SVG")
    ElementTree.parse(tmp_path / "page.SVG")


def test_another_suffix_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"'page\.pdf' is not a picture name; end it with \.svg or \.png"):
        save(drawn(), tmp_path / "page.pdf")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="svg or"):
        writer_for(Path("page"))


# -- scales and ticks

SCALE = Scale(left=10, right=110, top=20, bottom=70, duration=10.0, highest=100.0)


def test_a_scale_maps_its_corners_and_keeps_what_lies_beyond_on_its_edge():
    assert (SCALE.x(0.0), SCALE.x(10.0), SCALE.y(0.0), SCALE.y(100.0)) == (10, 110, 70, 20)
    assert (SCALE.x(-1.0), SCALE.x(99.0), SCALE.y(-5.0), SCALE.y(float("inf"))) == (10, 110, 70, 20)


def test_a_value_that_is_no_number_is_left_out():
    assert SCALE.place([(0.0, 100.0), (5.0, float("nan")), (10.0, 0.0)]) == [(10, 20), (110, 70)]


def test_stairs_hold_each_value_until_the_next():
    assert stairs([(0.0, 5.0), (4.0, 2.0)], 10.0) == [(0.0, 5.0), (4.0, 5.0), (4.0, 2.0), (10.0, 2.0)]


def test_an_outline_keeps_the_extremes_of_every_pixel():
    noisy = [(n / 1000, (n * 7919) % 101) for n in range(50_000)]
    thin = outline(noisy)
    assert len(thin) <= 4 * 51
    assert (min(y for _, y in thin), max(y for _, y in thin)) == (0, 100)
    assert (thin[0], thin[-1]) == ((0.0, 0), (50.0, noisy[-1][1]))


def test_an_outline_keeps_only_the_ends_of_level_parts():
    assert outline([(0, 1), (10, 1), (20, 1), (30, 5), (40, 5), (50, 5)]) == [(0, 1), (20, 1), (30, 5), (50, 5)]


def test_means_keep_the_total_however_the_run_is_cut():
    points = [(n / 2, float(n % 7)) for n in range(40)]
    total = sum(value * 0.5 for _, value in points)
    for pieces in (1, 3, 20, 77):
        assert sum(means(points, 20.0, pieces)) * 20.0 / pieces == pytest.approx(total)


def test_a_mean_weighs_each_value_with_how_long_it_held():
    assert means([(0.0, 4.0), (1.0, 0.0), (2.0, 8.0)], 4.0, 2) == [2.0, 8.0]


@pytest.mark.parametrize(("span", "about", "step"), [(200.0, 5, 50.0), (28.0, 10, 5.0), (0.3, 4, 0.1), (7.0, 5, 2.0)])
def test_steps_are_one_two_or_five(span, about, step):
    assert nice_step(span, about) == pytest.approx(step)


def test_axes_end_at_or_above_the_highest_value():
    for value in (0.0, 0.003, 0.3, 1.0, 187.2, 999.9, 12_345.0):
        assert value <= nice_ceiling(value, about=5) <= max(1.5 * value, 1e-9)
    assert ticks_up_to(200.0, about=4) == [0.0, 50.0, 100.0, 150.0, 200.0]


@pytest.mark.parametrize(
    ("duration", "unit"), [(0.5, "s"), (300.0, "s"), (301.0, "min"), (3600.0, "min"), (86_400.0, "h")]
)
def test_long_runs_are_counted_in_minutes_and_hours(duration, unit):
    assert time_unit(duration)[1] == unit


@pytest.mark.parametrize(("rate", "unit"), [(1000.0, "s"), (1.0, "s"), (0.5, "min"), (0.01, "h")])
def test_slow_rates_are_told_per_minute_or_hour(rate, unit):
    assert pace_unit(rate)[1] == unit


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.5, "0.5"), (250.0, "250"), (1000.0, "1,000"), (9_999.9, "10k"), (20_000.0, "20k"), (1.5e6, "1.5M")],
)
def test_numbers_beside_an_axis_are_short(value, text):
    assert brief(value) == text
