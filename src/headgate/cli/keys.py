"""``headgate keys``: how each credential stands, and an operator's word about one of them.

What is known of a key belongs to one origin. A key is named by its label, by its id, or by either after its origin:
``key-2``, ``4b4db9``, ``openai/key-2``. Secrets are read (``--from``) only to recognise them; what is kept and shown
are labels and keyed hashes. A word that is not understood is not repeated: it may be a key in the wrong place.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import click

from headgate.core.words import printable, span
from headgate.credentials.credential import Credential, labelled
from headgate.credentials.messenger import IDLE_EVERY
from headgate.credentials.opening import open_credential_store
from headgate.credentials.record import (
    ANY_PROVIDER,
    PARKED,
    RETIRED,
    CredentialStore,
    FarCredentialStore,
    Record,
    record_name,
)
from headgate.credentials.sources import credentials_from
from headgate.credentials.store import FileStore, StoreError
from headgate.errors import ConfigError
from headgate.identity import SHOWN_DIGITS, Identities
from headgate.sim.notation import read_duration
from headgate.stores import StoreDown

from . import DONE, CommandFailed, complain, say
from .examples import ExampleCommand
from .notation import Notation

ACTIONS = ("park", "free", "retire")
WIDTH_OF_A_PIPE = 400
"""Columns for programs that read lines: wide enough for the longest labels there may be."""
MOST_OFFERED = 10
"""Names in a message."""
COLOURS = {"free": "green", "resting": "yellow", "retired": "red"}


def read_pause(text: str) -> float:
    """A duration. What is none is not repeated: it may be a key in the wrong place."""
    try:
        return read_duration(text)
    except ValueError:
        raise ValueError("it must be a time such as 90s, 10m, 2h or 30d") from None


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate keys", "which credentials are known, and which of them rest?"),
        ("headgate keys --from env:OPENAI_API_KEY", "how do the keys in OPENAI_API_KEY, OPENAI_API_KEY_1, ... stand?"),
        ("headgate keys --from file:keys.txt", "the keys in a file: a line for each, label=secret"),
        ("headgate keys --from 'cmd:pass show openai'", "the keys that a command prints"),
        ("headgate keys park key-2 --for 10m", "let key-2 rest for ten minutes"),
        ("headgate keys free key-2", "use it again at once, whether it rested or was retired"),
        ("headgate keys free openai/4b4db9", "the same, by provider and id, where several have one label"),
        ("headgate keys retire key-2", "use it no more, until it is freed"),
        ("headgate keys --json | jq .state", "for programs: one JSON line for each"),
    ],
)
@click.argument("words", nargs=-1, metavar="[park|free|retire KEY]")
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="SOURCE",
    help="Where the keys are: env:NAME, file:PATH or cmd:WORDS. Repeatable. Without it, all that programs have used.",
)
@click.option(
    "--for",
    "duration",
    type=Notation("TIME", read_pause),
    help="With park: how long, such as 90s, 10m, 2h or 30d.",
)
@click.option(
    "--state",
    metavar="FILE|URL",
    help="Where programs keep how their credentials stand: a file, SQLite or JSON if it ends in .json, or "
    'redis://host:6379.  [default: the file of store="machine"]',
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line for each credential.")
def command(
    words: tuple[str, ...], sources: tuple[str, ...], duration: float | None, state: str | None, as_json: bool
) -> int:
    """Show how credentials stand, and park, free or retire one.

    Programs that give their CredentialCoordinator a store share what they know of their keys: which of them rest after
    a rate limit, until when, which are used up or not accepted any more. This command reads and changes the same store;
    running programs follow a change within seconds. What is known belongs to a provider and a key: one that is refused
    at one address may be accepted at another. KEY is a label or an id of the list, or either after its provider and a
    slash. Ids are six digits of a keyed hash; the keys themselves are never taken from the command line, never stored
    and never shown.
    """
    action = check(words, duration)
    try:
        store = FileStore(state) if state is None or "://" not in state else open_credential_store(state)
        records = find(store, sources)
        if action is not None:
            records = [change(store, action, pick(records, words[1]), duration)]
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except (StoreError, StoreDown) as error:
        raise CommandFailed(f"{error}; name another with --state.") from None
    if as_json:
        for record in records:
            click.echo(json.dumps(as_fields(record, time.time())))
    elif action is not None:
        say(as_sentence(records[0], time.time()))
    elif records:
        show(records, time.time())
    else:
        click.echo(
            f"No credentials are known in {getattr(store, 'path', None) or getattr(store, 'where', store)}.\n"
            "They are once a program uses them: CredentialCoordinator(keys, store=...).\n"
            "Or say where they are: headgate keys --from env:OPENAI_API_KEY"
        )
    return DONE


def check(words: tuple[str, ...], duration: float | None) -> str | None:
    """The action asked for, None for the list."""
    if not words:
        if duration is not None:
            raise click.UsageError("--for goes with park: headgate keys park KEY --for 10m.")
        return None
    if words[0] not in ACTIONS or len(words) != 2:
        raise click.UsageError(
            "write park, free or retire and one label or id, or nothing for the list; keys themselves do not belong on "
            "the command line, where others can see them."
        )
    if (words[0] == "park") != (duration is not None):
        raise click.UsageError("park, and only park, needs to know how long: headgate keys park KEY --for 10m.")
    return words[0]


def find(store: CredentialStore, sources: tuple[str, ...]) -> list[Record]:
    """What is known of the credentials of the sources, or of all. What was said before a program used one is listed
    only until a program has: then it is in that program's record."""
    records = sorted(store.load(), key=lambda record: (record.provider, record.label, record.identity))
    used = {record.identity for record in records if record.provider != ANY_PROVIDER}
    known = [record for record in records if record.provider != ANY_PROVIDER or record.identity not in used]
    if not sources:
        return known
    identities = store.identities() if isinstance(store, FarCredentialStore) else Identities.of_user()
    try:
        given: list[Credential] = [one for source in sources for one in credentials_from(source, warn=complain)]
        asked = [(identities.of(one.secret), one) for one in labelled(given)]
    except ConfigError as error:
        raise ConfigError(f"--from: {error}") from None
    found: list[Record] = []
    for identity, one in asked:
        unused = Record(
            identity=identity, label=one.label, provider=ANY_PROVIDER, group=one.group, written_at=time.time()
        )
        found += [record for record in known if record.identity == identity] or [unused]
    return found


