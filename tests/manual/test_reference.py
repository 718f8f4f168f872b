"""Every public name, command, option and metric has its entry in the manual."""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import click
import pytest
from tests.manual.pages import DOCS, PAGES, ROOT

import headgate
from headgate.batch.config import BatchConfig
from headgate.cli import COMMANDS, group
from headgate.controllers import CONTROLLERS
from headgate.mock import dialects as mock_dialects
from headgate.observe.exporters.metrics import METRICS
from headgate.wire import dialects

ENTRIES = re.findall(r"^::: headgate\.(\w+)$", PAGES["reference/python.md"], re.MULTILINE)
VENDORS = {"openai_client", "async_openai_client", "anthropic_client", "async_anthropic_client"}
"""Public, but not in ``__all__``: they need the vendor's package."""


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_hooks", DOCS / "build_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_an_entry_and_no_other() -> None:
    assert sorted(ENTRIES) == sorted({*headgate.__all__, *VENDORS} - {"__version__"})
    assert "`headgate.__version__`" in PAGES["reference/python.md"]


def docstring(name: str) -> str:
    """Of a name; of a vendor's client from the source, since importing the vendor's package takes a second."""
    if name not in VENDORS:
        return getattr(headgate, name).__doc__ or ""
    spec = importlib.util.find_spec(f"headgate.integrations.{name.removeprefix('async_').removesuffix('_client')}")
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
    return ""


def test_every_entry_has_a_docstring_of_its_own() -> None:
    said = {name: docstring(name) for name in ENTRIES if not name.isupper()}
    assert [name for name, text in said.items() if not text.strip() or text.startswith(f"{name}(")] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_reference(name: str, hooks: ModuleType) -> None:
    page = hooks.on_page_markdown(PAGES["reference/cli.md"])
    section = page.partition(f"### headgate {name}\n")[2].partition("\n### ")[0]
    command = group.get_command(click.Context(group), name)
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for option in parameter.opts:
                assert re.search(rf"^\| `[^|]*{re.escape(option)}\b", section, re.MULTILINE), option


def test_every_strategy_is_in_the_manual() -> None:
    missing = [name for name in CONTROLLERS if f"`{name}`" not in PAGES["limiter.md"]]
    assert not missing, 'name these strategies in docs/limiter.md, "Your own strategy"'


def test_every_vendor_is_in_the_manual() -> None:
    vendors = [dialect.title for dialect in dialects.DIALECTS if dialect.hosts]
    missing = [title for title in vendors if title.removeprefix("Google ") not in PAGES["limiter.md"]]
    assert not missing, 'name these vendors in docs/limiter.md, "What it reads"'


def test_every_dialect_of_the_mock_is_in_the_manual() -> None:
    missing = [name for name in mock_dialects.DIALECTS if f'| `"{name}"` |' not in PAGES["scenarios.md"]]
    assert not missing, 'give these dialects a row in docs/scenarios.md, "What the server says"'


def test_every_setting_of_a_batch_is_in_the_manual() -> None:
    missing = [field.name for field in fields(BatchConfig) if field.name not in PAGES["batch-runner.md"]]
    assert not missing, "describe these settings of BatchConfig in docs/batch-runner.md"


def test_every_metric_is_in_the_manual(hooks: ModuleType) -> None:
    page = hooks.on_page_markdown(PAGES["metrics.md"])
    told = re.findall(r"^\| `(headgate_\w+)` \| (\w+) \| ([\w, ]+) \| ", page, re.MULTILINE)
    assert told == [
        (info.name + "_total" * (info.kind == "counter"), info.kind, ", ".join(info.labels)) for info in METRICS
    ]


def test_every_alert_is_explained() -> None:
    rules = (ROOT / "ops" / "headgate.rules.yml").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `(Headgate\w+)` \|", PAGES["metrics.md"], re.MULTILINE)
    assert explained == re.findall(r"- alert: (\w+)", rules)
