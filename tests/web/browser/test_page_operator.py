"""What an operator does on the page reaches the run, after a question where it hurts, and the answer is shown."""

import pytest
from bench.ports import free_port
from tests.web.lively import GPT, Lively

from headgate import AdaptiveRateLimiter, CredentialCoordinator, RateLimitConfig
from headgate.credentials import Credential
from headgate.observe.monitor import RunMonitor
from headgate.observe.snapshot import Action
from headgate.web import new_token


@pytest.fixture(scope="module")
def shared_run():
    return Lively()


@pytest.fixture(scope="module")
def shared_page(new_shared_page, serve_shared_page, shared_run):
    page = new_shared_page(serve_shared_page(shared_run).url)
    page.wait_for_selector("#waits-list li")
    return page


@pytest.fixture
def run(shared_run):
    shared_run.acted.clear()
    return shared_run


@pytest.fixture
def page(shared_page, run, until):
    """The page of the run, which goes on when a test is over."""
    yield shared_page
    shared_page.unroute_all()
    if run.paused_at is not None:
        shared_page.click("#pause")
    until(shared_page, "document.querySelector('#state').textContent === 'running'")
    shared_page.complaints.clear()


@pytest.fixture
def says(until):
    """Waits until the page has answered with this sentence."""

    def wait(page, sentence):
        until(
            page, "(it) => [...document.querySelectorAll('.toast p')].some((one) => one.textContent === it)", sentence
        )

    return wait


def open_key(page, key):
    page.locator("#keys-body .name", has_text=key).dispatch_event("click")  # rows move under a pointer
    assert page.inner_text("#ask-title") == key


def test_pausing_asks_first_and_resuming_does_not(page, run, until, says, keep_picture):
    page.click("#pause")
    assert page.inner_text("#ask-title") == "Pause abstracts.jsonl?"
    keep_picture(page, "question")
    page.click("#ask-choices [value=cancel]")
    assert run.acted == []
    page.keyboard.press("p")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#state').textContent === 'paused'")
    says(page, "Paused: calls in flight finish, no new one starts.")
    assert "Paused by an operator" in page.inner_text("#waits-list")
    assert page.inner_text("#pause") == "Resume"
    page.click("#pause")
    until(page, "document.querySelector('#state').textContent === 'running'")
    assert [action.kind for action in run.acted] == ["pause", "resume"]


def test_who_asks_again_in_the_same_instant_is_asked(page, run, until):
    """A dialog tells that it was closed a moment later, when the next question may be open already."""
    page.click("#pause")
    page.evaluate("""() => {
        document.querySelector('#ask-choices [value=cancel]').click();
        document.querySelector('#pause').click();
        return new Promise((done) => setTimeout(done, 200));
    }""")
    page.click("#ask-choices [value=pause]")
    until(page, "document.querySelector('#state').textContent === 'paused'")
    assert [action.kind for action in run.acted] == ["pause"]


def test_a_credential_is_parked_for_some_minutes_and_freed(page, run, until):
    page.click("[aria-label='Park team-c 11d3f0']")
    page.fill("#ask-value", "5")
    page.keyboard.press("Enter")
    page.click("[aria-label='Enable team-c 11d3f0']")
    page.wait_for_selector("[aria-label='Park team-c 11d3f0']")
    assert run.acted == [
        Action(kind="park", target="team-c/11d3f0", value=300.0),
        Action(kind="free", target="team-c/11d3f0"),
    ]


def test_a_refusal_is_shown_as_the_run_words_it(page, says):
    page.click("[aria-label='Enable old 9f01c2']")
    assert "401: the key was revoked" in page.inner_text("#ask-text")
    page.click("#ask-choices [value=free]")
    says(page, "old/9f01c2 was revoked by its provider; only a new key can take its place.")
    assert len(page.complaints) == 1
    assert "409" in page.complaints.pop()


def test_a_limit_is_set_checked_and_taken_away(page, run, until, says):
    open_key(page, GPT)
    page.fill("#ask-value", "many")
    page.keyboard.press("Enter")
    assert page.inner_text("#ask-error") == "At most: enter a number above 0."
    page.fill("#ask-value", "12,5")
    page.keyboard.press("Enter")
    says(page, f"{GPT} makes at most 12.5 calls/s from now on.")
    until(page, "document.querySelector('#charts').innerText.includes('your limit is 12.5/s')")
    open_key(page, GPT)
    assert page.input_value("#ask-value") == "12.5"
    page.click("#ask-choices [value=unlimit]")
    until(page, "!document.querySelector('#charts').innerText.includes('your limit')")
    assert [action.value for action in run.acted] == [12.5, None]


def test_it_all_reaches_a_real_run_also_after_the_page_was_away(new_page, serve_page, until):
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6))
    limiter.acquire("api.example.com").report(status_code=200)
    keys = CredentialCoordinator([Credential("main", "sk-canary-0123456789")])
    port, token = free_port(), new_token()
    with RunMonitor(limiter=limiter, credentials=keys, title="a program") as watched:
        served = serve_page(watched, port=port, token=token)
        page = new_page(served.url)
        page.click("[aria-label^='Park main']")
        page.keyboard.press("Enter")
        page.click("[aria-label^='Enable main']")
        page.wait_for_selector("[aria-label^='Park main']")
        assert keys.back_in("main") == 0.0
        open_key(page, "api.example.com")
        page.fill("#ask-value", "7")
        page.keyboard.press("Enter")
        until(page, "document.querySelector('#charts').innerText.includes('your limit is 7.0/s')")
        assert limiter.key_status("api.example.com").limit == 7.0
        page.keyboard.press("p")
        page.keyboard.press("Enter")
        until(page, "document.querySelector('#state').textContent === 'paused'")
        assert limiter.is_paused

        served.close()
        page.wait_for_selector("#banner", state="visible")
        page.wait_for_selector("#pause:disabled")
        page.keyboard.press("p")
        assert not page.is_visible("#ask")
        assert page.is_disabled("[aria-label^='Park main']")
        assert "The run may still be running." in page.inner_text("#banner-text")
        assert page.inner_text("#state") == "last seen paused"
        serve_page(watched, port=port, token=token)
        page.click("#retry")
        page.wait_for_selector("#banner", state="hidden")
        page.wait_for_selector("#pause:enabled")
        page.keyboard.press("p")
        until(page, "document.querySelector('#state').textContent === 'running'")
        assert not limiter.is_paused
        page.select_option("#events-kind", "operator")
        until(page, "document.querySelectorAll('#events-list li').length === 5")
        assert "sk-canary" not in page.content()
    page.complaints.clear()


def test_an_answer_that_does_not_come_is_told(page, says):
    page.route("**/api/act", lambda route: route.abort())
    page.click("#pause")
    page.click("#ask-choices [value=pause]")
    says(page, "No response; check the result once the page is live again.")
    page.complaints.clear()


def test_a_page_that_only_shows_has_no_buttons_that_do(new_page, serve_page, run):
    page = new_page(serve_page(run, read_only=True).url)
    page.wait_for_selector("#waits-list li")
    assert not page.is_visible("#pause")
    assert not page.locator("#credentials-list button").first.is_visible()
    open_key(page, GPT)
    assert not page.is_visible("#ask-value")
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    assert not page.is_visible("#ask")
