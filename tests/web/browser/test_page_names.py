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


class OwnKeys(Lively):
    """Two keys of credentials that are away, and one of a credential that is not."""

    def snapshot(self):
        seen = super().snapshot()
        names = ["openai/gpt-5-mini/team-b", "anthropic/sonnet/old", "openai/gpt-5-mini/team-a"]
        calm = {"circuit": "closed", "not_before": 0.0, "returning": 1.0, "waiting": 0, "reason": ""}
        return replace(
            seen, keys=tuple(replace(line, key=name, **calm) for line, name in zip(seen.keys, names, strict=True))
        )


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


def test_a_key_whose_credential_is_away_says_so(new_page, serve_page, until):
    page = new_page(serve_page(OwnKeys()).url)
    until(page, "document.querySelectorAll('#keys-body .name').length === 3")
    cells = {}
    for row in page.locator("#keys-body tr:not(.spacer)").all():
        name, state, reason = (row.locator(f"[data-column={one}]").text_content() for one in ("key", "state", "reason"))
        cells[name.rpartition("/")[2]] = (state, reason)
    assert cells["team-a"] == ("flows", "")
    assert cells["old"] == ("retired", "credential old is retired: 401: the key was revoked")
    state, reason = cells["team-b"]
    assert state == "resting"
    assert reason.startswith("credential team-b rests for 1 h 2")
    assert reason.endswith(": daily quota used up (429 insufficient_quota)")


@pytest.mark.parametrize(("width", "columns"), [(1440, 3), (1024, 3), (950, 1), (375, 1)])
def test_three_time_lines_leave_no_hole(new_page, serve_page, until, width, columns):
    page = new_page(serve_page().url, viewport={"width": width, "height": 900})
    until(page, "document.querySelectorAll('#charts article').length === 3")
    assert len({card.bounding_box()["x"] for card in page.locator("#charts article").all()}) == columns
