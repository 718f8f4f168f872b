"""The line to the run breaks and comes back, and the page says so all the while."""

from dataclasses import replace

import pytest
from bench.ports import free_port
from tests.web.lively import Lively

from headgate import AdaptiveRateLimiter
from headgate.observe.snapshot import ProgressLine
from headgate.observe.watched import Watched
from headgate.web import new_token


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
    served.close()
    page.wait_for_selector("#banner", state="visible")
    keep_picture(page, "lost")
    assert page.locator("#waits-list li").count() == 3
    before = page.inner_text("#share-of")
    serve_page(run, port=port, token=token)
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
    assert "The connection is lost. Whether the run goes on cannot be seen from here." in page.inner_text(
        "#banner-text"
    )
    assert "Trying again" in page.inner_text("#banner-text")
    page.unroute("**/api/**")
    link(page, "live")
    page.complaints.clear()


def test_a_run_that_ends_is_shown_as_it_ended_and_stays_so(new_page, serve_page, until, link):
    limiter = AdaptiveRateLimiter()
    progress = [ProgressLine(total=400, done=381, in_flight=2)]
    watched = Watched(limiter=limiter, progress=lambda: progress[-1], kind="run").start()
    served = serve_page(watched)
    page = new_page(served.url)
    until(page, "document.querySelector('#share-of').textContent === '381 of 400 rows'")
    progress.append(ProgressLine(total=400, done=400))
    watched.close()
    served.close()
    link(page, "closed")
    page.click("#retry")  # as it does by itself after a while
    page.wait_for_timeout(1_500)
    assert page.inner_text("#link-text") == "closed"
    assert page.inner_text("#banner-text").startswith("The run has ended and closed its page.")
    assert (page.inner_text("#state"), page.inner_text("#share-of")) == ("done", "400 of 400 rows")
    assert not page.is_visible("#pause")
    assert page.get_attribute("#waits-list", "data-empty") == "The run is over."
    page.complaints.clear()


def test_a_run_that_gives_no_sign_is_told(new_page, serve_page, until):
    run = Lively()
    last = replace(run.snapshot(), waits=())
    run.snapshot = lambda: replace(last, silent=True)
    page = new_page(serve_page(run).url)
    until(page, "document.querySelector('#state').textContent === 'not answering'")
    assert page.inner_text("#banner-text").startswith("The run has given no sign since ")
    assert not page.is_visible("#retry")
    assert page.inner_text("#eta") == "–"
    assert page.is_disabled("#pause")
    assert page.is_disabled("#credentials-list button >> nth=0")
    run.snapshot = lambda: last
    page.wait_for_selector("#banner", state="hidden")
    assert page.is_enabled("#pause")


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [("stopped", "The run was stopped"), ("failed", "ended by an error"), ("lost", "no last word")],
)
def test_how_a_run_ended_is_told(new_page, serve_page, until, ending, sentence):
    run = Lively()
    last = replace(run.snapshot(), state="ended", ending=ending, waits=())
    run.snapshot = lambda: last
    page = new_page(serve_page(run).url)
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
    assert "Open the address that the run printed" in page.inner_text("#banner-text")
    page.complaints.clear()
