"""``headgate config``: it shows what is in force, and no secret."""

import json
import re
from pathlib import Path

import pytest

from headgate.cli.commands.config import VARIABLES


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path


def test_without_any_file(headgate, here):
    said = headgate("config")
    assert said.code == 0
    assert f"{here / 'home' / 'headgate' / 'headgate.toml'}  not found (your own)" in said.out
    assert "looked for headgate.toml, and [tool.headgate] in pyproject.toml, in 1 folder" in said.out
    assert "Options of headgate run: all defaults" in said.out
    assert said.err == ""


def test_one_command_shows_all_of_its_options(headgate, here):
    (here / "headgate.toml").write_text('deadline = "2h"\n')
    said = headgate("config", "run")
    rows = {line.split()[0]: line.split()[1:] for line in said.out.splitlines() if line.startswith("--")}
    assert rows["--deadline"] == ["2h", "headgate.toml"]
    assert rows["--store"] == ["machine", "default"]
    assert rows["--to"] == ["not", "set", "(required)"]
    assert rows["--ledger"] == ["default"]
    assert "headgate crawl" not in said.out


def test_secrets_are_not_shown(headgate, here, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen-1")
    monkeypatch.setenv("HEADGATE_PROXY_TOKEN", "token-not-to-be-seen-2")
    monkeypatch.setenv("HEADGATE_STORE", "redis://user:not-to-be-seen-3@cache:6379")
    (here / "own.toml").write_text('keys = ["cmd:echo not-to-be-seen-4", "env:KEY"]\n')
    for form in ([], ["--json"]):
        said = headgate("config", "--config", "own.toml", *form)
        assert said.code == 0
        assert "not-to-be-seen" not in said.out + said.err
        assert "redis://***@cache:6379" in said.out
        assert "cmd: ..., env:KEY" in said.out
    found = json.loads(said.out)
    assert found["variables"]["OPENAI_API_KEY"] == found["variables"]["HEADGATE_PROXY_TOKEN"] == "(set)"
    assert found["files"] == [{"path": "own.toml", "kind": "chosen", "read": True}]


def test_the_manual_names_every_variable():
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(HEADGATE_\w+)` \|", page, re.MULTILINE)) == set(VARIABLES)


def test_no_file_is_read_if_so_asked(headgate, here):
    (here / "headgate.toml").write_text("this is = no TOML =\n")
    said = headgate("config", "--config", "none")
    assert said.code == 0
    assert "no file is read" in said.out
