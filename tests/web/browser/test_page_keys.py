"""A thousand keys: found, sorted and opened, by mouse and by keyboard alone; and their names at any width."""

from dataclasses import replace

import pytest
from tests.web.lively import CROSSREF, GPT, SONNET, Lively, slow_clock

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.observe.monitor import RunMonitor

MOST_ROWS = 60


def opened(open_page, url, until):
    page = open_page(url)
    until(page, "document.querySelector('#keys-sum').textContent === '1,000 keys'")
    return page


@pytest.fixture
def page(new_page, serve_page, until):
    return opened(new_page, serve_page(Lively(keys=1_000)).url, until)


@pytest.fixture(scope="module")
def loaded_page(new_shared_page, serve_shared_page, until):
    return opened(new_shared_page, serve_shared_page(Lively(keys=1_000, clock=slow_clock())).url, until)


@pytest.fixture
def shared_page(loaded_page):
    """For tests that choose no key and sort nothing; what they filter is shown again afterwards."""
    yield loaded_page
    for name in ("keys", "events"):
        loaded_page.fill(f"#{name}-filter", "")
    loaded_page.evaluate("document.activeElement.blur()")


def names(page):
    return page.locator("#keys-body .name").all_text_contents()


def column(page, name):
    cells = page.locator(f"#keys-body td[data-column={name}]").all_inner_texts()
    return [float(cell.replace(",", "")) for cell in cells]


def test_only_rows_that_can_be_seen_are_in_the_document_in_the_order_that_is_wanted(page, until):
    assert names(page)[:3] == [SONNET, GPT, CROSSREF]
    assert len(names(page)) < MOST_ROWS
    page.evaluate("document.querySelector('#keys-scroll').scrollTop = 1e9")
    until(page, "[...document.querySelectorAll('#keys-body tr')].some((row) => row.ariaRowIndex === '1001')")
    assert len(names(page)) < MOST_ROWS
    page.evaluate("document.querySelector('#keys-scroll').scrollTop = 0")
    heading = page.locator("#keys-head [data-column=rate]")
    for order in ("descending", "ascending"):
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == order
        rates = column(page, "rate")
        assert rates == sorted(rates, reverse=order == "descending")


def test_a_filter_finds_keys_by_name_and_by_state_or_says_that_there_is_none(shared_page):
    shared_page.keyboard.press("/")
    shared_page.keyboard.type("host-0999")
    assert names(shared_page) == ["host-0999.example.org"]
    assert shared_page.inner_text("#keys-sum") == "1 of 1,000 keys"
    shared_page.fill("#keys-filter", "circuit open")
    assert names(shared_page) == [SONNET]
    shared_page.keyboard.press("Escape")
    assert shared_page.inner_text("#keys-sum") == "1,000 keys"
    shared_page.fill("#keys-filter", "no such key")
    assert shared_page.inner_text("#keys-none") == "No key matches."
    assert shared_page.locator("#keys-none").bounding_box()["height"] > 20
    shared_page.fill("#keys-filter", "")
    assert not shared_page.is_visible("#keys-none")
    shared_page.fill("#events-filter", "no such event")
    said = "getComputedStyle(document.querySelector('#events-list'), '::before').content"
    assert shared_page.evaluate(said) == '"No event matches."'


CHOSEN = """() => {
    const rows = document.querySelectorAll('#keys-body [aria-selected=true]');
    const named = document.querySelector('#keys table').getAttribute('aria-activedescendant');
    return rows.length === 1 && rows[0].id === named && rows[0].querySelector('.name').textContent;
}"""


def test_a_key_is_chosen_opened_and_pinned_by_keyboard_alone(page, until):
    page.keyboard.press("4")
    first = until(page, CHOSEN)
    assert first == names(page)[0]
    page.keyboard.press("Enter")
    assert page.inner_text("#ask-title") == first
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    assert until(page, CHOSEN) == names(page)[1]
    page.keyboard.press("1")
    page.keyboard.press("4")
    assert until(page, CHOSEN) == names(page)[1]
    page.focus("#keys table")
    for _ in range(30):
        page.keyboard.press("ArrowDown")
    key = until(page, CHOSEN)  # at once: rows change places, and the chosen one may leave those in sight
    page.keyboard.press("Enter")
    assert page.inner_text("#ask-title") == key
    page.keyboard.press("Escape")
    assert not page.is_visible("#ask")
    page.keyboard.press("t")
    until(page, "(key) => document.querySelector('#charts').innerText.startsWith(key)", key)
    assert page.locator("#charts article").count() == 1
    page.keyboard.press("t")
    until(page, "document.querySelectorAll('#charts article').length === 3")


def test_shortcuts_lead_everywhere_the_focus_is_seen_and_everything_has_a_name(shared_page):
    shared_page.keyboard.press("?")
    assert shared_page.is_visible("#help")
    shared_page.keyboard.press("Escape")
    assert not shared_page.is_visible("#help")
    for place, section in enumerate(["waits", "credentials", "timelines", "keys", "events", "dead"], 1):
        shared_page.keyboard.press(str(place))
        assert shared_page.evaluate("document.activeElement.closest('section').id") == section
    shared_page.keyboard.press("e")
    assert shared_page.evaluate("document.activeElement.id") == "events-filter"
    shared_page.keyboard.press("p")
    assert shared_page.input_value("#events-filter") == "p"
    assert not shared_page.is_visible("#ask")
    shared_page.fill("#events-filter", "")
    focused = "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle"
    for _ in range(25):
        shared_page.keyboard.press("Tab")
        assert shared_page.evaluate(focused) != "none"
    nameless = """[...document.querySelectorAll("button, input, select, [role=img], [role=grid]")]
      .filter((one) => one.checkVisibility() && !one.innerText?.trim() && !one.ariaLabel && !one.labels?.length)
      .map((one) => one.outerHTML)"""
    assert shared_page.evaluate(nameless) == []


