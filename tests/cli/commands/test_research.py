"""``headgate research`` against ``headgate mock``, as people and programs use it."""

import json
import os
import pty
import signal
import time
from types import SimpleNamespace

import pytest

from headgate.mock.providers import PROVIDER_APIS
from headgate.mock.providers.provider_api import Fault
from headgate.providers import PROVIDERS
from headgate.resilience import reset_resilience_manager_for_testing

CANARY = "canary-7f3a9c55e1d04b"
VARIABLES = {"tavily": "TAVILY_API_KEY", "google": "GOOGLE_API_KEY", "perplexity": "PERPLEXITY_API_KEY"}
KEYLESS = ("semantic_scholar", "crossref")
EVERYBODY = ",".join(PROVIDERS)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, tmp_path):
    """No keys but the test's own, a state folder of its own, and nothing learned by the test before."""
    for provider in PROVIDERS.values():
        monkeypatch.delenv(provider.key_variable, raising=False)
    monkeypatch.delenv("GOOGLE_CSE_ID", raising=False)
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path / "state"))
    reset_resilience_manager_for_testing()


@pytest.fixture
def keys(monkeypatch):
    for variable in VARIABLES.values():
        monkeypatch.setenv(variable, CANARY)
    monkeypatch.setenv("GOOGLE_CSE_ID", "engine")


@pytest.fixture
def mock(mock_api):
    """All search APIs: the option that points to them, ``fault`` and how often one was asked."""
    api = mock_api(providers=tuple(PROVIDER_APIS), latency=0.0)

    def fault(provider, *, times=1, **fault):
        api.services[provider].faults.add(Fault(**fault), times)

    def asked(provider):
        return api.truth()["providers"][provider]["asked"]

    return SimpleNamespace(option=f"--base-url=all={api.url}", fault=fault, asked=asked)


def test_it_shows_a_page_and_who_contributed(headgate, mock, keys):
    result = headgate("research", "water gates", "--providers", EVERYBODY, "--max-results", 2, mock.option)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "water gates"
    assert lines[1].startswith("2 results from 5 of 6 providers in ")
    assert lines[3:7] == [
        "  1  water gates: an introduction (1)",
        "     https://example.org/water-gates/1",
        "     Page 1 on water gates: an introduction.",
        "     2018 · tavily 1, google 1, perplexity 1, semantic_scholar 1, crossref 1",
    ]
    table = [line.split() for line in lines if line.startswith(tuple(PROVIDERS))]
    assert [row[0] for row in table] == list(PROVIDERS)
    assert all((row[1], row[-1]) == ("complete", "closed") for row in table)
    assert all(line == line.rstrip() for line in lines)


def test_without_a_key_the_keyless_are_asked(headgate, mock):
    result = headgate("research", "water gates", "--format", "json", mock.option)
    assert result.code == 0
    assert list(json.loads(result.out)["breaker_states"]) == list(KEYLESS)


def test_with_keys_whoever_has_one_is_asked_too(headgate, mock, keys):
    said = json.loads(headgate("research", "water gates", "--json", mock.option).out)
    assert list(said["breaker_states"]) == ["tavily", "google", "perplexity", *KEYLESS]


def test_its_json_has_everything(headgate, mock):
    said = json.loads(headgate("research", "water gates", "--max-results=1", "--json", mock.option).out)
    assert list(said) == ["question", "seconds", "breaker_states", "providers", "findings"]
    (finding,) = said["findings"]
    assert finding["places"] == {"semantic_scholar": 1, "crossref": 1}
    assert finding["published_at"] == "2018-01-01T00:00:00+00:00"
    assert finding["score"] == pytest.approx(2 / 61, abs=1e-6)
    assert [each["extra"]["doi"] for each in finding["results"]] == ["10.5555/mock.0"] * 2
    assert {report["outcome"] for report in said["providers"]} == {"complete"}


