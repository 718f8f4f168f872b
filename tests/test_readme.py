"""The README's code runs as it stands, against a mock API in place of api.example.com."""

from __future__ import annotations

import asyncio
import http.server
import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest

import headgate
from headgate import RateLimitConfig
from headgate.cli import execute
from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import Rate

README = Path(__file__).parents[1] / "README.md"
SITE = Path(__file__).parent / "crawl" / "site"


@pytest.fixture
def mock_api() -> Iterator[str]:
    """A mock API on loopback, served from a thread of its own."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    address: list[str] = []

    async def serve(stop: asyncio.Event) -> None:
        async with MockServer(MockPlan(rate=Rate(1000, 1.0)), providers=("openai",), seed=1) as server:
            address.append(server.url)
            ready.set()
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(stop)))
    thread.start()
    assert ready.wait(60)
    yield address[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


@pytest.fixture(autouse=True)
def openai_here(mock_api: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where OpenAI is, for its own client and for ours."""
    address = f"{mock_api.rstrip('/')}/openai/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mock-0123456789")
    return address


def first_screen() -> str:
    """What it is, one command, one picture and the five uses."""
    return README.read_text(encoding="utf-8").split("\n## Try it")[0]


def command(name: str, **instead: str) -> list[str]:
    """The words of the README's first ``headgate NAME ...``, with other addresses in it."""
    (line,) = re.findall(rf"^\$ (headgate {name} .*)$", first_screen(), re.MULTILINE)
    return [instead.get(word, word) for word in shlex.split(line)[1:]]


def test_a_file_of_requests(openai_here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Good day"}]}
    row = {"method": "POST", "url": "/v1/chat/completions", "body": body}
    rows = [json.dumps({"custom_id": f"r{number}", **row}) for number in range(5)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    assert execute([*command("run", openai=openai_here), "--keys", "env:OPENAI_API_KEY"]) == 0
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert {answer["response"]["status_code"] for answer in answers} == {200}
    assert {answer["custom_id"] for answer in answers} == {f"r{number}" for number in range(5)}


def test_an_sdk_and_any_function(mock_api: str) -> None:
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", first_screen(), re.DOTALL):
        exec(compile(block.replace("https://api.example.com", mock_api.rstrip("/")), "README.md", "exec"), names)
    with names["client"] as client:  # type: ignore[attr-defined]
        assert client.responses.create(model="gpt-4o-mini", input="Good day").output_text
    assert len(names["items"]) == 5  # type: ignore[arg-type]


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


def test_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with site() as address:
        words = command("crawl", **{"https://docs.example.org/": address})
        assert execute([*words, "--allow-private", "--max-pages", "3"]) == 0
    pages = [json.loads(line) for line in (tmp_path / "pages.jsonl").read_text().splitlines()]
    assert 1 <= len(pages) <= 3
    assert len({page["url"] for page in pages}) == len(pages)


def test_any_language(openai_here: str) -> None:
    words = [*command("proxy", openai=openai_here), "--keys", "env:OPENAI_API_KEY", "--port", "0", "--json"]
    proxy = subprocess.Popen([sys.executable, "-m", "headgate", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert proxy.stdout is not None
        told = proxy.stdout.readline()
        assert told, f"it ended with {proxy.wait(60)}"
        here = json.loads(told)["targets"][0]["base_url"]
        assert "$ export OPENAI_BASE_URL=http://127.0.0.1:8747/v1 " in first_screen()
        question = json.dumps({"model": "gpt-4o-mini", "input": "Good day"}).encode()
        headers = {"Content-Type": "application/json"}  # and no key
        request = urllib.request.Request(f"{here}/responses", question, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["usage"]["total_tokens"] > 0
    finally:
        proxy.send_signal(signal.SIGINT)
        proxy.communicate(timeout=20)
    assert proxy.returncode == 0


def test_the_readme_runs(mock_api: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block.replace("https://api.example.com", mock_api.rstrip("/")), "README.md", "exec"), names)
    out = capsys.readouterr().out
    assert "api.example.com: " in out
    assert "100 done, 0 failed" in out


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 200


def test_the_manual_names_every_setting_with_its_default() -> None:
    text = (README.parent / "docs" / "limiter.md").read_text(encoding="utf-8")
    for setting in fields(RateLimitConfig):
        assert f"`{setting.name}`" in text, setting.name


def test_the_architecture_speaks_of_every_room() -> None:
    text = (README.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    package = Path(headgate.__file__).parent
    rooms = [path.relative_to(package) for path in package.rglob("*.py") if not path.name.startswith("_")]
    missing = [
        room for room in rooms if room.name not in text and not any(f"{part}/" in text for part in room.parts[:-1])
    ]
    assert not missing
