"""``headgate proxy``: a local reverse proxy that gives the gate to any program in any language, by its base URL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from headgate.batch.addresses import KNOWN
from headgate.config import RateLimitConfig
from headgate.credentials import CredentialCoordinator
from headgate.errors import ConfigError
from headgate.integrations.passing import Passing
from headgate.observe.watched import Watched
from headgate.proxy import Mount, Proxy, lines_of, mounts_of
from headgate.resilience.config import REMEMBERED
from headgate.resilience.pairing import PairedStore
from headgate.sim.notation import read_duration
from headgate.wire.redaction import redact
from headgate.wire.urls import host_key

from .notation import Notation, WholeNumber
from .proxy_going import go
from .run_settings import keys_of, read_limits
from .running import run_async
from .seeing import HIGHEST_PORT, SeenCommand, Wishes, seeing_options, seen
from .sharing import MACHINE, Shared, store_option

TOKEN_VARIABLE = "HEADGATE_PROXY_TOKEN"  # noqa: S105  # its name, not a token
USUAL_PORT = 8747
NO_KEYS = "none"
SOURCES = ("env:", "file:", "cmd:")
DURATION = Notation("TIME", read_duration)


@click.command(
    cls=SeenCommand,
    examples=[
        ("headgate proxy --to openai", "then, for a program in any language: OPENAI_BASE_URL=http://127.0.0.1:8747/v1"),
        (
            "curl http://127.0.0.1:8747/v1/models",
            "no key is needed: the proxy adds that of OPENAI_API_KEY, which programs then need not know",
        ),
        ("headgate proxy --to openai --to anthropic", "several: http://127.0.0.1:8747/openai/v1, .../anthropic"),
        (
            "headgate proxy --to https://api.example.com --keys file:keys.txt --limits requests=500/min",
            "any API; several keys in turn; a limit that is known (without it, it is learned)",
        ),
        (
            "headgate proxy --to api=https://api.example.com --to local=http://localhost:8000 --keys api=env:API_KEY",
            "names of your own, and a key for one of them; the other gets what each program sends itself",
        ),
        ("headgate proxy --to openai --keys none --store redis://cache:6379", "every program its own key; one quota"),
        (
            "HEADGATE_PROXY_TOKEN=$(openssl rand -hex 24) headgate proxy --to openai --host 0.0.0.0",
            "for other machines too: only with a token, which programs send as their API key",
        ),
        ("headgate mock --provider openai --rate 5/s --port 8080", "practise: an API of your own, and ..."),
        (
            "KEY=any headgate proxy --to http://127.0.0.1:8080/openai/v1 --keys env:KEY --port 8747",
            "... the proxy in front of it: 429s become waits",
        ),
    ],
)
@click.option(
    "--to",
    "targets",
    required=True,
    multiple=True,
    metavar="[NAME=]URL|VENDOR",
    help=f"Whom to ask: a URL such as https://api.example.com, or one of {', '.join(KNOWN)}. Only scheme, host and "
    "port change; a path in the URL is the only one let through. Repeatable: each is then found below /NAME/.",
)
@click.option(
    "--keys",
    "sources",
    multiple=True,
    metavar="[NAME=]SOURCE",
    help="Where the keys are that the proxy adds: env:NAME, file:PATH or cmd:WORDS; none: each program sends its own. "
    "Repeatable.  [default: the vendor's usual variable, if it is set]",
)
@click.option(
    "--limits",
    type=Notation("NAME=N/TIME,...", read_limits),
    help="What each key may do, if you know: requests=15/min,requests=1500/day,tokens=200000/min. All of them hold; "
    "the rest is learned.",
)
@click.option(
    "--max-wait",
    type=DURATION,
    default="10min",
    show_default=True,
    help="A call that would have to wait longer for its turn is refused at once (429, Retry-After).",
)
@click.option(
    "--when-open",
    type=click.Choice(["wait", "refuse"]),
    default="wait",
    show_default=True,
    help="While the circuit of an API is open after failures: wait for its next probe, within --max-wait, or refuse "
    "calls at once (503, Retry-After).",
)
@click.option(
    "--time-budget",
    type=DURATION,
    help="Waiting, attempts and pauses of a call together, until its answer begins.  [default: no bound]",
)
@click.option(
    "--retries",
    type=WholeNumber(0, 100),
    default=2,
    show_default=True,
    metavar="N",
    help="How often a failure is tried again, where that is safe: not a POST.",
)
@click.option("--timeout", type=DURATION, default="10min", show_default=True, help="How long an API may be silent.")
@click.option(
    "--port",
    type=WholeNumber(0, HIGHEST_PORT),
    default=USUAL_PORT,
    show_default=True,
    metavar="PORT",
    help="Where to listen; 0 takes a free one.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help=f"Listen at another address. Anything but this machine's own needs a token, in {TOKEN_VARIABLE}.",
)
@click.option(
    "--allow-host", "names", multiple=True, metavar="NAME", help="A further name that it answers to. Repeatable."
)
@store_option(MACHINE)
@seeing_options
@click.option("--json", "as_json", is_flag=True, help="Tell the address, how it goes and the end in JSON lines.")
@click.option("-q", "--quiet", is_flag=True, help="Say only where it listens, and the last line.")
def command(targets: tuple[str, ...], sources: tuple[str, ...], as_json: bool, quiet: bool, **given: Any) -> int:
    """Give the gate to any program in any language: start this, and change the program's base URL.

    Calls go through as fast as the API will take them. What would be a 429 waits its turn; Retry-After and rate-limit
    headers are kept; several keys are used in turn; all programs on this machine share one quota. Bodies and answers,
    streams too, pass as they are.

    The proxy adds its keys itself and drops those of the programs. It answers only this machine, and no web page.

    Ctrl-C once takes no more calls and finishes those that are out; twice stops at once. Exit code 0: all were
    finished; 4: some were cut off.
    """
    try:
        mounts = mounts_of(targets)
        wishes, shared = Wishes.of(given), Shared.of(given["store"])
        keys = coordinators(mounts, sources, shared)
        by_name = {host_key(mount.address.name): keys.get(mount.name) for mount in mounts}

        def whose(key: str) -> CredentialCoordinator | None:
            return by_name.get(key.partition("/")[0])

        def bound(mount: Mount) -> tuple[CredentialCoordinator, str]:
            return keys[mount.name], f"{mount.address.key_header}: {mount.address.key_prefix}{{secret}}"

        config = RateLimitConfig(limits=given["limits"] or {}, domain_state_ttl=REMEMBERED)
        shared.warn_if_forgotten(config)
        passing = Passing(
            config=config,
            store=None if shared.quotas is None else PairedStore(shared.quotas, whose),
            credentials={mount.origin: bound(mount) for mount in mounts if mount.name in keys},
            key=lines_of(mounts),
            max_wait=given["max_wait"],
            when_open=given["when_open"],
            time_budget=given["time_budget"],
            retries=given["retries"],
        )
        proxy = Proxy(
            mounts,
            passing,
            keyed=tuple(keys),
            host=given["host"],
            port=given["port"],
            token=os.environ.get(TOKEN_VARIABLE) or None,
            allow_hosts=given["names"],
            timeout=given["timeout"],
        )
    except ConfigError as error:
        hint = f" in {TOKEN_VARIABLE}" if "token" in str(error) else ""
        raise click.UsageError(redact(f"{error}{hint}.")) from None
    watched = Watched(
        limiter=passing.limiter,
        credentials=keys,
        tellers=(passing.keeper,),
        progress=proxy.progress,
        kind="proxy",
        title=f"to {', '.join(mount.name for mount in mounts)}",
    )
    try:
        with seen(wishes, lambda: watched, quiet=quiet) as told, watched:
            ending = run_async(go(proxy, watched, as_json=as_json, quiet=quiet))
            told.tell(ending.code, ending.about)
    finally:
        passing.close()  # whoever shares the quota need not wait for what is left of ours
    return told.code(ending.code)


def coordinators(mounts: Sequence[Mount], sources: Sequence[str], shared: Shared) -> dict[str, CredentialCoordinator]:
    """By the names of the targets; those that are not there get what each program sends itself."""
    told: dict[str, list[str]] = {}
    names = [mount.name for mount in mounts]
    for number, text in enumerate(sources, 1):
        name, equals, source = text.partition("=")
        if text == NO_KEYS or text.startswith(SOURCES):
            if len(mounts) > 1 and text != NO_KEYS:
                raise click.UsageError(f"--keys: say whose they are: NAME=SOURCE; NAME is {', '.join(names)}.")
            for name in names:
                told.setdefault(name, []).append(text)
        elif equals and name in names:
            told.setdefault(name, []).append(source)
        else:  # not repeated: it may be a key in the wrong place
            raise click.UsageError(
                f"--keys, number {number}, is written env:NAME, file:PATH, cmd:WORDS or none, after NAME= where "
                f"there are several targets; NAME is {', '.join(names)}."
            )
    found: dict[str, CredentialCoordinator] = {}
    for mount in mounts:
        where = told.get(mount.name, [])
        if NO_KEYS in where:
            if len(where) > 1:
                raise click.UsageError(f"--keys: {mount.name} has none and some; say one of both.")
            continue
        variable = mount.address.key_variable
        usual = bool(variable and (os.environ.get(variable) or os.environ.get(f"{variable}_1")))
        if where or usual:
            coordinator = keys_of(mount.address, tuple(where), shared.credentials)
            if coordinator is not None:
                found[mount.name] = coordinator
    return found
