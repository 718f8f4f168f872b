"""A thousand keys: found, sorted and opened, by mouse and by keyboard alone."""

from dataclasses import replace

import pytest
from tests.web.lively import CROSSREF, GPT, SONNET, Lively

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.observe.watched import Watched

MOST_ROWS = 60


@pytest.fixture
def page(new_page, serve_page, until):
    page = new_page(serve_page(Lively(keys=1_000)).url)
    until(page, "document.querySelector('#keys-sum').textContent === '1,000 keys'")
    return page


def names(page):
    return page.locator("#keys-body .name").all_text_contents()


def column(page, name):
    cells = page.locator(f"#keys-body td[data-column={name}]").all_inner_texts()
    return [float(cell.replace(",", "")) for cell in cells]


def test_only_rows_that_can_be_seen_are_in_the_document(page):
    assert names(page)[:3] == [SONNET, GPT, CROSSREF]
    assert len(names(page)) < MOST_ROWS
    page.evaluate("document.querySelector('#keys-scroll').scrollTop = 1e9")
    page.wait_for_timeout(200)
    assert len(names(page)) < MOST_ROWS
    last = page.locator("#keys-body tr:not(.spacer)").last
    assert last.get_attribute("aria-rowindex") == "1001"


def test_a_heading_sorts_and_a_second_press_turns_it_round(page):
    heading = page.locator("#keys-head [data-column=rate]")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    rates = column(page, "rate")
    assert rates == sorted(rates, reverse=True)
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    rates = column(page, "rate")
    assert rates == sorted(rates)


def test_a_filter_finds_keys_by_name_and_by_state(page):
    page.keyboard.press("/")
    page.keyboard.type("host-0999")
    assert names(page) == ["host-0999.example.org"]
    assert page.inner_text("#keys-sum") == "1 of 1,000 keys"
    page.fill("#keys-filter", "circuit open")
    assert names(page) == [SONNET]
    page.keyboard.press("Escape")
    assert page.inner_text("#keys-sum") == "1,000 keys"


def test_a_filter_that_fits_nothing_says_so(page):
    page.fill("#keys-filter", "no such key")
    assert page.inner_text("#keys-none") == "No key matches."
    box = page.locator("#keys-none").bounding_box()
    assert box["height"] > 20
    page.fill("#keys-filter", "")
    assert not page.is_visible("#keys-none")
    page.fill("#events-filter", "no such event")
    said = "getComputedStyle(document.querySelector('#events-list'), '::before').content"
    assert page.evaluate(said) == '"No event matches."'


CHOSEN = """() => {
    const rows = document.querySelectorAll('#keys-body [aria-selected=true]');
    const named = document.querySelector('#keys table').getAttribute('aria-activedescendant');
    return rows.length === 1 && rows[0].id === named && rows[0].querySelector('.name').textContent;
}"""


def test_a_key_is_chosen_opened_and_pinned_by_keyboard_alone(page, until):
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


def test_the_shortcut_to_the_keys_leads_to_a_row_that_enter_opens(page, until):
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


def test_shortcuts_are_shown_and_lead_everywhere(page):
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.keyboard.press("Escape")
    assert not page.is_visible("#help")
    for place, section in enumerate(["waits", "credentials", "timelines", "keys", "events", "dead"], 1):
        page.keyboard.press(str(place))
        assert page.evaluate("document.activeElement.closest('section').id") == section
    page.keyboard.press("e")
    assert page.evaluate("document.activeElement.id") == "events-filter"
    page.keyboard.press("p")
    assert page.input_value("#events-filter") == "p"
    assert not page.is_visible("#ask")


def test_where_the_focus_is_can_be_seen_and_everything_has_a_name(page):
    focused = "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle"
    for _ in range(25):
        page.keyboard.press("Tab")
        assert page.evaluate(focused) != "none"
    nameless = """[...document.querySelectorAll("button, input, select, [role=img], [role=grid]")]
      .filter((one) => one.checkVisibility() && !one.innerText?.trim() && !one.ariaLabel && !one.labels?.length)
      .map((one) => one.outerHTML)"""
    assert page.evaluate(nameless) == []


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
    with Watched(limiter=limiter) as watched:
        for name in names:
            limiter.acquire(name).report(status_code=200)
        page = new_page(serve_page(watched).url)
        until(page, "document.querySelectorAll('#charts canvas').length === 3")
        left_out = next(name for name in names if name not in watched.snapshot().charted)
        page.fill("#keys-filter", left_out)
        page.click("#keys-body .pin")
        until(page, "document.querySelectorAll('#charts canvas').length === 1")
        assert page.inner_text("#charts .name") == left_out
