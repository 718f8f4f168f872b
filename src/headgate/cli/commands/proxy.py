"""``headgate proxy``: a local reverse proxy that gives the gate to any program in any language, by its base URL."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console, RenderableType

from ...batch.endpoints import KNOWN_ENDPOINTS, TargetConfig
from ...config import RateLimitConfig
from ...credentials import CredentialCoordinator
from ...errors import ConfigError
from ...formatting import redact
from ...integrations.client_gate import ClientGate
from ...integrations.fallback import ClientFallbacks
from ...integrations.origins import OriginCredentials, origin_of
from ...observe.event_buffer import is_routine
from ...observe.monitor import RunMonitor
from ...observe.snapshot import plain
from ...proxy import Mount, Proxy, lines_of, mounts_of
from ...proxy.proxied_request import Counts
from ...resilience.config import REMEMBERED
from ...resilience.fallback import read_fallbacks
from ...wire.urls import host_key
from ..ui.config_file import config_option
from ..ui.display import Display, Mode, Summary
from ..ui.observe_options import ObservedCommand, ObserveOptions, observe_options, observed
from ..ui.options import (
    DURATION,
    allow_host_option,
    complete_from,
    count_option,
    fallback_credentials,
    fallback_option,
    groups_option,
    host_option,
    json_option,
    limits_option,
    port_option,
)
from ..ui.run_page import MOST_EVENTS, RunView, run_line, run_page
from ..ui.session import access_token, cannot_listen, run_async, run_to_end
from ..ui.shared_state import MACHINE, SharedState, is_key_set, store_option, vendor_coordinator
from ..ui.terminal import DONE, STOPPED, CannotStart

TOKEN_VARIABLE = "HEADGATE_PROXY_TOKEN"  # noqa: S105  # its name, not a token
USUAL_PORT = 8747
NO_KEYS = "none"
SOURCES = ("env:", "file:", "cmd:")
SCREEN_EVERY = 0.5


@click.command(
    cls=ObservedCommand,
    examples=[
        ("headgate proxy --to openai", "then start any program with OPENAI_BASE_URL=http://127.0.0.1:8747/v1"),
        (
            "curl http://127.0.0.1:8747/v1/models",
            "no key needed: the proxy adds OPENAI_API_KEY, so programs do not need it",
        ),
        ("headgate proxy --to openai --to anthropic", "several: http://127.0.0.1:8747/openai/v1, .../anthropic"),
        (
            "headgate proxy --to https://api.example.com --keys file:keys.txt --limits requests=500/min",
            "any API; rotates several keys; a known limit (without one it is learned)",
        ),
        (
            "headgate proxy --to api=https://api.example.com --to local=http://localhost:8000 --keys api=env:API_KEY",
            "your own names, and a key for one; the other passes on the key of each program",
        ),
        ("headgate proxy --to openai --keys none --store redis://cache:6379", "own key per program; one shared quota"),
        (
            "HEADGATE_PROXY_TOKEN=$(openssl rand -hex 24) headgate proxy --to openai --host 0.0.0.0",
            "for other machines too: needs a token, which programs send as their API key",
        ),
        ("headgate mock --provider openai --rate 5/s --port 8080", "try it: a mock API, and ..."),
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
    shell_complete=complete_from(KNOWN_ENDPOINTS),
    help=f"The API: a URL such as https://api.example.com, or one of {', '.join(KNOWN_ENDPOINTS)}. Only scheme, host "
    "and port change; a path in the URL is the only one forwarded. Repeatable: each is then served below /NAME/.",
)
@click.option(
    "--keys",
    "sources",
    multiple=True,
    metavar="[NAME=]SOURCE",
    help="Keys that the proxy adds: env:NAME, file:PATH or cmd:WORDS, or none if programs send their own. Repeatable.  "
    "[default: the vendor's usual variable, if it is set]",
)
@groups_option
@limits_option
@fallback_option
@click.option(
    "--max-wait",
    type=DURATION,
    default="10min",
    show_default=True,
    help="Refuse calls that would wait longer (429, Retry-After).",
)
@click.option(
    "--when-open",
    type=click.Choice(["wait", "refuse"]),
    default="wait",
    show_default=True,
    help="While the circuit of an API is open: wait for its next probe, within --max-wait, or refuse calls "
    "(503, Retry-After).",
)
@click.option(
    "--time-budget",
    type=DURATION,
    help="Time limit of a call until its answer begins, including waits and retries.  [default: no limit]",
)
@count_option("--retries", "Maximum retries of a failed call, where that is safe: not a POST.", 0, 100, default=2)
@click.option(
    "--timeout", type=DURATION, default="10min", show_default=True, help="Maximum time without data from an API."
)
@port_option(USUAL_PORT, "The port to listen on; 0 takes a free one.")
@host_option(TOKEN_VARIABLE)
@allow_host_option
@store_option(MACHINE)
@config_option
@observe_options
@json_option("Print the address, progress and the summary as JSON lines.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the address and the last line.")
def command(targets: tuple[str, ...], sources: tuple[str, ...], as_json: bool, quiet: bool, **given: Any) -> int:
    """Rate limit any program in any language: start this, and change the program's base URL.

    Calls go through as fast as the API allows, and wait instead of getting a 429. Retry-After and rate-limit headers
    are followed, several keys are rotated, and all programs on this machine share one quota. Request and response
    bodies, including streams, pass unchanged.

    The proxy adds its own keys and drops those of the programs. It accepts only requests from this machine, and none
    from web pages.

    Ctrl-C finishes the calls in flight and accepts no new ones; press it again to stop now. Exit code 0: all finished;
    4: some were cancelled.
    """
    token = access_token(given["host"], TOKEN_VARIABLE)
    try:
        mounts = mounts_of(targets)
        options, shared = ObserveOptions.of(given), SharedState.open(given["store"])
        keys = coordinators(mounts, sources, shared, given["groups"])
        gate = gate_of(mounts, keys, shared, given)
        gate.fallbacks = fallbacks_of(mounts, keys, shared, given["fallback"])
        proxy = Proxy(
            mounts,
            gate,
            keyed=tuple(keys),
            host=given["host"],
            port=given["port"],
            token=token,
            allow_hosts=given["names"],
            timeout=given["timeout"],
        )
    except ConfigError as error:
        raise click.UsageError(redact(f"{error}.")) from None
    monitor = RunMonitor(
        limiter=gate.limiter,
        credentials=keys,
        emitters=(gate.hosts,),
        progress=proxy.progress,
        kind="proxy",
        title=f"to {', '.join(mount.name for mount in mounts)}",
    )
    try:
        with observed(options, lambda: monitor, quiet=quiet) as run, monitor:
            summary = run_async(serve(proxy, monitor, as_json=as_json, quiet=quiet))
            run.end(summary)
    finally:
        gate.close()  # returns its share of the quota to the other processes at once
    return run.exit_code(summary.code)


def gate_of(
    mounts: Sequence[Mount], keys: dict[str, CredentialCoordinator], shared: SharedState, given: dict[str, Any]
) -> ClientGate:
    """The gate that all calls pass; raises ``ConfigError``."""
    by_name = {host_key(mount.address.name): keys.get(mount.name) for mount in mounts}

    def coordinator_of(key: str) -> CredentialCoordinator | None:
        return by_name.get(key.partition("/")[0])

    def bound(mount: Mount) -> tuple[CredentialCoordinator, str]:
        return keys[mount.name], f"{mount.address.key_header}: {mount.address.key_prefix}{{secret}}"

    config = RateLimitConfig(limits=given["limits"] or {}, domain_state_ttl=REMEMBERED)
    shared.warn_if_uncounted(config)
    return ClientGate(
        config=config,
        store=shared.quotas_of(coordinator_of if keys else None),
        credentials={mount.origin: bound(mount) for mount in mounts if mount.name in keys},
        key=lines_of(mounts, learn_others=bool(given["fallback"])),
        max_wait=given["max_wait"],
        when_open=given["when_open"],
        time_budget=given["time_budget"],
        retries=given["retries"],
    )


def fallbacks_of(
    mounts: Sequence[Mount], keys: dict[str, CredentialCoordinator], shared: SharedState, given: Sequence[str]
) -> ClientFallbacks | None:
    """Raises ``ConfigError`` and ``UsageError``."""
    fallbacks = read_fallbacks(given)
    if not fallbacks:
        return None
    if len(mounts) > 1:
        raise click.UsageError("--fallback is for a proxy with one --to; start another proxy for the other targets.")
    address = mounts[0].address
    to = TargetConfig(to=address.base_url, dialect="" if address.name in KNOWN_ENDPOINTS else address.dialect)
    primary = None
    if mounts[0].name in keys:
        form = f"{address.key_prefix}{{secret}}"
        primary = OriginCredentials(origin_of(mounts[0].origin), keys[mounts[0].name], address.key_header, form)
    return ClientFallbacks(
        address.base_url,
        fallbacks,
        dialect=to.dialect or "openai",
        primary=primary,
        coordinator=lambda fallback, _: fallback_credentials(to, fallback, shared),
    )


def coordinators(
    mounts: Sequence[Mount], sources: Sequence[str], shared: SharedState, groups: str = "headers"
) -> dict[str, CredentialCoordinator]:
    """By the names of the targets; for a target without one, each program sends its own key."""
    sources_of: dict[str, list[str]] = {}
    names = [mount.name for mount in mounts]
    for number, text in enumerate(sources, 1):
        name, equals, source = text.partition("=")
        if text == NO_KEYS or text.startswith(SOURCES):
            if len(mounts) > 1 and text != NO_KEYS:
                raise click.UsageError(f"--keys: with several targets, write NAME=SOURCE; NAME is {', '.join(names)}.")
            for name in names:
                sources_of.setdefault(name, []).append(text)
        elif equals and name in names:
            sources_of.setdefault(name, []).append(source)
        else:  # not repeated: it may be a key in the wrong place
            raise click.UsageError(
                f"--keys, number {number}: expected env:NAME, file:PATH, cmd:WORDS or none, with NAME= before it for "
                f"several targets; NAME is {', '.join(names)}."
            )
    found: dict[str, CredentialCoordinator] = {}
    for mount in mounts:
        where = sources_of.get(mount.name, [])
        if NO_KEYS in where:
            if len(where) > 1:
                raise click.UsageError(f"--keys: {mount.name} has both none and a source; pass one of them.")
            continue
        if where or is_key_set(mount.address.key_variable):
            address = mount.address
            found_keys = vendor_coordinator(address.name, address.key_variable, tuple(where), shared, groups)
            if found_keys is not None:
                found[mount.name] = found_keys
    return found


# ---------------------------------------------------------------------- while it serves


@dataclass(frozen=True, slots=True)
class ProxyProgress:
    """A ``Frame`` of the proxy: what ``headgate watch`` shows of it."""

    view: RunView
    counts: Counts

    def lines(self) -> list[str]:
        return [run_line(self.view.snapshot)]

    def render(self, width: int, height: int) -> RenderableType:
        return run_page(self.view, width, height)

    def fields(self) -> list[dict[str, Any]]:
        return [{"event": "look", **asdict(self.counts), "waits": plain(self.view.snapshot.waits)}]


async def serve(proxy: Proxy, monitor: RunMonitor, *, as_json: bool, quiet: bool) -> Summary:
    """Serve until Ctrl-C."""
    try:
        await proxy.__aenter__()
    except (OSError, UnicodeError) as error:
        raise CannotStart(cannot_listen(error, proxy.host, proxy.port)) from None
    drained = asyncio.Event()
    draining: list[asyncio.Task[None]] = []

    def sample() -> ProxyProgress:
        events = [line for line in monitor.events(0) if not is_routine(line)]
        return ProxyProgress(RunView(monitor.snapshot(), events[-MOST_EVENTS:]), proxy.counts)

    def stop(*, now: bool) -> None:
        if now:
            drained.set()
            return
        draining.append(asyncio.create_task(proxy.drain()))
        draining[0].add_done_callback(lambda _: drained.set())

    display = display_of(as_json=as_json, quiet=quiet)
    try:
        announce(proxy, as_json=as_json, quiet=quiet)
        await run_to_end(drained.wait(), display, sample, stop)
    finally:
        for task in draining:
            task.cancel()
        cancelled = await proxy.stop()
    summary = summarize(proxy.counts, cancelled)
    display.end(summary)
    return summary


def display_of(*, as_json: bool, quiet: bool) -> Display:
    """All but JSON goes to standard error: standard output has the base URLs."""
    if as_json:
        return Display(Mode.JSON)
    console = Console(stderr=True, highlight=False)
    if console.is_terminal and not quiet:
        return Display(Mode.SCREEN, every=SCREEN_EVERY, summary_err=True, console=console)
    return Display(Mode.QUIET if quiet else Mode.LINES, summary_err=True)


def announce(proxy: Proxy, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        targets = [
            {
                "name": mount.name,
                "to": mount.address.base_url,
                "base_url": proxy.url + mount.base_path,
                "keys": mount.name in proxy.keyed,
            }
            for mount in proxy.mounts
        ]
        click.echo(json.dumps({"event": "listening", "url": proxy.url, "targets": targets}))
    else:
        for mount in proxy.mounts:
            click.echo(f"{mount.variable or f'{mount.name}: base URL'}={proxy.url}{mount.base_path}")
            if not quiet:
                keys = "the proxy adds the key" if mount.name in proxy.keyed else "each program sends its own key"
                click.echo(f"    to {mount.address.base_url}; {keys}")
        if not quiet:
            click.echo("Press Ctrl-C to stop.")
    sys.stdout.flush()


_ENDINGS = {
    "answered": "answered",
    "moved": "by a fallback",
    "refused": "refused by the gate",
    "failed": "failed",
    "turned_away": "rejected as invalid",
    "left": "cancelled by the client",
}


def summarize(counts: Counts, cancelled: int) -> Summary:
    found = asdict(counts)
    text = ", ".join(
        f"{found[name]:,} {words}" for name, words in _ENDINGS.items() if found[name] or name == "answered"
    )
    more = f"; {cancelled:,} cancelled" if cancelled else ""
    return Summary(
        code=STOPPED if cancelled else DONE,
        headline="",
        next=f"Calls: {text}{more}.",
        fields={"event": "ended", **asdict(counts), "cut_off": cancelled},
    )
