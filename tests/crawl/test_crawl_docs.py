"""docs/crawl.md names only options that exist, ACCEPTANCE.md only tests that exist."""

import re
from pathlib import Path

import click
import pytest

from headgate.cli.commands.crawl import command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "crawl.md").read_text(encoding="utf-8")
ACCEPTANCE = Path(__file__).with_name("ACCEPTANCE.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", ACCEPTANCE)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_test_that_is_named_is_there(file, name):
    assert re.search(rf"^\s*def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_whole_list_has_its_tests():
    assert len(NAMED) >= 20


def test_every_option_that_is_named_is_there():
    options = {option for one in command.params if isinstance(one, click.Option) for option in one.opts}
    named = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", PAGE)) - {"--bind"}
    assert named <= options
