"""A key that was put where a name belongs, ``--keys env:$OPENAI_API_KEY``, is not repeated by any message."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate import ConfigError, Credential, CredentialCoordinator, credentials_from
from headgate.cli import execute
from headgate.cli.ui.terminal import USAGE

KEY = "Zq9plaincanary0123456789"
"""Without a shape that any vendor's keys have."""
ROW = '{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": []}}\n'
TO = "http://127.0.0.1:9/v1"
SOURCES = [
    KEY,
    f"env:{KEY}",
    f"env:${KEY}",
    f"env:{KEY}=x",
    f"file:{KEY}",
    f"file:/x/{KEY}",
    f"file:{KEY}\0",
    f"cmd:{KEY}",
]
COMMANDS = {
    "run": ["run", "rows.jsonl", "-o", "out.jsonl", "--to", TO, "--keys", "{}"],
    "crawl": ["crawl", TO, "-o", "pages.jsonl", "--keys", "{}"],
    "crawl of an origin": ["crawl", TO, "-o", "pages.jsonl", "--keys", "https://host={}"],
    "proxy": ["proxy", "--to", TO, "--keys", "{}"],
    "proxy of a target": ["proxy", "--to", f"a={TO}", "--to", "b=http://127.0.0.2:9/v1", "--keys", "a={}"],
    "research": ["research", "question", "--providers", "tavily", "--keys", "tavily={}"],
    "keys": ["keys", "--from", "{}"],
}
ELSEWHERE = [
    ["run", "rows.jsonl", "-o", "out.jsonl", "--to", TO, KEY],
    ["crawl", TO, "-o", "pages.jsonl", "--keys", "env:HELD", "--key-header", f"Authorization: Bearer {KEY}"],
    ["keys", KEY],
    ["keys", "free", KEY],
    ["keys", "park", KEY, "--for", "1m"],
    ["keys", "park", "key-1", "--for", KEY],
    ["keys", "free", "key-1", KEY],
    ["keys", "--state", f"redis://user:{KEY}@host:port"],
    ["limits", TO, "--bearer-env", KEY],
    ["limits", TO, "-H", KEY],
    ["limits", TO, "-H", f"Authorization: Bearer ${KEY}"],
    ["limits", TO, KEY],
    ["mock", "--key", KEY],
    ["proxy", "--to", KEY],
]


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HELD", "a-key-that-is-set")
    Path("rows.jsonl").write_text(ROW)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_source_that_is_a_key(command: str, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = COMMANDS[command]
    assert execute([word.replace("{}", source) for word in words]) == USAGE
    said = "".join(capsys.readouterr())
    assert KEY not in said
    assert words[-2] in said  # the option


@pytest.mark.parametrize("words", ELSEWHERE, ids=lambda words: " ".join(words).replace(KEY, "KEY"))
def test_a_key_anywhere_else(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(words) == USAGE
    assert KEY not in "".join(capsys.readouterr())


@pytest.mark.parametrize("source", SOURCES)
def test_the_library_does_not_repeat_it_either(source: str) -> None:
    with pytest.raises(ConfigError) as caught:
        credentials_from(source)
    assert KEY not in str(caught.value)


def test_a_variable_that_is_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", "")
    with pytest.raises(ConfigError, match="SEARCH_KEY"):
        credentials_from("env:SEARCH_KEY")


@pytest.mark.parametrize("name", ["retire", "free", "back_in", "paced_by"])
def test_a_coordinator_does_not_repeat_a_name_it_does_not_know(name: str) -> None:
    keys = CredentialCoordinator([Credential("mine", "sk-of-mine")])
    with pytest.raises(ConfigError) as caught:
        getattr(keys, name)(KEY)
    assert KEY not in str(caught.value)
    assert "mine" in str(caught.value)