def test_its_markdown_cannot_be_broken_by_what_was_found(headgate, mock):
    found = {
        "DOI": "10.5555/1",
        "URL": "https://example.org/a>b c",
        "title": ["<script>alert(1)</script> *bold* [link](javascript:x) | `code`"],
        "abstract": "1. no list\n\n# no heading &lt;b&gt; \x1b[31mred",
    }
    mock.fault("crossref", status=200, body={"message": {"total-results": 1, "items": [found]}})
    page = headgate("research", "a *star*", "--providers", "crossref", "--format", "markdown", mock.option).out
    assert page.startswith("# a \\*star\\*\n")
    assert (
        "1. [alert(1) \\*bold\\* \\[link\\](javascript:x) \\| \\`code\\`](<https://example.org/a%3Eb%20c>)  \n" in page
    )
    assert "   1\\. no list \\# no heading \\<b\\> \\[31mred" in page
    assert "\x1b" not in page


def test_a_page_cannot_be_broken_either(headgate, mock):
    found = {"URL": "https://example.org/a", "title": ["[red]x[/red]\u202e\u2028 y"], "abstract": "[bold]z"}
    mock.fault("crossref", status=200, body={"message": {"total-results": 1, "items": [found]}})
    page = headgate("research", "[b]q[/b]", "--providers", "crossref", mock.option).out
    assert page.startswith("[b]q[/b]\n")
    assert "\n  1  [red]x[/red] y\n" in page
    assert "\n     [bold]z\n" in page


@pytest.mark.parametrize(("name", "begins"), [("a.md", "# water"), ("a.json", "{"), ("a.txt", "water"), ("a", "# wat")])
def test_it_writes_a_file_by_the_ending_of_its_name(headgate, mock, tmp_path, name, begins):
    target = tmp_path / name
    result = headgate("research", "water gates", "--max-results=3", "-o", target, mock.option)
    assert result.code == 0
    assert result.out.startswith("3 results from 2 of 2 providers in ")
    assert result.out.endswith(f"Written to {target}.\n")
    assert target.read_text().startswith(begins)
    assert [each.name for each in tmp_path.iterdir() if each.name != "state"] == [name]


def test_when_one_fails_the_page_says_why_and_the_code_is_3(headgate, mock, keys):
    mock.fault("google", trouble="forbidden", times=9)
    result = headgate("research", "water gates", "--providers", "google,tavily", mock.option)
    assert result.code == 3
    assert "10 results from 1 of 2 providers in " in result.out
    assert "google: answered 403 (auth): Method doesn't allow unregistered callers." in result.out


def test_with_a_file_the_reasons_are_told_beside_it(headgate, mock, keys, tmp_path):
    mock.fault("google", trouble="forbidden", times=9)
    result = headgate("research", "gates", "--providers=google,tavily", mock.option, "-o", tmp_path / "a.md")
    assert result.code == 3
    assert "headgate: google: answered 403" in result.err
    assert result.err.count("\n") == 2  # and that the key is retired


def test_a_file_that_cannot_be_written_is_one_sentence_and_code_3(headgate, mock, tmp_path):
    result = headgate("research", "gates", "--providers=crossref", mock.option, "-o", tmp_path / ("a" * 300))
    assert result.code == 3
    assert "choose another file with --output." in result.err


def test_nothing_found_is_code_3(headgate, mock):
    mock.fault("crossref", status=200, body={"message": {"items": []}})
    result = headgate("research", "gates", "--providers", "crossref", mock.option)
    assert result.code == 3
    assert "Nothing found (1 provider, " in result.out


def test_a_key_whose_day_is_spent_is_known_to_the_next_question_and_to_keys(headgate, mock, monkeypatch):
    monkeypatch.setenv("TAVILY_API_KEY", "key-number-one,key-number-two")
    mock.fault("tavily", trouble="quota", key="key-number-one")
    codes = [headgate("research", "gates", "--providers", "tavily", mock.option).code for _ in range(3)]
    assert codes == [0, 0, 0]
    assert mock.asked("tavily") == 4
    states = [json.loads(line) for line in headgate("keys", "--json").out.splitlines()]
    assert {each["label"]: each["state"] for each in states} == {
        "TAVILY_API_KEY-1": "resting",
        "TAVILY_API_KEY-2": "free",
    }


def test_who_has_no_key_left_is_told_where_they_can_be_freed(headgate, mock, monkeypatch):
    monkeypatch.setenv("TAVILY_API_KEY", "revoked-key-number-one")
    said = [headgate("research", "gates", "--providers", "tavily", mock.option).out for _ in range(2)]
    assert "tavily: answered 401" in said[0]
    assert "1 disabled: rejected by the server" in said[1]
    assert '"headgate keys"' in said[1]


