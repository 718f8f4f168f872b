"""A real browser for the page's tests: Debian's chromium, driven by Playwright.

Where none can be had, the tests that need it are skipped and say so; on CI that is a failure.
"""

import os
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.web.lively import Lively, Runs

from headgate.web import serve, view_cache

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ARTEFACTS = Path(__file__).parents[3] / ".artefacts"
"""Where screenshots are kept."""
PATIENCE = 20_000
"""Milliseconds that a test waits for what must come; other tests share the machine."""


def no_browser(why):
    sentence = f"NO BROWSER, SO THE PAGE IS NOT TESTED: {why}. As root: apt-get install chromium; then: make test"
    if os.environ.get("HEADGATE_CI") == "1" or os.environ.get("CI") == "true":
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)


def where(said):
    """What is on the console, with the address it is about but without a token that may be in that."""
    return f"{said.text} ({said.location['url'].partition('?')[0]})"


@pytest.fixture(scope="module")
def browser():
    """For one module, not longer: Playwright keeps an event loop running, in which other tests could not run theirs."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        no_browser("the package playwright is missing")
    chromium = os.environ.get("HEADGATE_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if chromium is None:
        no_browser("no chromium is installed")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield running
        running.close()


@pytest.fixture(autouse=True, scope="module")
def patient_page():
    """A page waits for a run as long as its test does: the 503 of a run that is late would be on the console."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_cache, "TIMEOUT", PATIENCE / 1000)
        yield


@contextmanager
def opened_pages(browser):
    """Opens pages that must not complain: at the end no error was on the console and no other host was asked.

    ``page.complaints`` may be emptied by a test that provokes some.
    """
    opened = []

    def open_page(url, **context):
        defaults = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light", "timezone_id": "UTC"}
        page = browser.new_context(**{**defaults, **context}).new_page()
        page.set_default_timeout(PATIENCE)
        page.complaints, page.asked = [], []
        page.on("console", lambda said: said.type in ("error", "warning") and page.complaints.append(where(said)))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        opened.append(page)
        page.goto(url)
        page.wait_for_selector("#title", state="attached")  # by way of the one that takes the token
        return page

    yield open_page
    for page in opened:
        page.context.close()
    for page in opened:
        own = page.asked[0].split("?")[0]
        assert page.complaints == []
        assert [url for url in page.asked if not url.startswith(own)] == []


@pytest.fixture
def new_page(browser, serve_page):
    """Opens pages for one test."""
    with opened_pages(browser) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def new_shared_page(browser, serve_shared_page):
    """Opens pages for all tests of a module: a page takes most of a second to load, and many tests only look."""
    with opened_pages(browser) as open_page:
        yield open_page


@pytest.fixture(scope="session")
def until():
    """Waits until a script gives what is truly so; Playwright's own way of waiting breaks the page's strict policy."""

    def wait(page, script, arg=None):
        give_up_at = time.monotonic() + PATIENCE / 1000
        while not (found := page.evaluate(script, arg)):
            said = [page.text_content("#state"), page.text_content("#link-text"), page.complaints]
            assert time.monotonic() < give_up_at, f"never: {script}; the page says {said}"
            page.wait_for_timeout(50)
        return found

    return wait


@contextmanager
def serving():
    served = []

    def begin(*sources, **options):
        runs = Runs(*(sources or (Lively(),)))
        one = serve(runs, **options)
        one.runs = runs
        served.append(one)
        return one

    yield begin
    for one in served:
        one.close()


@pytest.fixture
def serve_page():
    """Serves runs, by default one with all kinds of trouble; gives what ``serve`` gives, with the ``runs``."""
    with serving() as begin:
        yield begin


@pytest.fixture(scope="module")
def serve_shared_page():
    with serving() as begin:
        yield begin


@pytest.fixture
def keep_picture():
    def keep(page, name, **options):
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTEFACTS / f"page-{name}.png", **options)

    return keep
