"""``headgate limits URL``: ask once, and say in words what the answer says of its limits."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from typing import Any

import click
from yarl import URL

from headgate.sim.notation import read_duration
from headgate.wire import read
from headgate.wire.explain import explain
from headgate.wire.names import meaning
from headgate.wire.redaction import HIDDEN, redact

from . import DONE, CommandFailed
from .asking import Answer, NoAnswerError, Question, ask, site_of
from .examples import ExampleCommand
from .notation import Notation
from .running import run_async

SECRET_NAMES = re.compile(r"authorization|cookie|key|token|secret", re.IGNORECASE)
SHORTEST_SECRET = 4
"""A shorter value from the environment is not searched for in what is printed: it would hide half of the words."""
_HTTP_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEADER = re.compile(rf"({_HTTP_WORD}):[ \t]*([^\r\n\0]*)")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Z_][A-Z0-9_]*))")


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate limits https://api.github.com/", "what may I do here without a key?"),
        (
            "headgate limits https://api.openai.com/v1/models --bearer-env OPENAI_API_KEY",
            "with a key that stays out of the command line",
        ),
        (
            "headgate limits https://api.anthropic.com/v1/models -H 'x-api-key: $ANTHROPIC_API_KEY' "
            "-H 'anthropic-version: 2023-06-01'",
            "$NAMES in headers are read from the environment; mind the single quotes",
        ),
        ('headgate limits https://api.example.com/search -d \'{"q": "hi"}\'', "a POST with a body"),
        ("headgate limits http://127.0.0.1:8080/v1/x --json", "for programs (here: against headgate mock)"),
    ],
)
@click.argument("url")
@click.option("-X", "--method", metavar="NAME", help="The HTTP method.  [default: GET, or POST with --data]")
@click.option(
    "-H",
    "--header",
    "lines",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="Send a header; $NAME in the value is read from the environment. Repeatable.",
)
@click.option(
    "--bearer-env", metavar="NAME", help="Send 'Authorization: Bearer ...' with the key in this environment variable."
)
@click.option("-d", "--data", help="Send this body; as JSON, unless a Content-Type header says otherwise.")
@click.option(
    "--timeout", type=Notation("TIME", read_duration), default="10s", show_default=True, help="Give up after this long."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was understood as one JSON line.")
def command(
    url: str,
    method: str | None,
    lines: tuple[str, ...],
    bearer_env: str | None,
    data: str | None,
    timeout: float,
    as_json: bool,
) -> int:
    """Ask once and explain what the answer says of its limits.

    Sends one request and tells, in words, which limits the server speaks of, what is left of them, when they are
    whole again, and what Headgate would do next. Credentials are never printed, and never sent on to another host.
    """
    if timeout <= 0:
        raise click.UsageError("--timeout must be longer than 0; write 10s or 500ms.")
    if method is not None and not re.fullmatch(_HTTP_WORD, method):
        raise click.UsageError(f"{redact(method)!r} is not an HTTP method; write GET, POST or alike.")
    secrets: list[str] = []
    headers = [read_header(number, line, secrets) for number, line in enumerate(lines, 1)]
    if bearer_env is not None:
        headers.append(("Authorization", f"Bearer {from_environment('--bearer-env', bearer_env, secrets)}"))
    if data is not None and not any(name.lower() == "content-type" for name, _ in headers):
        headers.append(("Content-Type", "application/json"))
    question = Question(
        method=(method or ("GET" if data is None else "POST")).upper(),
        url=read_url(url),
        headers=tuple(headers),
        body=data,
        timeout=timeout,
    )
    hide = Hide(secrets)
    try:
        answer = run_async(ask(question))
    except NoAnswerError as error:
        site = site_of(question.url)
        raise CommandFailed(hide(f"{site} {error}; check the address and the network, then try again.")) from None
    click.echo(hide(json.dumps(as_fields(answer)) if as_json else in_words(question, answer)))
    return DONE


class Hide:
    """Takes out of a text whatever looks like a credential, and the very ones that were sent."""

    def __init__(self, secrets: list[str]) -> None:
        self._secrets = sorted((secret for secret in secrets if len(secret) >= SHORTEST_SECRET), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return redact(text)


def read_url(text: str) -> URL:
    advice = "write a whole address such as https://api.example.com/v1/models."
    try:
        url = URL(text)
    except ValueError:
        raise click.UsageError(f"{redact(text)!r} is not a URL; {advice}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise click.UsageError(f"{redact(text)!r} is not an http or https URL; {advice}")
    return url


def read_header(number: int, line: str, secrets: list[str]) -> tuple[str, str]:
    """What is no header is not repeated: it may be a key in the wrong place."""
    match = _HEADER.fullmatch(line)
    if match is None:
        raise click.UsageError(f"-H, number {number}, is not written as 'Name: value'.")
    name, value = match[1], match[2].strip()
    if _VARIABLE.search(value):
        option = f"-H '{name}: ...'"
        return name, _VARIABLE.sub(lambda found: from_environment(option, found[1] or found[2], secrets), value)
    if SECRET_NAMES.search(name) and value:
        secrets.append(value.split()[-1])
        click.echo(
            f"headgate: the value of {name} can be seen by others in your history and process list; "
            f"keep it in the environment and write -H '{name}: $NAME', or --bearer-env NAME.",
            err=True,
        )
    return name, value


def from_environment(option: str, name: str, secrets: list[str]) -> str:
    """The name of a variable that is not set is not repeated: it may be a key, put there by the shell."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise click.UsageError(
            f"{option}: the environment variable is not set or empty; write its name, not its value, and in single "
            "quotes where a $ is before it."
        )
    if not value.isprintable():
        raise click.UsageError(f"{option}: the environment variable {name} holds characters that no header may carry.")
    secrets.append(value)
    return value


def in_words(question: Question, answer: Answer) -> str:
    lines = [f"{question.method} {shown(answer.url)} answered in {1000 * answer.latency:.0f} ms.", ""]
    says = explain(answer.status, answer.headers, answer.body, wall=answer.wall, url=str(answer.url))
    lines += [f"  {sentence}" for sentence in says]
    if answer.not_followed is not None:
        lines.append(
            f"  It points to {shown(answer.not_followed)}, which is another site, so your headers were not sent there."
        )
    read_from = [f"    {name}: {value}" for name, value in answer.headers if is_about_limits(name)]
    if read_from:
        lines += ["", "  Read from:", *read_from]
    return "\n".join(lines)


def as_fields(answer: Answer) -> dict[str, Any]:
    signal = read(answer.status, answer.headers, answer.body, wall=answer.wall, url=str(answer.url))
    fields = asdict(signal) | {"outcome": signal.outcome.value}
    not_followed = None if answer.not_followed is None else shown(answer.not_followed)
    return {"url": shown(answer.url), "status": answer.status, **fields, "not_followed": not_followed}


def is_about_limits(header: str) -> bool:
    return meaning(header) is not None and header.lower() != "date"


def shown(url: URL) -> str:
    """An address for people: without user, password, query and fragment, where keys may travel."""
    return str(url.with_user(None).with_query(None).with_fragment(None))
