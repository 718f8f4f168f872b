"""What the page shows, in a real browser, of a run with a cooldown, an outage and a quarantined key."""

import re

import pytest
from tests.web.lively import CROSSREF, GPT, SONNET, Lively, slow_clock

DARK_PAPER = "rgb(14, 19, 25)"
DRAWN = """(nth) => {
  const canvas = document.querySelectorAll("#charts canvas")[nth];
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size > 20;
}"""
VIEWS = {
    "light": {"color_scheme": "light", "device_scale_factor": 1.5},
    "dark": {"color_scheme": "dark", "device_scale_factor": 1.5},
    "narrow": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True},
    "narrow-dark": {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark", "device_scale_factor": 2},
}


OTHER_VIEWS = [view for view in VIEWS if view != "narrow-dark"]


def opened(open_page, url, until):
    page = open_page(url)
    page.wait_for_selector("#waits-list li")
    until(page, "document.querySelectorAll('#charts canvas').length === 3")
    return page


@pytest.fixture
def page(new_page, serve_page, until):
    return opened(new_page, serve_page().url, until)


@pytest.fixture(scope="module")
def slow_page(new_shared_page, serve_shared_page, until):
    """For tests that only look."""
    return opened(new_shared_page, serve_shared_page(Lively(clock=slow_clock())).url, until)


def texts(page, selector):
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def number(text):
    return float(re.sub(r"[^\d.]", "", text))


def test_the_head_tells_which_run_how_far_how_fast_and_how_long(slow_page):
    assert slow_page.inner_text("#title") == "abstracts.jsonl"
    assert slow_page.inner_text("#state") == "running"
    assert slow_page.inner_text("#link-text") == "live"
    assert 61 < number(slow_page.inner_text("#share")) < 70
    assert "of 48,000 rows" in slow_page.inner_text("#share-of")
    assert slow_page.inner_text("#rate").endswith("/s")
    assert slow_page.inner_text("#eta").endswith("min")
    assert slow_page.get_attribute("#bar", "aria-valuetext").endswith("of 48,000 rows")
    assert slow_page.title().endswith("% · abstracts.jsonl · Headgate")


def test_why_it_waits_is_a_sentence_with_the_rows_behind_it_and_the_time_left(slow_page):
    first, second, third = slow_page.locator("#waits-list li").all()
    assert "1,287" in first.inner_text()
    assert "503, so the circuit is open" in first.inner_text()
    assert SONNET in first.inner_text()
    assert re.search(r"\d+ s", first.locator(".left").inner_text())
    assert "Retry-After: 20" in second.inner_text()
    assert "out of its daily quota" in third.inner_text()
    assert slow_page.inner_text("#waits-sum") == "1,783 rows behind 3 causes"


def test_credentials_in_trouble_come_first_with_the_time_until_they_are_back(slow_page):
    resting, retired, *others = texts(slow_page, "#credentials-list li")
    assert "team-b" in resting
    assert "1 h 2" in resting
    assert "daily quota used up" in resting
    assert "revoked" in retired
    assert len(others) == 3
    assert slow_page.inner_text("#credentials-sum") == "1 resting · 1 disabled · 2 in use · 1 free"


def test_each_key_has_a_time_line_with_what_it_learned_and_what_the_server_says(slow_page, until):
    assert texts(slow_page, "#charts h3") == [SONNET, GPT, CROSSREF]
    sonnet, gpt, _ = texts(slow_page, "#charts .readout")
    assert sonnet == "learned 18.0/s, the server states none"
    assert gpt == "learned 44.0/s, the server states 50.0/s"
    assert texts(slow_page, "#charts .pill")[0] == "circuit open"
    for canvas in range(3):
        until(slow_page, DRAWN, canvas)


def test_a_time_line_can_be_read_by_keyboard(slow_page, until):
    until(slow_page, DRAWN, 1)
    chart = slow_page.locator("#charts .chart").nth(1)
    chart.focus()
    slow_page.keyboard.press("ArrowLeft")
    first = texts(slow_page, "#charts .readout")[1]
    slow_page.keyboard.press("ArrowLeft")
    second = texts(slow_page, "#charts .readout")[1]
    assert re.match(r"\d\d:\d\d:\d\d · learned \d", first)
    assert first != second
    slow_page.keyboard.press("Tab")
    until(slow_page, "!document.querySelectorAll('.readout')[1].dataset.past")


