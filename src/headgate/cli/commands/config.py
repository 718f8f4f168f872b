"""``headgate config``: which files, environment variables and options are in force, and where each comes from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from ...formatting import redact
from ...private_files import state_folder
from ..ui.config_file import (
    COMMANDS,
    NAME,
    NO_FILE,
    PROJECT_OPTIONS,
    PYPROJECT,
    TABLES,
    VARIABLE,
    ConfigFile,
    command_named,
    find_files,
    option_names,
    project_folders,
    settings_of,
    user_file,
)
from ..ui.options import ExampleCommand, Number, WholeNumber, json_option
from ..ui.shared_state import VARIABLE as STORE_VARIABLE
from ..ui.shared_state import hide_login
from ..ui.terminal import DONE, say, table_console

ENVIRONMENT, DEFAULT = "environment", "default"
IS_SET = "(set)"
VARIABLES = {
    VARIABLE: "the configuration file, like --config",
    STORE_VARIABLE: "which processes share limits, like --store",
    "HEADGATE_STATE": "the folder with the state of keys and runs",
    "HEADGATE_PROXY_TOKEN": "the token that headgate proxy requires",
    "HEADGATE_WEB_TOKEN": "the token that headgate web requires",
    "HEADGATE_ENHANCED_RESILIENCE": "false: plain retries without limiter and circuit breaker",
    "HEADGATE_DEBUG": "tracebacks of internal errors",
}
SHOWN = (VARIABLE, STORE_VARIABLE, "HEADGATE_STATE", "HEADGATE_ENHANCED_RESILIENCE", "HEADGATE_DEBUG")
"""Variables whose value is shown; of the others only whether they are set."""
SECRET_OPTIONS = ("header",)


@dataclass(frozen=True, slots=True)
class Row:
    option: str
    value: str
    source: str
    """A file, an environment variable, or default."""
    is_required: bool = False

    def fields(self) -> dict[str, str]:
        return {"option": self.option, "value": self.value, "source": self.source}


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate config", "which files and variables are in force, and what they set"),
        ("headgate config run", "every option of headgate run here, and where its value comes from"),
        ("headgate config run --config batch.toml", "the same with your own file"),
        ("headgate config --schema > headgate.schema.json", "for an editor that completes and checks headgate.toml"),
    ],
)
@click.argument("name", metavar="[COMMAND]", required=False, type=click.Choice(COMMANDS))
@click.option(
    "--config",
    "chosen",
    metavar="FILE",
    envvar=VARIABLE,
    help='Read this file and no other; "none" reads no file.',
)
@click.option("--schema", is_flag=True, help="Print a JSON schema of the configuration file and exit.")
@json_option("Print one JSON object.")
def command(name: str | None, chosen: str | None, schema: bool, as_json: bool) -> int:
    """Show the configuration of headgate run, crawl and proxy in this folder, and where each value comes from.

    Command-line options override environment variables, and these override files. With --config or HEADGATE_CONFIG,
    only that file is read. Without it, headgate.toml (or [tool.headgate] in pyproject.toml) in this folder, or the
    nearest one above it in the same project, overrides headgate.toml in your own configuration folder. A project file
    that is found automatically may not set where requests go, keys, or what is written or shared; your own file and
    that of --config may.

    Keys, tokens and passwords are never shown.
    """
    if schema:
        click.echo(json.dumps(config_schema(), indent=2))
        return DONE
    files = find_files(chosen)
    rows = {each: list(rows_of(each, files)) for each in COMMANDS if name in (None, each)}
    if as_json:
        click.echo(
            json.dumps(
                {
                    "files": [{"path": path, "kind": kind, "read": read} for path, kind, read in places(files, chosen)],
                    "variables": dict(variables()),
                    "commands": {each: [row.fields() for row in found] for each, found in rows.items()},
                }
            )
        )
        return DONE
    show_files(files, chosen)
    show_variables()
    for each, found in rows.items():
        show_options(each, [row for row in found if name is not None or row.source != DEFAULT])
    return DONE


# ---------------------------------------------------------------------- files


def places(files: list[ConfigFile], chosen: str | None) -> Iterator[tuple[str, str, bool]]:
    """Path, kind and whether it was read, of each place that a file may be in."""
    by_kind = {file.kind: file for file in files}
    if chosen is not None:
        if chosen != NO_FILE:
            yield by_kind["chosen"].path, "chosen", True
        return
    yield user_file(), "user", "user" in by_kind
    project = by_kind.get("project")
    yield (project.path if project else os.path.join(os.getcwd(), NAME)), "project", project is not None


def show_files(files: list[ConfigFile], chosen: str | None) -> None:
    say("Files:")
    if chosen == NO_FILE:
        say("  no file is read")
    for path, kind, read in places(files, chosen):
        whose = {"chosen": "the only one read", "user": "your own", "project": "this project's"}[kind]
        say(f"  {path}  {whose if read else f'not found ({whose})'}")
        if kind == "project" and not read:
            folders = len(list(project_folders(os.getcwd())))
            say(f"    looked for {NAME}, and [tool.headgate] in {PYPROJECT}, in {folders} folder{'s'[: folders - 1]}")


# ---------------------------------------------------------------------- variables


def variables() -> Iterator[tuple[str, str | None]]:
    """Each variable that Headgate reads and what may be shown of its value; None: not set. Of keys, those that are."""
    for name in VARIABLES:
        value = os.environ.get(name)
        yield name, None if not value else hide_login(value) if name in SHOWN else IS_SET
    for name in sorted(os.environ):
        if name.startswith("HEADGATE_ENHANCED_RESILIENCE_"):
            yield name, os.environ[name]
        elif name in key_variables() and os.environ[name]:
            yield name, IS_SET


def key_variables() -> set[str]:
    from ...batch.endpoints import KNOWN_ENDPOINTS

    return {endpoint.key_variable for endpoint in KNOWN_ENDPOINTS.values() if endpoint.key_variable}


def show_variables() -> None:
    say("\nEnvironment variables:")
    for name, value in variables():
        if value is not None:
            say(f"  {name}={value}  {VARIABLES.get(name, 'a key')}")
        elif name == "HEADGATE_STATE":
            say(f"  {name} not set, using {state_folder()}")
    unset = [name for name, value in variables() if value is None and name != "HEADGATE_STATE"]
    if unset:
        say(f"  not set: {', '.join(unset)}")


# ---------------------------------------------------------------------- options


def rows_of(name: str, files: list[ConfigFile]) -> Iterator[Row]:
    """The options of a command with the values they would have if nothing were typed."""
    command = command_named(name)
    context = click.Context(command, info_name=name)
    settings = settings_of(command, name, files)
    names = option_names(command)
    for parameter in command.params:
        option = names.get(str(parameter.name))
        if option is None:
            continue
        from_environment: Any = parameter.resolve_envvar_value(context)
        setting = settings.get(str(parameter.name))
        if from_environment is not None:
            value, source = from_environment, f"{ENVIRONMENT}: {parameter.envvar}"
        elif setting is not None:
            value, source = setting.value, setting.file.shown
            parameter.type_cast_value(context, value)  # a value that cannot be used is an error here too
        else:
            value, source = parameter.get_default(context), DEFAULT
        yield Row(option, shown(option, value), source, parameter.required)


def shown(option: str, value: Any) -> str:
    """A value as it may be shown."""
    if value is None or (isinstance(value, list | tuple) and not value) or type(value).__name__ == "Sentinel":
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(shown(option, one) for one in value)
    if option in SECRET_OPTIONS or (option == "keys" and "cmd:" in str(value)):
        return str(value).partition(":")[0] + ": ..."
    return redact(hide_login(str(value).lower() if isinstance(value, bool) else str(value)))


def show_options(name: str, rows: list[Row]) -> None:
    from rich.table import Table

    say(f"\nOptions of headgate {name}:" + ("" if rows else " all defaults"))
    if not rows:
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    for _ in range(3):
        table.add_column(overflow="fold")
    for row in rows:
        is_missing = row.is_required and not row.value
        table.add_row(f"--{row.option}", row.value, "not set (required)" if is_missing else row.source)
    table_console().print(table)


# ---------------------------------------------------------------------- the schema of the file

DRAFT = "http://json-schema.org/draft-07/schema#"


def config_schema() -> dict[str, Any]:
    """A JSON schema of the configuration file, made from the options; ``docs/headgate.schema.json`` is a copy."""
    sections = {name: section(command_named(name)) for name in COMMANDS}
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


def section(command: click.Command) -> dict[str, Any]:
    """The schemas of a command's options, by their names in a file."""
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
