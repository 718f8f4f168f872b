"""The JSON schema of the configuration file: made from the options, and its copy in docs/ is current."""

import json
from pathlib import Path

import click

from headgate.cli import group
from headgate.cli.ui.config_file import COMMANDS, option_names

COPY = Path(__file__).parents[3] / "docs" / "headgate.schema.json"


def test_the_copy_is_current(headgate):
    is_current = headgate("config", "--schema").out == COPY.read_text(encoding="utf-8")
    assert is_current, "run: headgate config --schema > docs/headgate.schema.json"


def test_every_option_is_in_it_and_nothing_else():
    schema = json.loads(COPY.read_text(encoding="utf-8"))
    context, everywhere = click.Context(group), set()
    for name in COMMANDS:
        options = set(option_names(group.get_command(context, name)).values())
        assert set(schema["properties"][name]["properties"]) == options
        assert schema["properties"][name]["additionalProperties"] is False
        everywhere |= options
    assert set(schema["properties"]) == everywhere | set(COMMANDS)


def test_kinds_of_values():
    run = json.loads(COPY.read_text(encoding="utf-8"))["properties"]["run"]["properties"]
    assert run["wait"]["type"] == "boolean"
    assert run["on-broken"]["enum"] == ["stop", "dead"]
    assert (run["max-attempts"]["type"], run["max-attempts"]["maximum"]) == ("integer", 1000)
    assert {"type": "array", "items": {"type": ["string", "number"]}} in run["keys"]["anyOf"]
    assert run["limits"]["anyOf"][-1]["type"] == "object"
    assert "Not allowed in a project file" in run["to"]["description"]
    assert "Not allowed in a project file" not in run["limits"]["description"]
