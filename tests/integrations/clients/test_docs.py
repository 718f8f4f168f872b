"""What docs/integrations.md says about these clients runs as it stands, with a server in place of api.example.com."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[3] / "docs" / "integrations.md").read_text(encoding="utf-8")


@pytest.fixture
def client():
    return "requests"


def run(lab, heading):
    part = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    names = {}
    for block in re.findall(r"```python\n(.*?)```", part, re.DOTALL):
        exec(compile(block.replace("https://api.example.com", lab.home.origin), "integrations.md", "exec"), names)
    assert names, f"no code under {heading}"
    return names


def test_clients(lab):
    names = run(lab, "aiohttp, requests and urllib3")
    assert asyncio.run(names["one_page"]()) == b"{}"
    names["session"].close()
    names["http"].clear()
    assert [seen.path for seen in lab.sent] == ["/v1/items"] * 3


def test_langchain(lab):
    names = run(lab, "LangChain")
    assert names["limiter"].limiter.key_status("langchain").sent == 1
    names["limiter"].limiter.close()
