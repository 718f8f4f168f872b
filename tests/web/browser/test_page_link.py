"""The line to the run breaks and comes back, and the page says so all the while; and what it shows without a run."""

from dataclasses import replace

import pytest
from bench.ports import free_port
from tests.web.lively import Lively

from headgate import AdaptiveRateLimiter
from headgate.observe.monitor import RunMonitor
from headgate.observe.snapshot import ProgressLine
from headgate.web import new_token

LONGEST_WAIT = 9_000
"""Milliseconds after which the page has surely tried again."""


@pytest.fixture
def link(until):
    def wait(page, word):
        until(page, "(word) => document.querySelector('#link-text').textContent === word", word)

    return wait


def test_it_comes_back_by_itself_and_says_that_it_tries(new_page, serve_page, until, link, keep_picture):
    run, port, token = Lively(), free_port(), new_token()
    served = serve_page(run, port=port, token=token)
    page = new_page(served.url)
    page.wait_for_selector("#waits-list li")
    link(page, "live")
    assert not page.is_visible("#banner")
    page.clock.install()
    served.close()
    page.wait_for_selector("#banner", state="visible")
    keep_picture(page, "lost")
    assert page.locator("#waits-list li").count() == 3
    before = page.inner_text("#share-of")
    serve_page(run, port=port, token=token)
    page.clock.fast_forward(LONGEST_WAIT)
    link(page, "live")
    page.wait_for_selector("#banner", state="hidden")
    until(page, "(before) => document.querySelector('#share-of').textContent !== before", before)
    page.complaints.clear()


def test_a_line_that_breaks_without_a_word_is_tried_again(new_page, serve_page, link):
    page = new_page(serve_page().url)
    page.wait_for_selector("#waits-list li")
    link(page, "live")
    page.route("**/api/**", lambda route: route.abort())
    page.evaluate("dispatchEvent(new Event('online'))")
    page.wait_for_selector("#banner", state="visible")
    assert "The connection is lost. The run may still be running." in page.inner_text("#banner-text")
    assert "Reconnecting" in page.inner_text("#banner-text")
    page.unroute("**/api/**")
    link(page, "live")
    page.complaints.clear()


def test_a_run_that_ends_is_shown_as_it_ended_and_stays_so(new_page, serve_page, until, link):
    limiter = AdaptiveRateLimiter()
    progress = [ProgressLine(total=400, done=381, in_flight=2)]
    watched = RunMonitor(limiter=limiter, progress=lambda: progress[-1], kind="run").start()
    served = serve_page(watched)
    page = new_page(served.url)
    until(page, "document.querySelector('#share-of').textContent === '381 of 400 rows'")
    progress.append(ProgressLine(total=400, done=400))
    watched.close()
    served.close()
    link(page, "closed")
    asked = len(page.asked)
    page.click("#retry")  # as it does by itself after a while
    while not any("api/snapshot" in url for url in page.asked[asked:]):  # why it failed is asked for when it has
        page.wait_for_timeout(20)
    assert page.inner_text("#link-text") == "closed"
    assert page.inner_text("#banner-text").startswith("The run has ended and closed its page.")
    assert (page.inner_text("#state"), page.inner_text("#share-of")) == ("done", "400 of 400 rows")
    assert not page.is_visible("#pause")
    assert page.get_attribute("#waits-list", "data-empty") == "The run has finished."
    page.complaints.clear()


def test_a_run_that_gives_no_sign_is_told(new_page, serve_page, until):
    run = Lively()
    last = replace(run.snapshot(), waits=())
    run.snapshot = lambda: replace(last, silent=True)
    page = new_page(serve_page(run).url)
    until(page, "document.querySelector('#state').textContent === 'not answering'")
    assert page.inner_text("#banner-text").startswith("No update from the run since ")
    assert not page.is_visible("#retry")
    assert page.inner_text("#eta") == "–"
    assert page.is_disabled("#pause")
    assert page.is_disabled("#credentials-list button >> nth=0")
    run.snapshot = lambda: last
    page.wait_for_selector("#banner", state="hidden")
    assert page.is_enabled("#pause")


def test_how_a_run_ended_is_told(new_page, serve_page, until):
    run, seen = Lively(), Lively().snapshot()
    page = None
    for ending, sentence in (
        ("stopped", "The run was stopped"),
        ("failed", "failed with an error"),
        ("lost", "process is gone"),
    ):
        last = replace(seen, state="ended", ending=ending, waits=())
        run.snapshot = lambda last=last: last
        page = page or new_page(serve_page(run).url)
        until(page, "(ending) => document.querySelector('#state').textContent === ending", ending)
        assert sentence in page.get_attribute("#waits-list", "data-empty")
        assert not page.is_visible("#pause")
        assert not page.locator("#credentials-list button").first.is_visible()


def test_a_token_that_is_not_valid_any_more_is_told(new_page, serve_page):
    port = free_port()
    served = serve_page(port=port, token=new_token())
    page = new_page(served.url)
    page.wait_for_selector("#waits-list li")
    served.close()
    page.wait_for_selector("#banner", state="visible")
    serve_page(port=port, token=new_token())
    page.click("#retry")
    page.wait_for_selector("#link[data-link=refused]")
    assert "Open the link that the run printed" in page.inner_text("#banner-text")
    page.complaints.clear()


# ---------------------------------------------------------------------- nothing to show

PAPERS = {"light": "rgb(245, 246, 248)", "dark": "rgb(14, 19, 25)"}
TITLES = {"": "This page needs its link", "?token=" + 24 * "x": "This link is not valid"}


@pytest.mark.parametrize(("query", "scheme"), list(zip(TITLES, PAPERS, strict=True)), ids=["missing", "wrong"])
def test_without_the_token_it_says_what_to_do_in_the_readers_colours(browser, serve_page, scheme, query):
    served = serve_page()
    page = browser.new_context(color_scheme=scheme, viewport={"width": 375, "height": 700}).new_page()
    said, asked = [], []
    page.on("console", lambda line: said.append(line.text))
    page.on("request", lambda request: asked.append(request.url))
    assert page.goto(served.address + query).status == 401
    assert page.inner_text("h1") == TITLES[query]
    assert "?token=" in page.inner_text("li >> nth=0")
    assert "abstracts" not in page.content()
    assert "xxxx" not in page.content()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == PAPERS[scheme]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert [line for line in said if "401" not in line] == []
    assert len(asked) == 1
    page.context.close()


def test_without_any_run_it_says_what_to_type_until_there_is_one(new_page, serve_page, until):
    served = serve_page()
    served.runs.sources.clear()
    page = new_page(served.url, viewport={"width": 1440, "height": 700})
    page.wait_for_selector("#nothing")
    until(page, "document.querySelector('#state').textContent === 'no runs'")
    assert page.inner_text("#nothing h2") == "No runs on this machine"
    assert page.locator("#nothing code").first.inner_text() == "headgate demo"
    assert not page.is_visible("main")
    for width in (1440, 320):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    served.runs.sources.append(Lively())
    page.wait_for_selector("#waits-list li")
    assert not page.is_visible("#nothing")
