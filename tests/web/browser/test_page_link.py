"""The line to the run breaks and comes back, and the page says so all the while."""

import pytest
from bench.ports import free_port
from tests.web.lively import Lively

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
    assert "The connection is lost; the run goes on without it." in page.inner_text("#banner-text")
    assert "Trying again" in page.inner_text("#banner-text")
    page.unroute("**/api/**")
    link(page, "live")
    page.complaints.clear()


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
