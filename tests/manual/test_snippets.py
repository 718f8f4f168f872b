"""The manual's code runs as it is written, against a mock API in place of api.example.com."""

from __future__ import annotations

import ast
import asyncio
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.manual.pages import PAGES, ROOT, blocks

import headgate

SITE = ROOT / "tests" / "crawl" / "site"
OF_OTHER_TESTS = {"clusters.md", "page.md"}
"""tests/chaos/test_clusters.py runs one on real clusters, tests/web/test_docs.py the other behind a login."""
WITH_CODE = [name for name, text in PAGES.items() if blocks(text, "python") and name not in OF_OTHER_TESTS]


@contextmanager
def site() -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def close(value: Any) -> None:
    """Close a client, a limiter or a session that a page has left open."""
    done = value.aclose() if hasattr(value, "aclose") else value.close()
    if asyncio.iscoroutine(done):
        asyncio.run(done)


def can_be_closed(value: Any) -> bool:
    return not isinstance(value, type | ModuleType) and (hasattr(value, "close") or hasattr(value, "aclose"))


class Names(dict[str, Any]):
    """The names of a page, and everything that it has made and must be closed: also what it has given the same name."""

    def __init__(self) -> None:
        super().__init__(__name__="__main__")
        self.made: list[Any] = []

    def remember(self) -> None:
        self.made += [value for value in self.values() if can_be_closed(value) and value not in self.made]


def of_clients(names: Names, here: Path, out: str) -> None:
    assert asyncio.run(names["one_page"]())
    assert [type(one).__module__.partition(".")[0] for one in names.made[:4]] == [
        "openai",
        "anthropic",
        "httpx2",
        "httpx2",
    ]


def of_frameworks(names: Names, here: Path, out: str) -> None:
    assert names["limiter"].limiter.key_status("langchain").sent == 1


def of_limiter(names: Names, here: Path, out: str) -> None:
    assert len(names["pages"]) == 20
    assert "api.example.com: " in out


def of_watching(names: Names, here: Path, out: str) -> None:
    assert "api.example.com" in (here / "run.html").read_text(encoding="utf-8")


def of_mock(names: Names, here: Path, out: str) -> None:
    assert out.count("This is made up.") == 2


def of_crawl(names: Names, here: Path, out: str) -> None:
    assert 1 <= len((here / "pages.jsonl").read_text().splitlines()) <= 2


def of_batches(names: Names, here: Path, out: str) -> None:
    assert "2 done, 0 failed" in out


CHECKS = {
    "batch-runner.md": of_batches,
    "crawl.md": of_crawl,
    "frameworks.md": of_frameworks,
    "limiter.md": of_limiter,
    "mock.md": of_mock,
    "sdk.md": of_clients,
    "watching.md": of_watching,
}
"""What a page's code has done, beyond running to its end."""


@pytest.mark.parametrize("name", WITH_CODE)
def test_a_pages_code_runs(
    name: str,
    mock_api: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    monkeypatch.setitem(sys.modules, "h2", None)  # an extra that a newcomer does not have
    for vendor, path in (("OPENAI", "openai/v1"), ("ANTHROPIC", "anthropic")):
        monkeypatch.setenv(f"{vendor}_BASE_URL", f"{mock_api}/{path}")
        monkeypatch.setenv(f"{vendor}_API_KEY", "sesame-of-this-test")
    names = Names()
    programs = [
        block for block in blocks(PAGES[name], "python") if "@app.task" not in block
    ]  # tests/issues/test_recipes
    with site() as address:
        instead = {
            "https://api.example.com": mock_api,
            "http://127.0.0.1:8080": mock_api,
            "https://docs.example.org/": address,
            "CrawlConfig(": "CrawlConfig(allow_private=True, ",
        }
        if any("redis://cache:6379" in program for program in programs):
            instead["redis://cache:6379"] = request.getfixturevalue("redis_server").url
        for program in programs:
            for line in statements(program):
                for old, new in instead.items():
                    line = line.replace(old, new)
                exec(compile(line, f"docs/{name}", "exec"), names)
                names.remember()
        if name in CHECKS:
            CHECKS[name](names, tmp_path, capsys.readouterr().out)
    for value in names.made:
        close(value)
    headgate.get_resilience_manager().on_event = None
    headgate.reset_resilience_manager_for_testing()


def statements(program: str) -> list[str]:
    """The statements of a program one by one, so that what a name meant before can be closed too."""
    lines = program.splitlines(keepends=True)
    starts = [
        min([each.lineno, *(one.lineno for one in getattr(each, "decorator_list", []))])
        for each in ast.parse(program).body
    ]
    return [
        "\n" * (start - 1) + "".join(lines[start - 1 : end - 1])
        for start, end in zip(starts, [*starts[1:], len(lines) + 1], strict=True)
    ]


def test_the_first_five_minutes(mock_api: str, tmp_path: Path) -> None:
    """What a newcomer types in a shell, from the table to the proof."""
    script = "set -e\n" + "\n".join(blocks(PAGES["get-started.md"], "sh"))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    typed = script.replace("http://127.0.0.1:8080", mock_api)
    done = subprocess.run(
        [shutil.which("bash") or "bash", "-c", typed],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 3
    assert "3 done" in done.stdout + done.stderr
