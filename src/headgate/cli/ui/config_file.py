"""Configuration files: where they are looked for, what each may set, and ``--config``.

    --config FILE or HEADGATE_CONFIG       this file and no other; "none" reads none
    without it, and the later one wins:
      ~/.config/headgate/headgate.toml     the user's own
      headgate.toml, or [tool.headgate]    the project's: the first from the current folder up to the project's root
      in pyproject.toml

Names are those of the options. At the top level they are for every command that has the option; those of a table
``[run]``, ``[crawl]`` or ``[proxy]`` are for that command, and win. The command line wins over environment variables,
and these over files.

A project's file may have come with a cloned repository. It is found without being named, so it may set
``PROJECT_OPTIONS`` and nothing else: not where requests go, where keys come from, what is executed, written, listened
on or shared.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ...formatting import nearest_name
from .terminal import complain

VARIABLE = "HEADGATE_CONFIG"
NAME, PYPROJECT = "headgate.toml", "pyproject.toml"
NO_FILE = "none"
COMMANDS = ("run", "crawl", "proxy")
"""The commands with a ``--config``."""
LARGEST = 1 << 20
MOST_LEVELS = 32
"""Folders that are looked into, from the current one upwards."""
ROOT_MARKS = (".git", ".hg")

PROJECT_OPTIONS = frozenset(
    {
        "deadline",
        "delay",
        "delimiter",
        "depth",
        "exclude",
        "format",
        "groups",
        "include",
        "json",
        "keep-going",
        "limits",
        "max-attempts",
        "max-cost",
        "max-pages",
        "max-per-host",
        "max-per-shape",
        "max-size",
        "max-tokens",
        "max-wait",
        "name-field",
        "no-sitemaps",
        "on-broken",
        "plan",
        "price",
        "quiet",
        "rate",
        "retries",
        "subdomains",
        "time-budget",
        "timeout",
        "wait",
        "when-open",
        "workers",
    }
)
"""What a file that is found by itself may set: how fast, how long, how much, and how rows are read. Every new option is
outside until it is listed here."""

TABLES: Mapping[str, str | None] = {"limits": ",", "price": None, "to": None, "keys": None, "query": None}
"""Options that a file may write as a table, and what joins its entries on the command line (None: each is a value)."""

FALLBACK = "fallback"
"""The option that a file may write as tables, one for each target."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ConfigFile:
    path: str
    kind: str
    """chosen (by ``--config`` or the variable), user or project."""
    content: Mapping[str, Any]

    @property
    def shown(self) -> str:
        """Its path as the user would write it."""
        relative = os.path.relpath(self.path)
        name = self.path if relative.startswith("..") else relative
        return f"{name} [tool.headgate]" if os.path.basename(self.path) == PYPROJECT else name


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of one option in a file, as the command line would have it."""

    value: Any
    file: ConfigFile


# ---------------------------------------------------------------------- --config


def config_option(command: F) -> F:
    """``--config FILE``: the values of configuration files become the defaults of the command's options."""

    def read(context: click.Context, parameter: click.Parameter, path: str | None) -> None:
        if context.resilient_parsing:  # completion of a word
            return
        settings = settings_of(context.command, str(context.info_name), find_files(path))
        context.default_map = {**(context.default_map or {}), **{name: one.value for name, one in settings.items()}}
        if context.get_parameter_source(str(parameter.name)) is not ParameterSource.COMMANDLINE:
            announce(context.command, settings)

    return click.option(
        "--config",
        metavar="FILE",
        envvar=VARIABLE,
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=read,
        help='TOML file with these options: to = "openai", max-cost = 20. The command line wins; "none" reads no '
        f"file.  [default: {NAME} of the user and of the project; see headgate config]",
    )(command)


def announce(command: click.Command, settings: Mapping[str, Setting]) -> None:
    """Say on standard error, in one line, which files were found and what they set."""
    names = option_names(command)
    by_file: dict[str, list[str]] = {}
    for name, one in settings.items():
        by_file.setdefault(one.file.shown, []).append(names[name])
    if by_file:
        complain("read " + "; ".join(f"{path} ({', '.join(sorted(of))})" for path, of in by_file.items()) + ".")


def command_named(name: str) -> click.Command:
    """One of ``COMMANDS``."""
    from .. import group

    command = group.get_command(click.Context(group), name)
    assert command is not None
    return command


def option_names(command: click.Command) -> dict[str, str]:
    """What the options of a command are called in a file, by the names of their parameters."""
    return {
        str(one.name): max(one.opts, key=len).lstrip("-")
        for one in command.params
        if isinstance(one, click.Option) and one.name != "config"
    }


# ---------------------------------------------------------------------- where files are


def find_files(chosen: str | None) -> list[ConfigFile]:
    """The files that are in force, the one that wins last. Raises ``UsageError`` for one that cannot be read."""
    if chosen == NO_FILE:
        return []
    if chosen is not None:
        return [read_file(chosen, "chosen")]
    found = []
    if os.path.isfile(path := user_file()):
        refuse_if_others_can_change(path)
        found.append(read_file(path, "user"))
    project = project_file(os.getcwd())
    return [*found, project] if project is not None else found


