"""The README's code runs as it stands, against a mock API in place of api.example.com."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import headgate
from headgate import RateLimitConfig
from headgate.sim.api import MockPlan
from headgate.sim.notation import Rate
from headgate.sim.server import MockServer

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def mock_api() -> Iterator[str]:
    """A mock API on loopback, served from a thread of its own."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    address: list[str] = []

    async def serve(stop: asyncio.Event) -> None:
        async with MockServer(MockPlan(rate=Rate(1000, 1.0)), seed=1) as server:
            address.append(server.url)
            ready.set()
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(stop)))
    thread.start()
    assert ready.wait(10)
    yield address[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def test_the_readme_runs(mock_api: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block.replace("https://api.example.com", mock_api.rstrip("/")), "README.md", "exec"), names)
    assert len(names["pages"]) == 20  # type: ignore[arg-type]
    assert "api.example.com: " in capsys.readouterr().out


def test_the_readme_names_every_setting_with_its_default() -> None:
    text = README.read_text(encoding="utf-8")
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
