from pathlib import Path
from xml.etree import ElementTree

import pytest

from headgate.errors import ConfigError
from headgate.lab.charts.drawing import Box, Drawing, Line, Words, fitted, one_line, width_of, wrapped
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
    with pytest.raises(ConfigError, match=r"end the name with \.svg or \.png, not 'page\.pdf'"):
        save(drawn(), tmp_path / "page.pdf")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="svg or"):
        writer_for(Path("page"))
