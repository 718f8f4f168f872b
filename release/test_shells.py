"""Completion in real shells, set up as docs/configuration.md says."""

from __future__ import annotations

import re

import pytest

from .conftest import PROJECT, run, tool

PAGE = (PROJECT / "docs" / "configuration.md").read_text(encoding="utf-8")


def set_up(shell: str) -> str:
    """The line for this shell in the manual, as it is."""
    (line,) = re.findall(rf"^\| {shell} \| `~/[^`]*` \| `(.+)` \|$", PAGE, re.MULTILINE)
    return line.replace("\\|", "|")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "other.txt").touch()
    return tmp_path


def completions(shell: str, install, clean, folder, *words: str) -> list[str]:
    """What the shell would offer for the last word."""
    environment = clean | {"PATH": f"{install()}:{clean['PATH']}", "TERM": "dumb", "HOME": str(folder / "home")}
    typed = " ".join(words)
    script = {
        "bash": f"""{set_up("bash")}
            complete -p headgate | grep -q _headgate_completion || exit 9
            compopt() {{ [[ $* == *default* ]] && compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"; }}
            COMP_WORDS=({typed.rstrip()}{" ''" if words[-1] == "" else ""}) COMP_CWORD={len(words) - 1}
            _headgate_completion headgate
            for one in "${{COMPREPLY[@]}}"; do echo "$one"; done""",
        "zsh": f"""autoload -Uz compinit && compinit -u
            {set_up("zsh")}
            [[ -n ${{_comps[headgate]}} ]] || exit 9
            _describe() {{ for one in "${{(@P)3}}"; do print -r -- "${{one%%:*}}"; done }}
            compadd() {{ print -rl -- "${{(@P)@[-1]}}" }}
            _path_files() {{ print -rl -- ${{words[CURRENT]}}*(N) }}
            words=({typed.rstrip()}{" ''" if words[-1] == "" else ""}) CURRENT={len(words)}
            _headgate_completion""",
        "fish": f"""{set_up("fish")}
            complete -C '{typed}'""",
    }[shell]
    flags = {"bash": ["--norc", "-c"], "zsh": ["-f", "-c"], "fish": ["--no-config", "-c"]}[shell]
    said = run(tool(shell), *flags, script, env=environment, cwd=folder)
    return [re.split(r"[\t ]", line)[0] for line in said.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
class TestShell:
    def test_commands(self, shell, install, clean, folder):
        assert {"research", "retry"} <= set(completions(shell, install, clean, folder, "headgate", "re"))

    def test_options(self, shell, install, clean, folder):
        assert "--on-broken" in completions(shell, install, clean, folder, "headgate", "run", "rows.jsonl", "--on")

    def test_choices(self, shell, install, clean, folder):
        words = ("headgate", "run", "rows.jsonl", "--to", "open")
        assert {"openai", "openrouter"} <= set(completions(shell, install, clean, folder, *words))

    def test_files(self, shell, install, clean, folder):
        assert "rows.jsonl" in completions(shell, install, clean, folder, "headgate", "run", "ro")
