"""A JSON schema of the configuration file, made from the options, so that an editor completes and checks one.

``headgate config --schema`` prints it; ``docs/headgate.schema.json`` is a copy that a test holds up to date.
"""

from __future__ import annotations

from typing import Any

import click

from .config_file import COMMANDS, PROJECT_OPTIONS, TABLES, option_names
from .options import Number, WholeNumber

DRAFT = "http://json-schema.org/draft-07/schema#"


def config_schema() -> dict[str, Any]:
    from .. import group

    context = click.Context(group)
    sections = {name: section(group.get_command(context, name)) for name in COMMANDS}
    common: dict[str, Any] = {}
    for name, options in sections.items():
        for option, kind in options.items():
            common.setdefault(option, {})[name] = kind
    return {
        "$schema": DRAFT,
        "title": "headgate.toml, or [tool.headgate] in pyproject.toml",
        "description": "Options of headgate run, crawl and proxy; at the top level, for every command that has them.",
        "type": "object",
        "properties": {
            **{option: merged(kinds) for option, kinds in sorted(common.items())},
            **{
                name: {
                    "description": f"Options of headgate {name} only.",
                    "type": "object",
                    "properties": dict(sorted(options.items())),
                    "additionalProperties": False,
                }
                for name, options in sections.items()
            },
        },
        "additionalProperties": False,
    }


def section(command: click.Command | None) -> dict[str, Any]:
    """The schemas of a command's options, by their names in a file."""
    if command is None:
        return {}
    names = option_names(command)
    return {names[str(one.name)]: of_option(one, names[str(one.name)]) for one in command.params if one.name in names}


def merged(kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One schema for an option that several commands have."""
    different = list({repr(kind): kind for kind in kinds.values()}.values())
    return different[0] if len(different) == 1 else {"anyOf": different}


def of_option(option: click.Parameter, name: str) -> dict[str, Any]:
    text = " ".join((getattr(option, "help", None) or "").split())
    if name not in PROJECT_OPTIONS:
        text += " Not allowed in a project file that is found automatically."
    one = single(option)
    kinds = [one, {"type": "array", "items": one}] if getattr(option, "multiple", False) else [one]
    if name in TABLES and (TABLES[name] or getattr(option, "multiple", False)):
        amount = {"type": ["string", "number"]}
        values = {"anyOf": [amount, {"type": "array", "items": amount}]}
        kinds.append({"type": "object", "additionalProperties": values})
    shape = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return {"description": text, **shape}


def single(option: click.Parameter) -> dict[str, Any]:
    """What one value of the option may be."""
    kind = option.type
    if getattr(option, "is_flag", False):
        return {"type": "boolean"}
    if isinstance(kind, click.Choice):
        return {"enum": [str(choice) for choice in kind.choices]}
    if isinstance(kind, WholeNumber | Number):
        bounds = {"minimum": kind.min, "maximum": kind.max}
        return {
            "type": "integer" if isinstance(kind, WholeNumber) else "number",
            **{name: bound for name, bound in bounds.items() if bound is not None},
        }
    if option.name == "web":
        return {"type": ["boolean", "integer", "string"]}
    return {"type": ["string", "number"]}
