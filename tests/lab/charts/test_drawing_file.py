import sys
from io import BytesIO

import pytest

from headgate.lab.charts.drawing import Box, Drawing, Line, Words, width_of
from headgate.lab.charts.drawing_file import PillowMissingError, dashes, save, spelled, to_png, writer_for

Image = pytest.importorskip("PIL.Image")

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def drawn(*marks):
    return Drawing(width=100, height=50, title="a page – für alle", marks=marks)


def painted(*marks):
    return Image.open(BytesIO(to_png(drawn(*marks))))


def is_inked(image):
    return image.convert("L").point(lambda light: 255 if light < 128 else 0).getbbox()


def test_it_is_twice_as_sharp_as_the_page_and_carries_its_title():
    image = painted()
    assert image.size == (200, 100)
    assert image.getpixel((100, 50)) == WHITE
    assert image.text["Title"] == "a page – für alle"


def test_boxes_land_where_they_should():
    image = painted(Box(10, 10, 20, 5, "#ff0000"))
    assert is_inked(image) == (20, 20, 60, 30)
    assert image.getpixel((40, 25)) == RED


def test_later_marks_lie_on_top():
    image = painted(Box(0, 0, 50, 50, "#ff0000"), Line([(0, 25), (100, 25)], "#0000ff", 4))
    assert (image.getpixel((20, 20)), image.getpixel((20, 50))) == (RED, BLUE)


def test_slanted_lines_have_soft_edges():
    colours = {colour for _, colour in painted(Line([(10, 10), (90, 30)], "#000000", 2)).getcolors()}
    assert len(colours) > 4


def test_lines_without_length_and_boxes_without_size_leave_nothing():
    image = painted(Line([], "#000000"), Line([(5, 5)], "#000000"), Box(5, 5, 0, 9, "#000000"), Words(5, 5, ""))
    assert is_inked(image) is None


def test_dashes_leave_gaps_and_turn_corners():
    strokes = list(dashes([(0, 0), (10, 0), (10, 10)], (7, 4)))
    assert strokes == [[(0, 0), (7, 0)], [(10, 1), (10, 8)]]
    assert list(dashes([(0, 0), (4, 0), (4, 4)], (7, 4))) == [[(0, 0), (4, 0), (4, 3)]]


@pytest.mark.parametrize(("anchor", "left", "right"), [("start", 50, 90), ("middle", 30, 70), ("end", 10, 50)])
def test_words_stand_at_their_anchor_within_the_room_they_claim(anchor, left, right):
    words = Words(50, 25, "Hold", size=14, anchor=anchor)
    x0, top, x1, bottom = is_inked(painted(words))
    assert left - 1 <= x0 / 2
    assert x1 / 2 <= right + 1
    assert words.left - 1 <= x0 / 2
    assert x1 / 2 <= words.right + 1
    assert 10 < top / 2 < bottom / 2 <= 26


def test_no_letter_of_its_font_is_wider_than_claimed():
    from PIL import ImageFont

    font = ImageFont.load_default(100)
    letters = [chr(code) for code in range(32, 127)] + ["·", "…"]
    assert [letter for letter in letters if font.getlength(letter) > width_of(letter, 100)] == []


def test_bold_words_are_fatter():
    usual, bold = (painted(Words(5, 30, "Hill", size=20, weight=weight)).convert("L") for weight in (400, 600))
    assert sum(bold.histogram()[:128]) > 1.1 * sum(usual.histogram()[:128])


def test_letters_the_font_lacks_are_spelled_with_those_it_has():
    assert spelled("goodput 99 % · x2 …") == "goodput 99 % · x2 …"
    assert spelled("×2 – für ½ → 中") == "x2 - fur 12 -> ?"


def test_the_same_drawing_gives_the_same_bytes():
    page = drawn(Words(5, 30, "again", weight=600), Line([(0, 0), (50, 20)], "#123456", 2, (3, 2)))
    assert to_png(page) == to_png(page)


def test_saving_a_png(tmp_path):
    save(drawn(), tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_without_pillow_it_says_what_to_install_before_anything_is_run(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(PillowMissingError, match=r"pip install 'headgate\[png\]'"):
        to_png(drawn())
    with pytest.raises(PillowMissingError):
        writer_for(tmp_path / "page.png")
    writer_for(tmp_path / "page.svg")
