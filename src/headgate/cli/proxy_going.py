"""A proxy under way: what to set is told at the start, what happens while it goes, what has come of it at the end."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass

import click
from rich.console import Console

from headgate.observe.snapshot import plain
from headgate.observe.watched import Watched
from headgate.observe.wording import is_routine
from headgate.proxy import Mount, Proxy

from . import DONE, STOPPED, CommandFailed, say
from .live_display import LiveDisplay
from .mock import why_not
from .run_going import on_interrupts
from .watch_page import MOST_EVENTS, Look, line_of, page_of

LINE_EVERY, SCREEN_EVERY = 5.0, 0.5


@dataclass(frozen=True, slots=True)
class Ending:
    code: int
    about: str


async def go(proxy: Proxy, watched: Watched, *, as_json: bool, quiet: bool) -> Ending:
    """Serve until somebody ends it."""
    try:
        await proxy.__aenter__()
    except (OSError, UnicodeError) as error:
        raise CommandFailed(why_not(error, proxy.host, proxy.port)) from None
    over, cut = asyncio.Event(), 0
    draining: asyncio.Task[None] | None = None

    def heard(times: int) -> None:
        nonlocal draining
        if times == 1:
            if not quiet and not as_json:
                say("Stopping: calls that are out are finished. Ctrl-C again leaves them.", err=True)
            draining = asyncio.create_task(proxy.drain())
            draining.add_done_callback(lambda _: over.set())
        else:
            over.set()

    try:
        announce(proxy, as_json=as_json, quiet=quiet)
        with on_interrupts(heard):
            await show(proxy, watched, over, as_json=as_json, quiet=quiet)
    finally:
        if draining is not None:
            draining.cancel()
        cut = await proxy.stop()
    counts = asdict(proxy.counts)
    about = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items())
    about = f"{about}; {cut:,} cut off." if cut else f"{about}."
    if as_json:
        click.echo(json.dumps({"event": "ended", **counts, "cut_off": cut}))
    else:
        click.echo(f"Calls: {about}", err=True)
    return Ending(STOPPED if cut else DONE, f"Calls: {about}")


async def show(proxy: Proxy, watched: Watched, over: asyncio.Event, *, as_json: bool, quiet: bool) -> None:
    console = Console(stderr=True, highlight=False)
    on_screen = console.is_terminal and not (as_json or quiet)
    told = ""
    with LiveDisplay(console) if on_screen else nullcontext() as display:
        while not over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(SCREEN_EVERY if on_screen else LINE_EVERY):
                    await over.wait()
            snapshot = watched.snapshot()
            if display is not None:
                events = [line for line in watched.events(0) if not is_routine(line)][-MOST_EVENTS:]
                display.show(page_of([Look(snapshot, events)], console.width, console.height))
            elif as_json:
                click.echo(json.dumps({"event": "look", **asdict(proxy.counts), "waits": plain(snapshot.waits)}))
            elif not quiet and (line := line_of(snapshot)) != told:  # nothing new is not worth a line
                told = line
                say(line, err=True)


def announce(proxy: Proxy, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        targets = [
            {"name": mount.name, "to": mount.address.base_url, "base_url": base_of(proxy, mount), "keys": keyed}
            for mount in proxy.mounts
            for keyed in [mount.name in proxy.keyed]
        ]
        click.echo(json.dumps({"event": "listening", "url": proxy.url, "targets": targets}))
    else:
        for mount in proxy.mounts:
            click.echo(f"{mount.variable or f'{mount.name}: base URL'}={base_of(proxy, mount)}")
            if not quiet:
                whose = "the proxy adds the key" if mount.name in proxy.keyed else "each program sends its own key"
                click.echo(f"    to {mount.address.base_url}; {whose}")
        if not quiet:
            click.echo("Ctrl-C ends it.")
    sys.stdout.flush()


def base_of(proxy: Proxy, mount: Mount) -> str:
    return proxy.url + mount.base_path
