"""What the page's API answers to its operator, to machines and to browsers."""

import json
import time
from dataclasses import replace

import pytest

from headgate.observe.snapshot import ActionRefusedError
from headgate.web import view_cache

SAFE = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "deny",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def asked(page, path, *fields):
    return json.loads(page.ask(f"GET {path}", page.bearer, *fields).body)


def acted(page, wanted, *fields):
    body = json.dumps(wanted).encode()
    return page.ask("POST /api/act", page.bearer, "Content-Type: application/json", *fields, body=body)


def test_the_link_sets_a_strict_cookie_and_goes_on_without_the_token(page):
    answer = page.ask(f"GET /?token={page.token}")
    assert answer.status == 200
    cookie = answer.fields["set-cookie"]
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert page.token.lower() not in cookie
    assert answer.fields["refresh"] == "0; url=/"
    assert page.token.encode() not in answer.raw


def test_the_link_works_when_followed_from_another_site(page):
    elsewhere = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    assert page.ask(f"GET /?token={page.token}", *elsewhere).status == 200


def test_the_cookie_opens_page_files_and_api(page):
    for path in ("/", "/static/index.html", "/api/snapshot", "/api/events", "/api/timelines?keys=key-0"):
        assert page.ask(f"GET {path}", f"Cookie: other=1; {page.cookie}").status == 200, path


def test_without_a_token_the_page_says_which_link_opens_it(page):
    answer = page.ask("GET /")
    assert answer.status == 401
    assert b"?token=" in answer.body


