"""The programs in examples/ run against a mock API. (Celery's and Ray's: tests/integrations, in the chaos suite.)"""

from __future__ import annotations

import asyncio
import csv
import http.server
import importlib.util
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

import headgate
from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import Rate

EXAMPLES = Path(__file__).parents[1] / "examples"
SITE = Path(__file__).parent / "crawl" / "site"
OF_CLUSTERS = {"celery_tasks.py", "ray_batch.py", "ray_tasks.py", "spark_batch.py"}
Example = Callable[..., Any]


@contextmanager
def served(**plan: Any) -> Iterator[MockServer]:
    ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    servers: list[MockServer] = []

    async def serve() -> None:
        async with MockServer(MockPlan(**{"latency": 0.0, **plan}), providers=("openai",), seed=1) as server:
            servers.append(server)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield servers[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Example]:
    """``example("name.py", url)``: the program as a module, with this API."""

    def load(name: str, url: str) -> Any:
        monkeypatch.setenv("API", url.rstrip("/"))
        spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), EXAMPLES / name)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    headgate.reset_resilience_manager_for_testing()


def test_every_example_is_listed_and_tested() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    listed = set(re.findall(r"`(\w+\.py)`", (EXAMPLES / "README.md").read_text(encoding="utf-8")))
    assert listed == names
    assert names - OF_CLUSTERS <= set(re.findall(r'"(\w+\.py)"', Path(__file__).read_text(encoding="utf-8")))


def test_a_service(example: Example) -> None:
    async def main(module: Any) -> tuple[Any, Any]:
        async with TestClient(TestServer(module.service())) as client:
            answers = await asyncio.gather(*(client.post("/ask", json={"question": f"{n}?"}) for n in range(5)))
            return [(await one.json())["answer"] for one in answers], await (await client.get("/health")).json()

    with served(rate=Rate(100, 1.0)) as api:
        answers, keys = asyncio.run(main(example("openai_service.py", api.url)))
    assert len(answers) == 5
    assert all(answers)
    assert [one["key"].endswith("gpt-4o-mini") for one in keys] == [True]


def test_a_service_refuses_what_would_wait_too_long(example: Example) -> None:
    async def main(module: Any) -> Any:
        app = module.service()
        async with TestClient(TestServer(app)) as client:
            app[module.PASSING].limiter.pause(f"{module.API.split('/')[2]}/gpt-4o-mini", 100.0)
            return await client.post("/ask", json={"question": "?"})

    with served(rate=Rate(100, 1.0)) as api:
        answer = asyncio.run(main(example("openai_service.py", api.url)))
    assert answer.status == 503
    assert 90 <= int(answer.headers["Retry-After"]) <= 100


def test_a_csv(example: Example, tmp_path: Path) -> None:
    source, target = tmp_path / "cities.csv", tmp_path / "answers.csv"
    source.write_text("id,city\n1,Delft\n2,Leeds\n3,Kyoto\n")
    with served(rate=Rate(100, 1.0)) as api:
        module = example("csv_batch.py", api.url)
        first = asyncio.run(module.run(source, target))
        again = asyncio.run(module.run(source, target))
    with target.open(newline="") as file:
        rows = list(csv.reader(file))
    assert (first.done, first.dead, again.skipped) == (3, 0, 3)
    assert sorted(row[1] for row in rows) == ["Delft", "Kyoto", "Leeds"]
    assert all(row[2] for row in rows)


def test_several_keys(example: Example) -> None:
    with served(rate=Rate(200, 1.0)) as api:
        module = example("several_keys.py", api.url)
        used = module.main(30)
    assert used.total() == 30
    assert len(used) == 3


def test_langchain(example: Example) -> None:
    with served(rate=Rate(100, 1.0)) as api:
        said = example("langchain_model.py", api.url).main(["Delft", "Leeds"])
    assert len(said) == 2
    assert all(said)


def test_a_local_server(example: Example) -> None:
    with served(algorithm="concurrency", at_once=8, latency=0.01) as api:
        answered, status = asyncio.run(example("local_server.py", api.url).main(60))
    assert answered == 60
    assert status.refused < 30


def test_agents(example: Example) -> None:
    with served(rate=Rate(100, 1.0)) as api:
        notes = asyncio.run(example("agent_loop.py", api.url).main(["one", "another"]))
    assert [len(one) for one in notes] == [3, 3]
    assert not [note for one in notes for note in one if "failed" in note]


def test_a_crawler(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

    monkeypatch.setenv("ALLOW_PRIVATE", "1")
    output = tmp_path / "pages.jsonl"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        module = example("site_crawler.py", "")
        languages, _ = asyncio.run(module.main(f"http://127.0.0.1:{server.server_port}/", str(output)))
        server.shutdown()
        thread.join()
    pages = [json.loads(line) for line in output.read_text().splitlines()]
    assert languages.total() == len(pages) >= 3
    assert all(page["metadata"]["words"] > 0 for page in pages)
