"""The page about the mock: its examples run as they stand."""

import asyncio
import re
from pathlib import Path

import pytest

from headgate.mock.api import MockPlan
from headgate.mock.llm import LANGUAGE_APIS
from headgate.mock.server import MockServer

PAGE = (Path(__file__).parents[3] / "docs" / "mock.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.split()[1])
def test_an_example_runs(example, capsys):
    async def main():
        async with MockServer(MockPlan(latency=0.0), providers=tuple(LANGUAGE_APIS)) as server:
            script = example.replace("http://127.0.0.1:8080", server.url) + "\nclient.close()\n"
            await asyncio.to_thread(exec, script, {})

    asyncio.run(main())
    assert "This is made up." in capsys.readouterr().out


@pytest.mark.parametrize("name", LANGUAGE_APIS)
def test_every_trouble_on_the_page_can_be_scripted(name):
    named = re.search(r"\| `trouble` \| (.*?):", PAGE)[1]
    for trouble in re.findall(r"`(\w+)`", named):
        assert LANGUAGE_APIS[name].refuse(trouble).status >= 400
