"""The page about the mock names only errors that can be scripted. (tests/manual runs its examples.)"""

import re
from pathlib import Path

import pytest

from headgate.mock.llm import LANGUAGE_APIS

PAGE = (Path(__file__).parents[3] / "docs" / "mock.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", LANGUAGE_APIS)
def test_every_trouble_on_the_page_can_be_scripted(name):
    named = re.search(r"\| `trouble` \| (.*?):", PAGE)[1]
    for trouble in re.findall(r"`(\w+)`", named):
        assert LANGUAGE_APIS[name].refuse(trouble).status >= 400
