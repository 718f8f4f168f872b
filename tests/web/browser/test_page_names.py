"""Keys of one host differ at the end of their names: that end is seen at any width, and no heading is cut."""

from dataclasses import replace

import pytest
from tests.web.lively import Lively

NAMES = [f"127.0.0.1:18080/{model}/{label}" for model in ("gpt-4o-mini", "gpt-4o") for label in ("alpha", "beta")]
ENDS_SEEN = """(cells) => cells.map((cell) => {
    const name = cell.querySelector(".name");
    const [box, end] = [cell.getBoundingClientRect(), name.querySelector("bdi").getBoundingClientRect()];
    const seen = document.elementFromPoint(box.right - 8, box.top + box.height / 2);
    return [name.textContent, cell.title, end.right <= box.right && seen.closest("td") === cell];
})"""
WHOLE = "(names) => names.map((name) => [...name.children].every((part) => part.scrollWidth <= part.clientWidth))"
CUT_HEADINGS = """(headings) => headings.filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth)
    .map((one) => one.textContent)"""


class LongNames(Lively):
    def snapshot(self):
        seen = super().snapshot()
        return replace(seen, keys=tuple(replace(line, key=name) for line, name in zip(seen.keys, NAMES, strict=True)))


@pytest.fixture
def open_at(new_page, serve_page, until):
    def at(width):
        page = new_page(serve_page(LongNames(keys=len(NAMES))).url, viewport={"width": width, "height": 900})
        until(page, "document.querySelectorAll('#keys-body .name').length === 4")
        page.locator("#keys").scroll_into_view_if_needed()
        return page

    return at


@pytest.mark.parametrize("width", [1920, 1280, 1024, 768, 375, 320])
def test_names_can_be_told_apart_and_headings_read(open_at, width):
    page = open_at(width)
    seen = page.eval_on_selector_all("#keys-body td[data-column=key]", ENDS_SEEN)
    assert sorted(seen) == sorted([name, name, True] for name in NAMES)
    assert page.eval_on_selector_all("#keys-head button", CUT_HEADINGS) == []
    assert page.locator("#keys-body td[data-column=key]").first.bounding_box()["width"] > 125
    assert page.locator("#events-filter").bounding_box()["width"] > 100


def test_a_wide_window_has_the_whole_names(open_at):
    assert open_at(1920).eval_on_selector_all("#keys-body .name", WHOLE) == [True] * len(NAMES)


@pytest.mark.parametrize("width", [1024, 320])
def test_the_name_stays_where_the_rest_moves(open_at, width):
    page = open_at(width)
    cell = page.locator("#keys-body td[data-column=key]").first
    before = cell.bounding_box()["x"]
    page.evaluate("document.querySelector('#keys-scroll').scrollLeft = 40")
    assert page.evaluate("document.querySelector('#keys-scroll').scrollLeft") == 40
    assert cell.bounding_box()["x"] == before