@pytest.mark.parametrize("path", ["/", "/static/index.html", "/api/snapshot", "/healthz", "/nothing"])
@pytest.mark.parametrize("known", [True, False])
def test_every_answer_has_the_strict_headers(shared_page, path, known):
    fields = shared_page.ask(f"GET {path}", *([shared_page.bearer] if known else [])).fields
    assert {name: fields.get(name) for name in SAFE} == SAFE
    policy = fields["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "server" not in fields


def test_files_have_the_kinds_that_browsers_insist_on(page):
    assert page.ask("GET /", page.bearer).fields["content-type"] == "text/html; charset=utf-8"
    assert page.ask("GET /static/connection.js", page.bearer).fields["content-type"] == "text/javascript; charset=utf-8"
    assert page.ask("GET /static/icon.svg", page.bearer).fields["content-type"] == "image/svg+xml"


def test_head_is_answered_without_a_body(page):
    answer = page.ask("HEAD /api/snapshot", page.bearer)
    assert (answer.status, answer.body) == (200, b"")


def test_a_snapshot_has_every_run_whole(open_page, fake_run):
    page = open_page(fake_run("a"), fake_run("b"))
    seen = asked(page, "/api/snapshot")
    assert seen["schema"] == 1
    assert (seen["read_only"], seen["more_runs"], seen["unreadable"]) == (False, 0, 0)
    assert [(one["run"], len(one["keys"])) for one in seen["runs"]] == [("a", 3), ("b", 3)]


def test_a_snapshot_of_one_run_has_the_heads_of_the_others(open_page, fake_run):
    page = open_page(fake_run("a"), fake_run("b"))
    a, b = asked(page, "/api/snapshot?run=b")["runs"]
    assert set(a) == set(view_cache.HEAD)
    assert len(b["keys"]) == 3


def test_runs_beyond_the_bound_are_counted(open_page, fake_run):
    page = open_page(*(fake_run(f"run-{n}") for n in range(view_cache.MOST_RUNS + 3)))
    seen = asked(page, "/api/snapshot")
    assert (len(seen["runs"]), seen["more_runs"]) == (view_cache.MOST_RUNS, 3)


def test_a_run_that_cannot_be_read_hides_no_other(open_page, fake_run, logged):
    broken = fake_run("broken")
    broken.error = RuntimeError("secret-word")
    page = open_page(broken, fake_run("fine"))
    seen = asked(page, "/api/snapshot")
    assert [one["run"] for one in seen["runs"]] == ["fine"]
    assert seen["unreadable"] == 1
    assert page.ask("GET /healthz").status == 503
    assert not any("secret-word" in line for line in logged)


def test_a_run_that_gives_no_sign_is_shown_as_such(page):
    told = page.run.snapshot()
    page.run.snapshot = lambda: replace(told, silent=True)
    assert asked(page, "/api/snapshot")["runs"][0]["silent"] is True
    assert page.ask("GET /healthz").status == 503


def test_runs_that_cannot_even_be_listed_are_not_answering(page, logged):
    def fail():
        raise RuntimeError("secret-word")

    page.sources.runs = fail
    for _ in range(3):
        answer = page.ask("GET /api/snapshot", page.bearer)
        assert (answer.status, json.loads(answer.body)) == (503, {"error": "The run does not respond"})
        time.sleep(view_cache.SHORTEST_INTERVAL)
    assert [line for line in logged if "runs" in line] == ["cannot read the runs: RuntimeError"]


def test_without_any_run_the_snapshot_is_empty(page):
    page.sources.all = []
    assert asked(page, "/api/snapshot")["runs"] == []
    assert page.ask("GET /api/events", page.bearer).status == 404
    assert page.ask("GET /healthz").status == 200


@pytest.mark.parametrize("quickly", [True, False])
def test_numbers_that_are_not_finite_are_null_and_any_text_can_be_read(open_page, fake_run, monkeypatch, quickly):
    if not quickly:
        monkeypatch.setattr("headgate.observe.snapshot._orjson_dumps", None)
    run = fake_run()
    real = run.snapshot
    run.snapshot = lambda: replace(real(), title="\ud800 \u2028 </script>", counters={"a": float("inf"), "b": -1.5})
    page = open_page(run)
    (seen,) = asked(page, "/api/snapshot")["runs"]
    assert seen["counters"] == {"a": None, "b": -1.5}
    assert seen["title"] == "\ud800 \u2028 </script>"


def test_events_after_a_number(page):
    seen = asked(page, "/api/events?after=3")
    assert seen["run"] == "run-1"
    assert [one["number"] for one in seen["events"]] == [4, 5]
    assert [one["number"] for one in asked(page, "/api/events?most=1")["events"]] == [5]


def test_timelines_of_chosen_keys_after_an_instant(page):
    (line,) = asked(page, "/api/timelines?keys=key-1&since=1002")["timelines"]
    assert (line["key"], line["at"], line["rate"]) == ("key-1", [1003.0], [5.0])
    assert asked(page, "/api/timelines?keys=key-1&since=1003")["timelines"] == []


def test_an_action_reaches_its_run_and_its_sentence_comes_back(open_page, fake_run):
    page = open_page(fake_run("a"), fake_run("b"))
    answer = acted(page, {"run": "b", "kind": "park", "target": "main/a1b2c3", "value": 30})
    assert (answer.status, json.loads(answer.body)) == (200, {"said": "park: done"})
    (action,) = page.sources.all[1].acted
    assert (action.kind, action.target, action.value) == ("park", "main/a1b2c3", 30.0)


def test_an_action_needs_its_run_where_there_are_several(open_page, fake_run):
    page = open_page(fake_run("a"), fake_run("b"))
    assert acted(page, {"kind": "pause"}).status == 400
    assert [one.acted for one in page.sources.all] == [[], []]


def test_the_browser_of_the_operator_may_act_by_its_cookie(page):
    own = (f"Cookie: {page.cookie}", f"Origin: http://{page.host}", "Content-Type: application/json")
    assert page.ask("POST /api/act", *own, body=b'{"kind":"pause"}').status == 200
    assert [one.kind for one in page.run.acted] == ["pause"]


def test_an_action_that_is_refused_says_why(page):
    page.run.refusal = ActionRefusedError("main is the last credential")
    answer = acted(page, {"kind": "park", "target": "main/a1b2c3"})
    assert (answer.status, json.loads(answer.body)) == (409, {"error": "main is the last credential"})


def test_an_action_that_fails_says_nothing_of_the_inside(page, logged):
    page.run.refusal = RuntimeError("secret-word")
    answer = acted(page, {"kind": "pause"})
    assert answer.status == 500
    assert b"secret-word" not in answer.raw
    assert not any("secret-word" in line for line in logged)


def test_what_an_operator_does_is_logged_on_one_line(page, logged):
    acted(page, {"kind": "park", "target": "a\nb"})
    assert [line for line in logged if "operator" in line] == ["operator: park 'a\\nb' None in run 'run-1'"]


def test_a_page_that_only_shows_does_nothing(open_page):
    page = open_page(read_only=True)
    assert acted(page, {"kind": "pause"}).status == 403
    assert page.run.acted == []
    assert asked(page, "/api/snapshot")["read_only"] is True


def test_health_needs_no_token_and_tells_nothing(page):
    answer = page.ask("GET /healthz")
    assert (answer.status, answer.body) == (200, b"ok\n")


def test_a_run_that_hangs_takes_only_its_answers_with_it(page):
    page.run.hangs.clear()
    try:
        assert page.ask("GET /api/snapshot", page.bearer).status == 503
        assert page.ask("GET /healthz").status == 503
        assert page.ask("GET /", page.bearer).status == 200
    finally:
        page.run.hangs.set()
