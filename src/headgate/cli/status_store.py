"""``headgate status --store``: who shares which quota in a store, at which pace, and what holds them back.

A store knows keys by keyed hashes alone. Whoever names a key (``--key``) has its name shown: it is hashed as the
store does, by itself and together with each credential that the store knows of.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.core.decision import UNKNOWN
from headgate.core.gate_policy import FASTEST
from headgate.core.words import printable, span
from headgate.credentials.record import Record
from headgate.credentials.store import FileStore, StoreError
from headgate.errors import ConfigError
from headgate.identity import Identities
from headgate.stores import DeskView, Store, StoreDown, open_store
from headgate.stores.naming import shown
from headgate.wire.urls import host_key

from . import DONE, CommandFailed
from .keys import WIDTH_OF_A_PIPE, state_of
from .keys import as_fields as credential_fields
from .keys import show as show_credentials
from .sharing import MACHINE

PATIENCE = 2.0
"""Seconds for an answer: a person waits longer than a program."""
MOST_SHOWN = 20
"""Keys listed for a person; ``--json`` has them all."""
MOST_MEMBERS = 10
NUMBERS = ("rate", "at most", "in flight")
COLOURS = {"passing": "green", "idle": "dim"}


@dataclass(frozen=True, slots=True)
class Seen:
    where: str
    desks: list[DeskView]
    records: list[Record]
    names: dict[str, str]
    """What people call a key, by what the store shows of it."""


def show_store(where: str, keys: tuple[str, ...], *, as_json: bool) -> int:
    try:
        seen = look(where, keys)
    except ConfigError as error:
        raise click.UsageError(f"{error}.") from None
    except (StoreDown, StoreError) as error:
        raise CommandFailed(f"{error}.") from None
    if as_json:
        click.echo(json.dumps(as_fields(seen, time.time())))
    elif seen.desks or seen.records:
        show_page(seen, time.time())
    else:
        click.echo(
            f"Nothing is shared in {seen.where}.\n"
            "Programs share their limits there with AdaptiveRateLimiter(store=...), and headgate run with --store."
        )
    return DONE


def look(where: str, keys: Iterable[str]) -> Seen:
    """Raises ``ConfigError``, ``StoreDown`` or ``StoreError``. Changes nothing."""
    store: Store
    if where == MACHINE:
        store = open_store(MACHINE, timeout=PATIENCE)
        records, hashes = FileStore().load, Identities.of_user
    elif where.startswith("redis") and "://" in where:
        from headgate.credentials.redis_store import RedisCredentialStore

        store = both = RedisCredentialStore(where, timeout=PATIENCE)
        records, hashes = both.load, both.desk_names
    else:
        raise ConfigError("--store: it is no store that others can look into; write machine or redis://host:6379")
    with closing(store):
        desks = store.look()
        known = records()
        names = named(keys, known, hashes()) if desks else {}  # only then there is something to hash with
    return Seen(store.where, sorted(desks, key=_busiest_first), known, names)


def named(keys: Iterable[str], records: Iterable[Record], hashes: Identities) -> dict[str, str]:
    """What the store shows of these keys: of each alone, and of each with every credential or group."""
    pairs = {record.group or record.identity: record.group or record.label for record in records}
    names: dict[str, str] = {}
    for given in keys:
        key = host_key(given)
        names |= {shown(hashes.of(f"{key}/{last}")): f"{key} {label}" for last, label in pairs.items()}
        names[shown(hashes.of(key))] = key
    return names


def _busiest_first(desk: DeskView) -> tuple[float, float, str]:
    return -len(desk.members), UNKNOWN if desk.learned_ago is None else desk.learned_ago, desk.name


def state(desk: DeskView) -> str:
    """What a call would meet, in a few words."""
    if desk.circuit_open:
        return f"circuit open, {span(desk.open_for)} to go" if desk.open_for else "circuit half open"
    if desk.hold:
        return f"held for {span(desk.hold)}"
    return "passing" if desk.members else "idle"


def process_of(member: str) -> str:
    return member.partition("-")[2] or member


def pace(desk: DeskView) -> str:
    """Empty where it has none: a provider whose credentials have one each."""
    return f"{desk.rate:,.1f}/s" if desk.rate < FASTEST else ""


def as_fields(seen: Seen, now: float) -> dict[str, Any]:
    return {
        "store": seen.where,
        "keys": [
            {
                "id": desk.name,
                "name": seen.names.get(desk.name),
                "state": state(desk),
                "rate": desk.rate if desk.rate < FASTEST else None,
                "hold": desk.hold,
                "at_most": desk.cap or None,
                "circuit_open": desk.circuit_open,
                "open_for": desk.open_for,
                "learned_ago": desk.learned_ago,
                "members": [
                    {
                        "process": process_of(one.name),
                        "in_flight": one.flying,
                        "waits": one.hungry,
                        "leads": one.leads,
                        "seen_ago": one.seen_ago,
                    }
                    for one in desk.members
                ],
            }
            for desk in seen.desks
        ],
        "credentials": [credential_fields(record, now) for record in seen.records],
    }


def show_page(seen: Seen, now: float) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_A_PIPE
    members = {one.name for desk in seen.desks for one in desk.members}
    console.print(Text(f"{seen.where}: {_count(len(seen.desks), 'key')}, {_count(len(members), 'process')} at work"))
    if seen.desks:
        console.print()
        console.print(table_of(seen))
    if len(seen.desks) > MOST_SHOWN:
        console.print(Text(f"... and {len(seen.desks) - MOST_SHOWN:,} more keys; --json has them all", "dim"))
    away = [record for record in seen.records if state_of(record, now) != "free"]
    if away:
        console.print()
        show_credentials(away, now)


def table_of(seen: Seen) -> Table:
    rows = [row for desk in seen.desks[:MOST_SHOWN] for row in rows_of(desk, seen.names.get(desk.name, ""))]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        if any(row[name] for row in rows):
            table.add_column(name, justify="right" if name in NUMBERS else "left", overflow="fold")
    for row in rows:
        styles = {"state": COLOURS.get(row["state"], "yellow"), "rate": "cyan", "role": "dim", "seen": "dim"}
        names = [str(column.header) for column in table.columns]
        table.add_row(*(Text(printable(row[name]), style=styles.get(name, "")) for name in names))
    return table


def rows_of(desk: DeskView, name: str) -> list[dict[str, str]]:
    """A line for the key with the first of its members, and one for each further member."""
    about = {
        "key": desk.name,
        "name": name,
        "rate": pace(desk),
        "state": state(desk),
        "at most": f"{desk.cap:,.0f}" if desk.cap else "",
        "learned": "" if desk.learned_ago is None else f"{span(desk.learned_ago)} ago",
    }
    cells = [
        {
            "process": process_of(one.name),
            "in flight": f"{one.flying:,}",
            "seen": f"{span(one.seen_ago)} ago",
            "role": " ".join(word for word, holds in (("leads", one.leads), ("waits", one.hungry)) if holds),
        }
        for one in desk.members[:MOST_MEMBERS]
    ]
    if len(desk.members) > MOST_MEMBERS:
        more = f"... and {len(desk.members) - MOST_MEMBERS:,} more"
        cells.append({"process": more, "in flight": "", "seen": "", "role": ""})
    cells = cells or [dict.fromkeys(("process", "in flight", "seen", "role"), "")]
    blank = dict.fromkeys(about, "")
    return [{**(blank if place else about), **cell} for place, cell in enumerate(cells)]


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "es" if word.endswith("s") else "s")