def test_keys_may_come_from_a_file(headgate, mock, tmp_path):
    source = tmp_path / "keys.txt"
    source.write_text(f"main={CANARY}\n")
    source.chmod(0o600)
    result = headgate("research", "gates", "--providers", "tavily", f"--keys=tavily=file:{source}", mock.option)
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize("extra", [[], ["--json"], ["--format", "markdown"]], ids=["page", "json", "markdown"])
def test_a_canary_key_is_in_no_output(headgate, mock, keys, extra, caplog):
    for name in ("tavily", "perplexity"):
        mock.fault(name, status=400, body={"error": {"message": f"bad key {CANARY}"}}, times=9)
    body = {"items": [{"title": CANARY, "link": f"https://x.example/{CANARY}", "snippet": CANARY}]}
    mock.fault("google", status=200, body=body)
    result = headgate("research", f"what is {CANARY}?", "--providers", EVERYBODY, *extra, mock.option)
    assert result.code == 3
    assert "***" in result.out.replace("\\", "")
    assert CANARY not in result.out + result.err + caplog.text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["x", "--providers", "tavily"], "tavily needs a key: set the environment variable TAVILY_API_KEY"),
        (["x", "--providers", "altavista"], "unknown provider 'altavista'; the providers are tavily,"),
        (["x", "--providers", ","], "--providers is empty"),
        (["x", "--providers", "tavily", "--keys", f"tavily={CANARY}"], "env:NAME, file:PATH or cmd:WORDS"),
        (["x", "--keys", CANARY], "--keys, number 1: expected NAME="),
        (["x", "--base-url", "http://127.0.0.1"], "--base-url, number 1: expected NAME="),
        (["x", "--providers", "crossref", "--base-url", "crossref=ftp://x"], "base_url must be http://"),
        (["x", "--budget", "0"], "--budget must be above 0 s"),
        (["x", "--budget", "2h"], "at most 3600 s"),
        (["x", "-o", "/no/such/folder/a.md"], "does not exist"),
        (["  "], "question must be"),
        ([], "QUESTION"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_code_2(headgate, arguments, word):
    result = headgate("research", *arguments)
    assert (result.code, result.out) == (2, "")
    assert word in result.err
    assert result.err.count("\n") == 1
    assert CANARY not in result.err


def test_google_needs_to_know_its_engine(headgate, monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", CANARY)
    result = headgate("research", "x", "--providers", "google")
    assert result.code == 2
    assert "GOOGLE_CSE_ID" in result.err


def test_the_budget_ends_a_wait(headgate, mock):
    mock.fault("crossref", delay=60.0)
    result = headgate("research", "gates", "--providers=crossref,semantic_scholar", "--budget=2s", mock.option)
    assert result.code == 3
    assert "10 results from 1 of 2 providers" in result.out


def test_ctrl_c_ends_it_with_code_4_and_writes_nothing(headgate_process, mock, tmp_path):
    mock.fault("crossref", delay=60.0)
    target = tmp_path / "a.md"
    process = headgate_process("research", "gates", "--providers", "crossref", mock.option, "-o", target)
    while not mock.asked("crossref"):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (4, "", "\nheadgate: stopped.\n")
    assert not target.exists()


def test_a_terminal_sees_how_it_goes_and_a_pipe_does_not(headgate_process, mock):
    terminal, stderr = pty.openpty()
    try:
        process = headgate_process("research", "gates", "--providers", "crossref", mock.option, stderr=stderr)
        out, _ = process.communicate(timeout=60)
        os.close(stderr)
        shown = os.read(terminal, 65536).decode()
    finally:
        os.close(terminal)
    assert process.returncode == 0
    assert "crossref 10" in shown
    assert "\x1b" not in out


def test_what_the_library_would_log_is_told_in_a_sentence(headgate_process, mock, keys, monkeypatch, tmp_path):
    """In a process of its own: in this one, pytest listens to every log."""
    (tmp_path / "a file").touch()
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path / "a file" / "state"))
    process = headgate_process("research", "gates", "--providers", "tavily", mock.option)
    _, err = process.communicate(timeout=60)
    assert "headgate: cannot save key state; continuing without it: " in err
    assert all(line.startswith("headgate: ") for line in err.splitlines())
