"""Completion of a word on the command line, as a shell asks for it; ``make release-check`` asks with real shells."""

import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from headgate.cli import COMMANDS, group


def completed(*words):
    """What fits the last word."""
    found = ShellComplete(group, {}, "headgate", "_HEADGATE_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return [(item.type, item.value) for item in found]


def values(*words):
    return [value for _, value in completed(*words)]


def test_commands_with_what_they_do():
    found = ShellComplete(group, {}, "headgate", "_HEADGATE_COMPLETE").get_completions([], "")
    assert {item.value: item.help for item in found} == {name: entry.summary for name, entry in COMMANDS.items()}
    assert values("re") == ["research", "retry", "resume"]


def test_options_and_their_choices():
    assert values("run", "rows.jsonl", "--on") == ["--on-broken"]
    assert values("run", "rows.jsonl", "--on-broken", "d") == ["dead"]
    assert values("run", "rows.jsonl", "--to", "open") == ["openai", "openrouter"]
    assert values("proxy", "--to", "anth") == ["anthropic"]
    assert values("config", "") == ["run", "crawl", "proxy"]
    assert values("keys", "") == ["park", "free", "retire"]
    assert values("keys", "park", "") == []


@pytest.mark.parametrize(
    "words",
    [
        ("run", "ro"),
        ("run", "rows.jsonl", "-o", "ou"),
        ("run", "rows.jsonl", "-o", "out", "--template", ""),
        ("run", "rows.jsonl", "--config", ""),
        ("run", "rows.jsonl", "--report", ""),
        ("crawl", "--warc", ""),
        ("verify", ""),
        ("retry", ""),
        ("status", ""),
    ],
)
def test_files(words):
    assert completed(*words) == [("file", words[-1])]


def test_a_configuration_file_is_not_read_for_it(tmp_path, monkeypatch, capfd):
    (tmp_path / "headgate.toml").write_text('to = "openai"')
    monkeypatch.chdir(tmp_path)
    assert "--max-cost" in values("run", "rows.jsonl", "--max")
    assert capfd.readouterr().err == ""


def test_the_names_of_commands_are_completed_without_loading_them():
    code = (
        "import os, sys\n"
        "os.environ.update(_HEADGATE_COMPLETE='bash_complete', COMP_WORDS='headgate r', COMP_CWORD='1')\n"
        "from headgate.cli import execute; execute([])\n"
        "sys.exit(bool({'aiohttp', 'rich', 'headgate.cli.commands.run'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout.split()) == (0, ["plain,research", "plain,run", "plain,retry", "plain,resume"])