def names_of(record: Record) -> tuple[str, ...]:
    """What it may be called, the best first; only the last is its own in any case."""
    shown = record.identity[:SHOWN_DIGITS]
    names = (record.label, f"{record.label}/{shown}", shown)  # the second as pages write it
    return *(one for name in names for one in (name, f"{record.provider}/{name}")), record.identity, record.name


def pick(records: list[Record], name: str) -> Record:
    """The one that is called so, if it is one alone."""
    found = [record for record in records if name in names_of(record)]
    if len(found) == 1:
        return found[0]
    several = found or records[:MOST_OFFERED]
    bearers = Counter(name for record in records for name in set(names_of(record)))
    offered = [next(one for one in names_of(record) if bearers[one] == 1) for record in several[:MOST_OFFERED]]
    if found:
        raise ConfigError(f"{len(found)} credentials are called so; write one of {', '.join(offered)}")
    raise ConfigError(f"no credential has this label or id; there are: {', '.join(offered) or 'none'}")


def change(store: CredentialStore, action: str, record: Record, duration: float | None) -> Record:
    now = time.time()
    lifted: list[Record] = []
    if action == "free":
        changed = freed(record, now)
        before_use = record_name(record.identity, ANY_PROVIDER)
        lifted = [freed(one, now) for one in store.load() if one.name == before_use != record.name]
    elif action == "retire":
        changed = replace(record, written_at=now, retired=True, reason=RETIRED)
    else:
        if record.retired:
            raise ConfigError("it is retired, so it rests already; free it first")
        until = max(now + (duration or 0.0), now + record.rests_for(now))
        changed = replace(record, written_at=now, until=until, reason=PARKED)
    store.save([changed, *lifted])
    return changed


def freed(record: Record, now: float) -> Record:
    return replace(record, written_at=now, era=record.era + 1, until=0.0, retired=False, reason="")


def state_of(record: Record, now: float) -> str:
    if record.retired:
        return "retired"
    return "resting" if record.rests_for(now) > 0 else "free"


def as_fields(record: Record, now: float) -> dict[str, Any]:
    state = state_of(record, now)
    rest = record.rests_for(now) if state == "resting" else 0.0
    return {
        "label": record.label,
        "provider": "" if record.provider == ANY_PROVIDER else record.provider,
        "shown": record.identity[:SHOWN_DIGITS],
        "group": record.group,
        "state": state,
        "back_in": rest or None,
        "back_at": now + rest if rest else None,
        "budget": record.budget_at(now),
        "reason": record.reason if state != "free" else "",
    }


def as_sentence(record: Record, now: float) -> str:
    does = {
        "resting": f"rests for {span(record.rests_for(now))}, until {clock_time(now + record.rests_for(now), now)}",
        "retired": "is retired",
        "free": "is free",
    }[state_of(record, now)]
    return (
        f"{record.label} [{record.identity[:SHOWN_DIGITS]}] {does}. "
        f"Running programs follow it within about {IDLE_EVERY:g} seconds."
    )


def clock_time(at: float, now: float) -> str:
    near = abs(at - now) < 12 * 3600
    return time.strftime("%H:%M:%S" if near else "%Y-%m-%d %H:%M", time.localtime(at))


def show(records: list[Record], now: float) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_A_PIPE
    table = Table(box=None, pad_edge=False, header_style="bold")
    rows = [as_cells(as_fields(record, now), now) for record in records]
    for name in rows[0]:
        if name in ("label", "id", "state") or any(row[name] for row in rows):
            table.add_column(name, justify="right" if name in ("back in", "calls left") else "left", overflow="fold")
    for row in rows:
        styles = {"state": COLOURS[row["state"]]}
        table.add_row(
            *(
                Text(printable(row[str(column.header)]), style=styles.get(str(column.header), ""))
                for column in table.columns
            )
        )
    console.print(table)


def as_cells(fields: dict[str, Any], now: float) -> dict[str, str]:
    return {
        "label": fields["label"],
        "provider": fields["provider"],
        "id": fields["shown"],
        "group": fields["group"] or "",
        "state": fields["state"],
        "back in": span(fields["back_in"]) if fields["back_in"] else "",
        "at": clock_time(fields["back_at"], now) if fields["back_at"] else "",
        "calls left": "" if fields["budget"] is None else f"{max(0.0, fields['budget']):,.0f}",
        "why": fields["reason"].replace("_", " "),
    }
