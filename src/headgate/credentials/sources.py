"""Where credentials come from: the environment, a file or a command. Never the command line, where others can see them.

    env:NAME     the variable NAME, one key or several (commas or lines between them),
                 and NAME_1, NAME_2, ... as far as they go
    file:PATH    a line for each, "label=secret" or the secret alone, "#" before a comment;
                 a secret with a "=" in its middle needs one before it: "=abc=def" ("abc=def" is labelled abc)
                 or, if the name ends in .toml, label = "secret" and tables with secret and group
    cmd:WORDS    what the command prints, read like a file's lines; it is run without a shell

An error names where a secret should be, never what is there. The name of a variable that is not set, or
of a file that is not there, is not repeated either: ``env:$NAME``, where a shell puts the key, is an easy mistake.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterable

from ..errors import ConfigError
from ..private_files import is_open_to_other_users
from .credential import LONGEST_LABEL, MOST_CREDENTIALS, Credential, gives_away

log = logging.getLogger("headgate")

LARGEST_SOURCE = 1024 * 1024
"""Bytes of a file or of a command's output."""
LONGEST_COMMAND = 30.0
"""Seconds a command may take."""

_LABELLED = re.compile(rf"([A-Za-z0-9_.-]{{0,{LONGEST_LABEL}}})[ \t]*=[ \t]*(.*[^=].*)")


def credentials_from(source: str, *, warn: Callable[[str], object] | None = None) -> list[Credential]:
    """Read ``env:NAME``, ``file:PATH`` or ``cmd:WORDS``. A file others can read is logged, or passed to ``warn``."""
    kind, _, where = source.partition(":")
    read = {"env": _from_environment, "file": _from_file, "cmd": _from_command}.get(kind)
    if read is None or not where.strip():
        raise ConfigError(
            "a source of credentials is env:NAME, file:PATH or cmd:WORDS; "
            "credentials themselves are not accepted here, where others can see them"
        )
    return read(where.strip(), log.warning if warn is None else warn)


def _from_environment(name: str, _: Callable[[str], object]) -> list[Credential]:
    numbered = (f"{name}_{number}" for number in range(1, MOST_CREDENTIALS + 1))
    variables = [name]
    for variable in numbered:
        if variable not in os.environ:
            break
        variables.append(variable)
    found: list[Credential] = []
    for variable in variables:
        secrets = [part.strip() for part in re.split(r"[,\n]", os.environ.get(variable, "")) if part.strip()]
        labels = [variable] if len(secrets) == 1 else [f"{variable}-{number}" for number in range(1, len(secrets) + 1)]
        found += _each(
            (
                ("" if gives_away(label, secrets) else label, secret, None)
                for label, secret in zip(labels, secrets, strict=True)
            ),
            f"the environment variable {variable}",
            may_be_empty=True,
        )
    if not found and name in os.environ:
        raise ConfigError(f"env: the environment variable {name} is empty; put the key into it, or name another")
    if not found:
        raise ConfigError(
            "env: no environment variable of this name is set (not shown here, it may be a key). Write the name of "
            "the variable, not its value: env:OPENAI_API_KEY, without a $"
        )
    return found


def _from_file(path: str, warn: Callable[[str], object]) -> list[Credential]:
    path = os.path.expanduser(path)
    try:
        if is_open_to_other_users(path):
            warn(f"{path} can be read by other users; restrict it with: chmod 600 {path}")
        with open(path, "rb") as file:
            content = file.read(LARGEST_SOURCE + 1)
    except FileNotFoundError:
        raise ConfigError(
            "file: not found (path not shown here, it may be a key). Write the path of a file that has "
            "the keys: file:keys.txt"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a character that no path has
        why = error.strerror if isinstance(error, OSError) else "invalid path"
        raise ConfigError(f"file: cannot be read ({why}); check its path and permissions") from None
    return (_from_toml if path.endswith(".toml") else _from_lines)(_decoded(content, path), path)


def _from_command(words: str, _: Callable[[str], object]) -> list[Credential]:
    import shlex
    import signal
    import subprocess
    import threading

    try:
        command = shlex.split(words)
        process = subprocess.Popen(  # noqa: S603 - the user's own command, and no shell
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except (OSError, ValueError, IndexError):
        raise ConfigError(
            "cmd: the command cannot be started; check that it exists and its quotes are closed"
        ) from None
    overdue = threading.Event()

    def stop() -> None:
        """End the command and whatever it has started; it was not waited for yet, so its number is its own."""
        overdue.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()

    alarm = threading.Timer(LONGEST_COMMAND, stop)
    alarm.start()
    with process:
        try:
            content = process.stdout.read(LARGEST_SOURCE + 1) if process.stdout else b""
            if len(content) > LARGEST_SOURCE:
                stop()
            process.wait()
        except BaseException:
            stop()
            raise
        finally:
            alarm.cancel()
            alarm.join()
    if process.returncode and len(content) <= LARGEST_SOURCE:
        why = f"took longer than {LONGEST_COMMAND:g} s" if overdue.is_set() else f"exited with {process.returncode}"
        raise ConfigError(f"cmd: {os.path.basename(command[0])} {why}; run it by itself to see why")
    return _from_lines(_decoded(content, "cmd: the output"), "cmd: the output")


def _decoded(content: bytes, where: str) -> str:
    if len(content) > LARGEST_SOURCE:
        raise ConfigError(f"{where} is longer than {LARGEST_SOURCE:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{where} is not UTF-8 text") from None


def _from_lines(text: str, where: str) -> list[Credential]:
    lines = [line for given in text.splitlines() if (line := given.strip()) and not line.startswith("#")]
    matches = [(line, _LABELLED.fullmatch(line)) for line in lines]
    return _each(((match[1], match[2], None) if match else ("", line, None) for line, match in matches), where)


def _from_toml(text: str, where: str) -> list[Credential]:
    import tomllib

    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # its message may quote what it stumbled over
        raise ConfigError(f"{where} is not valid TOML") from None
    entries = {label: {"secret": value} if isinstance(value, str) else value for label, value in tables.items()}
    if not all(
        isinstance(one, dict) and "secret" in one and set(one) <= {"secret", "group"} for one in entries.values()
    ):
        raise ConfigError(f'{where}: expected entries label = "secret", or tables with secret and group')
    return _each(((label, one["secret"], one.get("group")) for label, one in entries.items()), where)


def _each(
    entries: Iterable[tuple[str, str, str | None]], where: str, *, may_be_empty: bool = False
) -> list[Credential]:
    found = []
    for number, (label, secret, group) in enumerate(entries, 1):
        try:
            found.append(Credential(label, secret, group))
        except ConfigError as error:
            raise ConfigError(f"{where}, entry {number}: {error}") from None
    if not found and not may_be_empty:
        raise ConfigError(f"{where} has no credentials")
    return found
