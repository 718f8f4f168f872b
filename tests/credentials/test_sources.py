"""Credentials from the environment, a file or a command."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

import pytest

from headgate.credentials import Credential, credentials_from, sources
from headgate.errors import ConfigError


def kept(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return f"file:{path}"


def pairs(found: list[Credential]) -> list[tuple[str, str]]:
    return [(one.label, one.secret) for one in found]


class TestEnvironment:
    def test_one_several_and_numbered_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("API_KEY", " sk-a ")
        assert pairs(credentials_from("env:API_KEY")) == [("API_KEY", "sk-a")]
        monkeypatch.setenv("API_KEY", "sk-a, sk-b\nsk-c,")
        monkeypatch.setenv("API_KEY_1", "sk-d")
        monkeypatch.setenv("API_KEY_2", "sk-e")
        monkeypatch.setenv("API_KEY_4", "not in the row")
        assert pairs(credentials_from("env:API_KEY")) == [
            ("API_KEY-1", "sk-a"),
            ("API_KEY-2", "sk-b"),
            ("API_KEY-3", "sk-c"),
            ("API_KEY_1", "sk-d"),
            ("API_KEY_2", "sk-e"),
        ]

    def test_numbered_ones_alone_will_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("API_KEY", raising=False)
        monkeypatch.setenv("API_KEY_1", "sk-d")
        assert pairs(credentials_from("env:API_KEY")) == [("API_KEY_1", "sk-d")]

    def test_none_at_all_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("API_KEY", " , ")
        with pytest.raises(ConfigError, match="API_KEY"):
            credentials_from("env:API_KEY")


class TestFile:
    def test_lines(self, tmp_path: Path) -> None:
        text = "\ufeff# mine\n\nalice = sk-1\nbob=a=b==\n  sk-bare  \nYWJj==\n=with=equals\n"
        assert pairs(credentials_from(kept(tmp_path / "keys.txt", text))) == [
            ("alice", "sk-1"),
            ("bob", "a=b=="),
            ("", "sk-bare"),
            ("", "YWJj=="),
            ("", "with=equals"),
        ]

    def test_toml_with_groups(self, tmp_path: Path) -> None:
        text = 'alice = "sk-1"\n[bob]\nsecret = "sk-2"\ngroup = "org"\n'
        assert credentials_from(kept(tmp_path / "keys.toml", text)) == [
            Credential("alice", "sk-1"),
            Credential("bob", "sk-2", "org"),
        ]

    @pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
    @pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
    def test_one_that_others_can_read_gets_a_warning(
        self, tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        source = kept(tmp_path / "keys.txt", "sk-1", mode)
        assert pairs(credentials_from(source)) == [("", "sk-1")]
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "chmod 600" in caplog.text

    def test_one_that_only_its_owner_can_read_gets_none(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        credentials_from(kept(tmp_path / "keys.txt", "sk-1"))
        assert not caplog.records

    @pytest.mark.parametrize(
        ("name", "text", "complaint"),
        [
            ("keys.txt", "# none\n", "has no credentials"),
            ("keys.toml", "", "has no credentials"),
            ("keys.toml", "a = ", "not valid TOML"),
            ("keys.toml", "a = 7", "expected entries label"),
            ("keys.toml", "[a]\nsecret = 7", "entry 1"),
            ("keys.txt", "a=" + "x" * 70_000, "entry 1: a credential's secret"),
            ("keys.txt", "x" * (1024 * 1024 + 1), "longer than"),
        ],
    )
    def test_what_cannot_be_read_is_said(self, tmp_path: Path, name: str, text: str, complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            credentials_from(kept(tmp_path / name, text))

    def test_no_file_and_no_text(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError):
            credentials_from(f"file:{tmp_path / 'none'}")
        (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
        (tmp_path / "bytes").chmod(0o600)
        with pytest.raises(ConfigError, match="UTF-8"):
            credentials_from(f"file:{tmp_path / 'bytes'}")


class TestCommand:
    @staticmethod
    def python(code: str) -> str:
        return f"cmd:{sys.executable} -c '{code}'"

    def test_what_it_prints_is_read_like_lines(self) -> None:
        assert pairs(credentials_from(self.python('print("alice=sk-1"); print("sk-2")'))) == [
            ("alice", "sk-1"),
            ("", "sk-2"),
        ]

    def test_there_is_no_shell(self, tmp_path: Path) -> None:
        found = credentials_from(f"cmd:echo sk-1; touch {tmp_path}/made $(id)")
        assert pairs(found) == [("", f"sk-1; touch {tmp_path}/made $(id)")]
        assert not (tmp_path / "made").exists()

    @pytest.mark.parametrize("words", ["/no/such/command", "'open quote", '""'])
    def test_one_that_cannot_be_started_is_said(self, words: str) -> None:
        with pytest.raises(ConfigError, match="cannot be started"):
            credentials_from(f"cmd:{words}")

    def test_one_that_fails_is_said(self) -> None:
        with pytest.raises(ConfigError, match="exited with 3"):
            credentials_from(self.python("raise SystemExit(3)"))

    def test_one_that_prints_too_much_is_stopped(self) -> None:
        started_at = time.monotonic()
        with pytest.raises(ConfigError, match="longer than"):
            credentials_from(self.python('while True: print("x" * 10000)'))
        assert time.monotonic() - started_at < 30

    @pytest.mark.parametrize(
        "code",
        [
            "import time; time.sleep(60)",
            "import os, time; os.close(1); time.sleep(60)",
            'import subprocess; subprocess.Popen(["sleep", "60"])',
        ],
    )
    def test_one_that_does_not_end_is_stopped_with_all_it_started(
        self, code: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sources, "LONGEST_COMMAND", 0.7)
        started_at = time.monotonic()
        with pytest.raises(ConfigError, match=r"took longer than 0\.7 s|has no credentials"):
            credentials_from(self.python(code))
        assert time.monotonic() - started_at < 30


@pytest.mark.parametrize("text", ["sk-live-123", "", "env:", "file: ", "sk:live", "ENV:x"])
def test_what_is_no_source_is_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match="env:NAME, file:PATH or cmd:WORDS") as caught:
        credentials_from(text)
    assert "live" not in str(caught.value)
