"""A real ``headgate run`` against a real server, in a real browser: a key that is not accepted, a cooldown, an outage.

In real time, as browsers, processes and sockets live in no other: about twelve seconds for one run, told step by step.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request

import pytest

MANY = 5_000
SECRETS = {"main": "sk-canary-main-5f0e1d2c", "spare": "sk-canary-spare-77aa01", "old": "revoked-canary-old-3b9c"}
COOLDOWN = 6
WORDS = "(words) => words.every((one) => document.querySelector('#{}').innerText.includes(one))"


@pytest.fixture
def start():
    """Starts ``headgate ...``; what still runs at the end of the test is ended, and has said no secret."""
    started, said = [], []

    def begin(*words):
        command = [sys.executable, "-m", "headgate", *map(str, words)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, **pipes))
        return started[-1]

    yield begin
    for process in started:
        process.terminate()
        said += process.communicate(timeout=60)
    assert [secret for secret in SECRETS.values() if secret in "".join(said)] == []


@pytest.fixture
def server(start):
    """An API that takes 20 calls a second for each key; ``server(**fault)`` scripts what its next calls meet."""
    options = ("--provider", "openai", "--rate", "1200/min", "--burst", "20", "--seed", "1")
    told = json.loads(start("mock", *options, "--json", "--stop-with-stdin").stdout.readline())

    def fault(**wanted):
        asked = urllib.request.Request(f"{told['url']}/_faults", json.dumps({"provider": "openai", **wanted}).encode())
        urllib.request.urlopen(asked, timeout=20).close()

    fault.url = told["providers"]["openai"]
    return fault


@pytest.fixture
def link(start, server, tmp_path):
    keys, rows = tmp_path / "keys.txt", tmp_path / "rows.jsonl"
    keys.write_text("".join(f"{label}={secret}\n" for label, secret in SECRETS.items()))
    os.chmod(keys, 0o600)
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    lines = ({"custom_id": f"r{number}", "url": "/v1/chat/completions", "body": body} for number in range(MANY))
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    to = ("--to", server.url, "--keys", f"file:{keys}", "--store", "none")
    process = start("run", rows, "-o", tmp_path / "out.jsonl", *to, "--web", "--json")
    return re.match(r"The page: (\S+)", process.stderr.readline())[1]


@pytest.mark.chaos  # in real time
@pytest.mark.alone
@pytest.mark.timeout(180)
def test_a_quarantined_key_a_cooldown_and_an_outage_are_told_as_they_happen(
    new_page, link, server, until, keep_picture
):
    page = new_page(link)
    says = {name: WORDS.format(name) for name in ("waits-list", "credentials-list", "events-list", "keys-body")}

    until(page, says["credentials-list"], ["old", "disabled", "rejected by the server", "Enable"])
    until(page, says["waits-list"], ["Old of 127.0.0.1", "is disabled: rejected by the server", "Paced at "])
    until(page, r"() => /^[\d,]+ rows behind 2 causes$/.test(document.querySelector('#waits-sum').textContent)")
    behind = int(re.sub(r"\D", "", page.inner_text("#waits-sum").partition("rows")[0]))
    assert behind <= MANY  # each row once, whatever number of keys it might go out with
    until(page, "parseFloat(document.querySelector('#share').textContent) > 0")

    server(trouble="rate_limited", headers={"retry-after": str(COOLDOWN)}, key=SECRETS["main"])
    until(page, says["waits-list"], ["Rate limited by the server, ", "main of "])
    until(page, says["credentials-list"], ["main", "rate limited"])
    until(page, says["keys-body"], ["held "])
    told = page.locator("#waits-list li", has_text="Rate limited by the server").first
    assert told.locator(".behind strong").inner_text() == "–"  # its rows go out with another key
    assert re.fullmatch(r"\d s", told.locator(".left").inner_text())
    resting = page.locator("#credentials-list li", has_text="main").first
    assert re.fullmatch(r"\d s", resting.locator(".pill").inner_text())
    keep_picture(page, "live-cooldown", full_page=True)
    told.locator(".scope").click()
    assert page.inner_text("#ask-title").endswith("/main")
    page.keyboard.press("Escape")
    until(page, "() => !document.querySelector('#waits-list').innerText.includes('Told to wait')")

    server(status=503, times=60)
    until(page, says["waits-list"], ["Circuit open after too many failures, ", "main of ", "spare of "])
    until(page, says["keys-body"], ["circuit open"])
    page.select_option("#events-kind", "*")
    until(page, says["events-list"], ["circuit changed", "closed to open", "credential retired", "credential rested"])
    keep_picture(page, "live-outage", full_page=True)
    assert [secret for secret in SECRETS.values() if secret in page.content()] == []
