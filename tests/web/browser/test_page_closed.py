"""What is shown where there is nothing to show: no run on this machine, or a browser that has not the token."""

import pytest
from tests.web.lively import Lively

PAPERS = {"light": "rgb(245, 246, 248)", "dark": "rgb(14, 19, 25)"}
TITLES = {"": "This page opens by its link", "?token=" + 24 * "x": "This link does not open the page"}


@pytest.mark.parametrize("scheme", PAPERS)
@pytest.mark.parametrize("query", TITLES, ids=["missing", "wrong"])
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


@pytest.mark.parametrize("width", [1440, 320])
def test_without_any_run_it_says_what_to_type_until_there_is_one(new_page, serve_page, until, width):
    served = serve_page()
    served.runs.sources.clear()
    page = new_page(served.url, viewport={"width": width, "height": 700})
    page.wait_for_selector("#nothing")
    assert page.inner_text("#nothing h2") == "No run is under way on this machine"
    assert page.locator("#nothing code").first.inner_text() == "headgate demo"
    assert not page.is_visible("main")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    served.runs.sources.append(Lively())
    page.wait_for_selector("#waits-list li")
    assert not page.is_visible("#nothing")