def user_file() -> str:
    """The user's own file, whether there is one or not."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.environ.get("APPDATA") or os.path.join("~", ".config")
    return os.path.join(os.path.expanduser(base), "headgate", NAME)


def project_file(folder: str) -> ConfigFile | None:
    """The first file from ``folder`` upwards to the root of its project."""
    for each in project_folders(folder):
        for name in (NAME, PYPROJECT):
            path = os.path.join(each, name)
            if not os.path.isfile(path):
                continue
            if is_of_another_user(path):
                if name == NAME:
                    complain(f"{path} belongs to another user and was not read; pass --config {path} to read it.")
                continue
            file = read_file(path, "project")
            if name == NAME or file.content:
                return file
    return None


def project_folders(folder: str) -> Iterator[str]:
    """The current folder and those above it up to the root of a repository, else of a Python project, else it alone."""
    above = [os.path.abspath(folder)]
    while len(above) < MOST_LEVELS and (parent := os.path.dirname(above[-1])) != above[-1]:
        above.append(parent)
    for marks in (ROOT_MARKS, (PYPROJECT,)):
        for place, each in enumerate(above):
            if any(os.path.exists(os.path.join(each, mark)) for mark in marks):
                yield from above[: place + 1]
                return
    yield above[0]


def is_of_another_user(path: str) -> bool:
    return hasattr(os, "getuid") and os.stat(path).st_uid not in (0, os.getuid())


def refuse_if_others_can_change(path: str) -> None:
    if is_of_another_user(path) or (os.name == "posix" and os.stat(path).st_mode & 0o002):
        raise click.UsageError(
            f"{path} can be changed by other users, and it may set where keys are sent. Restrict it (chmod 600), "
            "or pass --config none."
        )


# ---------------------------------------------------------------------- what they say


def read_file(path: str, kind: str) -> ConfigFile:
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise click.UsageError(f"--config: {path} is larger than {LARGEST:,} bytes.")
        if os.path.basename(path) != PYPROJECT:
            return ConfigFile(path, kind, tomllib.loads(content.decode()))
        if b"headgate" not in content:  # most of them: not worth reading
            return ConfigFile(path, kind, {})
        table = tomllib.loads(content.decode()).get("tool", {}).get("headgate", {})
        return ConfigFile(path, kind, table if isinstance(table, dict) else {})
    except OSError as error:
        raise click.UsageError(f"--config: cannot read {path} ({error.strerror}).") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"--config: {path} is not valid TOML ({error}).") from None


def settings_of(command: click.Command, section: str, files: list[ConfigFile]) -> dict[str, Setting]:
    """What the files set for this command, by the names of its parameters. ``section``: the name of its table.

    Raises ``UsageError``, also for an unknown option in the table of another command.
    """
    names = {option: name for name, option in option_names(command).items()}
    parameters = {str(one.name): one for one in command.params}
    settings: dict[str, Setting] = {}
    for file in files:
        _check_other_sections(file, section)
        common = {given: value for given, value in file.content.items() if not _is_section(given, value)}
        own = file.content.get(section, {})
        for given, value in [*common.items(), *(own.items() if isinstance(own, dict) else ())]:
            option = given.replace("_", "-")
            if option not in names:
                _refuse_if_unknown(file, given, names, only_here=given not in common)
                continue
            if file.kind == "project" and option not in PROJECT_OPTIONS:
                raise click.UsageError(
                    f'{file.shown} sets "{given}", which a file that is found automatically may not set: it may come '
                    f"from a cloned repository. Pass --config {file.path} if you trust it, set it in {user_file()}, or "
                    "ignore the file with --config none."
                )
            name = names[option]
            settings[name] = Setting(_as_typed(given, option, value, parameters[name]), file)
    return settings


def _is_section(given: str, value: object) -> bool:
    return given in COMMANDS and isinstance(value, dict)


def _check_other_sections(file: ConfigFile, section: str) -> None:
    for other in COMMANDS:
        table = file.content.get(other)
        if other == section or not isinstance(table, dict):
            continue
        known = _options_of(other)
        for given in table:
            if given.replace("_", "-") not in known:
                raise _unknown(file, f"[{other}] {given}", known)


def _refuse_if_unknown(file: ConfigFile, given: str, names: Collection[str], *, only_here: bool) -> None:
    """At the top level a name may be an option of another command."""
    known = set(names) if only_here else set(names).union(*map(_options_of, COMMANDS))
    if given.replace("_", "-") not in known:
        raise _unknown(file, given, known, names)


def _options_of(name: str) -> set[str]:
    return set(option_names(command_named(name)).values())


def _unknown(
    file: ConfigFile, given: str, known: Collection[str], listed: Collection[str] | None = None
) -> click.UsageError:
    near = nearest_name(given.rpartition(" ")[2].replace("_", "-"), sorted(known))
    hint = f'did you mean "{near}"?' if near else f"the options are {', '.join(sorted(listed or known))}."
    return click.UsageError(f"--config: {file.shown} has an unknown option {given!r}; {hint}")


def _as_typed(given: str, option: str, value: Any, parameter: click.Parameter) -> Any:
    """A value of the file as the command line would have it."""
    several = parameter.multiple or parameter.nargs == -1
    if isinstance(value, dict) and option in TABLES and (several or TABLES[option]):
        entries = [
            f"{name}={amount}"
            for name, amounts in value.items()
            for amount in (amounts if isinstance(amounts, list) else [amounts])
        ]
        joint = TABLES[option]
        return entries if joint is None else joint.join(entries)
    if isinstance(value, bool) or not isinstance(value, dict | list):
        text = value if isinstance(value, bool) else str(value)
        return [text] if several else text
    if option == FALLBACK and isinstance(value, list):
        return [one if isinstance(one, str) else _fallback_text(one) for one in value]
    if isinstance(value, list) and parameter.multiple:
        return [str(one) for one in value]
    raise click.UsageError(f"--config: {given} is not a single value; write it as on the command line.")


def _fallback_text(table: Mapping[str, Any]) -> str:
    """``{to = "groq", on = ["spend", "too_long"]}`` as ``--fallback`` takes it."""
    parts = []
    for name, value in table.items():
        values = value if isinstance(value, list) else [value]
        parts += [f"{name}={'+'.join(map(str, values))}"] if name == "on" else [f"{name}={one}" for one in values]
    return ",".join(parts)