def test_dead_rows_are_told_by_reason(slow_page):
    assert texts(slow_page, "#dead-list strong") == ["38", "17", "6"]
    assert texts(slow_page, "#dead-list p")[0] == "the answer was not the JSON that was asked for"
    assert texts(slow_page, "#dead-list small")[0] == "such as row 18,204"
    assert slow_page.inner_text("#dead-sum") == "61 rows"


def test_events_can_be_filtered_and_held(page, until):
    page.wait_for_selector("#events-list li")
    page.fill("#events-filter", "crossref")
    assert {*page.locator("#events-list .key").all_text_contents()} == {CROSSREF}
    page.fill("#events-filter", "no such thing")
    assert page.locator("#events-list li").count() == 0
    page.keyboard.press("Escape")
    page.select_option("#events-kind", "held")
    assert {*texts(page, "#events-list .kind")} == {"held"}
    page.select_option("#events-kind", "")
    page.keyboard.press("Escape")
    page.click("#events-hold")
    held = page.inner_text("#events-list")
    page.wait_for_timeout(1200)
    assert page.inner_text("#events-list") == held
    page.click("#events-hold")
    until(page, "(held) => document.querySelector('#events-list').innerText !== held", arg=held)


def test_it_goes_on_by_itself_and_rests_run_down(page, until):
    share, left = number(page.inner_text("#share")), number(page.inner_text("#waits-list .left >> nth=0"))
    until(page, "(before) => parseFloat(document.querySelector('#share').textContent) > before", arg=share)
    until(page, "(before) => parseFloat(document.querySelector('#waits-list .left').textContent) < before", arg=left)


@pytest.mark.parametrize("view", ["narrow-dark", *(pytest.param(one, marks=pytest.mark.chaos) for one in OTHER_VIEWS)])
def test_it_fits_light_dark_and_a_phone(new_page, serve_page, keep_picture, view, until):
    page = new_page(serve_page().url, **VIEWS[view])
    until(page, "document.querySelectorAll('#charts canvas').length === 3")
    until(page, DRAWN, 0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == DARK_PAPER) == ("dark" in view)
    keep_picture(page, view)
    keep_picture(page, f"{view}-whole", full_page=True)


def test_a_change_of_scheme_is_followed_while_it_is_open(slow_page):
    slow_page.emulate_media(color_scheme="dark")
    assert slow_page.evaluate("getComputedStyle(document.body).backgroundColor") == DARK_PAPER
    slow_page.emulate_media(color_scheme="light")


def test_nothing_moves_for_who_does_not_want_that(slow_page):
    slow_page.emulate_media(reduced_motion="reduce")
    moving = "getComputedStyle(document.querySelector('.bar i')).transitionDuration"
    assert slow_page.evaluate(moving) in ("0s", "0")
    slow_page.emulate_media(reduced_motion="no-preference")


def test_another_run_can_be_chosen(new_page, serve_page, until):
    page = new_page(serve_page(Lively("first"), Lively("second", keys=5)).url)
    page.wait_for_selector("#waits-list li")
    assert page.inner_text("#keys-sum") == "3 keys"
    page.select_option("#run", "second")
    until(page, "document.querySelector('#keys-sum').textContent === '5 keys'")
    assert page.url.endswith("#run=second")
    page.reload()
    until(page, "document.querySelector('#keys-sum').textContent === '5 keys'")


def test_a_run_that_has_gone_stays_in_sight_as_it_was(new_page, serve_page, until):
    served = serve_page(Lively("first", keys=4), Lively("second"))
    page = new_page(served.url)
    until(page, "document.querySelector('#keys-sum').textContent === '4 keys'")
    del served.runs.sources[0]
    until(page, "document.querySelector('#state').textContent === 'ended'")
    assert page.inner_text("#keys-sum") == "4 keys"