class Young(Lively):
    """Some of its keys have a time line, and one that was asked for has it after a while."""

    charted = ("host-0500.example.org", "host-0600.example.org")
    old = charted

    def snapshot(self):
        return replace(super().snapshot(), charted=self.charted)

    def timelines(self, keys, since):
        return super().timelines([key for key in keys if key in self.old], since)


def test_charts_are_of_keys_with_a_history_and_a_pinned_one_says_that_it_has_none_yet(new_page, serve_page, until):
    run = Young(keys=1_000)
    page = new_page(serve_page(run).url)
    until(page, "document.querySelectorAll('#charts canvas').length === 2")
    assert set(page.locator("#charts .name").all_inner_texts()) == set(run.charted)
    page.fill("#keys-filter", "host-0700")
    page.click("#keys-body .pin")
    chart = page.locator("#charts [data-empty='No history of this key yet.']")
    chart.wait_for()
    assert page.locator("#charts canvas").count() == 0
    run.old = (*run.charted, "host-0700.example.org")
    until(page, "document.querySelectorAll('#charts canvas').length === 1")
    assert chart.count() == 0


def test_of_many_real_keys_some_are_drawn_and_one_that_is_pinned_too(new_page, serve_page, until):
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6))
    names = [f"host-{number:04}.example.org" for number in range(300)]
    with RunMonitor(limiter=limiter) as watched:
        for name in names:
            limiter.acquire(name).report(status_code=200)
        page = new_page(serve_page(watched).url)
        until(page, "document.querySelectorAll('#charts canvas').length === 3")
        left_out = next(name for name in names if name not in watched.snapshot().charted)
        page.fill("#keys-filter", left_out)
        page.click("#keys-body .pin")
        until(page, "document.querySelectorAll('#charts canvas').length === 1")
        assert page.inner_text("#charts .name") == left_out


# ---------------------------------------------------------------------- names

LONG_NAMES = [f"127.0.0.1:18080/{model}/{label}" for model in ("gpt-4o-mini", "gpt-4o") for label in ("alpha", "beta")]
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
        return replace(
            seen, keys=tuple(replace(line, key=name) for line, name in zip(seen.keys, LONG_NAMES, strict=True))
        )


class OwnKeys(Lively):
    """Two keys of credentials that are away, and one of a credential that is not."""

    def snapshot(self):
        seen = super().snapshot()
        names = ["openai/gpt-5-mini/team-b", "anthropic/sonnet/old", "openai/gpt-5-mini/team-a"]
        calm = {"circuit": "closed", "not_before": 0.0, "returning": 1.0, "waiting": 0, "reason": ""}
        return replace(
            seen, keys=tuple(replace(line, key=name, **calm) for line, name in zip(seen.keys, names, strict=True))
        )


@pytest.fixture(scope="module")
def open_at(new_shared_page, serve_shared_page, until):
    """One page, made as wide as a test wants it."""
    page = new_shared_page(serve_shared_page(LongNames(keys=len(LONG_NAMES))).url)
    until(page, "document.querySelectorAll('#keys-body .name').length === 4")

    def at(width):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("document.querySelector('#keys-scroll').scrollLeft = 0")
        page.locator("#keys").scroll_into_view_if_needed()
        return page

    return at


@pytest.mark.parametrize(
    "width", [1280, 320, 1920, 375, *(pytest.param(width, marks=pytest.mark.chaos) for width in (1024, 768))]
)
def test_names_can_be_told_apart_and_headings_read(open_at, width):
    page = open_at(width)
    seen = page.eval_on_selector_all("#keys-body td[data-column=key]", ENDS_SEEN)
    assert sorted(seen) == sorted([name, name, True] for name in LONG_NAMES)
    assert page.eval_on_selector_all("#keys-head button", CUT_HEADINGS) == []
    assert page.locator("#keys-body td[data-column=key]").first.bounding_box()["width"] > 125
    assert page.locator("#events-filter").bounding_box()["width"] > 100


def test_a_wide_window_has_the_whole_names(open_at):
    assert open_at(1920).eval_on_selector_all("#keys-body .name", WHOLE) == [True] * len(LONG_NAMES)


@pytest.mark.parametrize("width", [pytest.param(1024, marks=pytest.mark.chaos), 320])
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
    assert cells["team-a"] == ("running", "")
    assert cells["old"] == ("disabled", "credential old is disabled: 401: the key was revoked")
    state, reason = cells["team-b"]
    assert state == "resting"
    assert reason.startswith("credential team-b rests for 1 h 2")
    assert reason.endswith(": daily quota used up (429 insufficient_quota)")


def test_three_time_lines_leave_no_hole(new_page, serve_page, until):
    page = new_page(serve_page().url)
    until(page, "document.querySelectorAll('#charts article').length === 3")
    for width, columns in ((1440, 3), (1024, 3), (950, 1), (375, 1)):
        page.set_viewport_size({"width": width, "height": 900})
        assert len({card.bounding_box()["x"] for card in page.locator("#charts article").all()}) == columns
