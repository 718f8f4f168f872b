"""``headgate config``: which files, environment variables and options are in force, and where each comes from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click

from ...private_files import state_folder
from ...wire.redact import redact
from ..ui.config_file import (
    COMMANDS,
    NAME,
    NO_FILE,
    PYPROJECT,
    VARIABLE,
    ConfigFile,
    find_files,
    option_names,
    project_folders,
    settings_of,
    user_file,
)
from ..ui.options import ExampleCommand, json_option
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
        from ..ui.config_schema import config_schema

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
                    "commands": {each: [asdict(row) for row in found] for each, found in rows.items()},
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
    from .. import group

    context = click.Context(group)
    found = group.get_command(context, name)
    if found is None:
        return
    inner = click.Context(found, info_name=name, parent=context)
    settings = settings_of(found, name, files)
    names = option_names(found)
    for parameter in found.params:
        option = names.get(str(parameter.name))
        if option is None:
            continue
        from_environment: Any = parameter.resolve_envvar_value(inner)
        setting = settings.get(str(parameter.name))
        if from_environment is not None:
            value, source = from_environment, f"{ENVIRONMENT}: {parameter.envvar}"
        elif setting is not None:
            value, source = setting.value, setting.file.shown
            parameter.type_cast_value(inner, value)  # a value that cannot be used is an error here too
        else:
            value, source = parameter.get_default(inner), DEFAULT
        yield Row(option, shown(option, value), source)


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
        table.add_row(f"--{row.option}", row.value or "-", row.source)
    table_console().print(table)
