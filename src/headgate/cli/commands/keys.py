"""``headgate keys``: the state of each credential, and an operator's change to one of them.

The state of a key belongs to one origin. A key is named by its label, by its id, or by either after its origin:
``key-2``, ``4b4db9``, ``openai/key-2``. Secrets are read (``--from``) only to recognise them; what is stored and shown
are labels and keyed hashes. An argument that is not understood is not repeated: it may be a key in the wrong place.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace

import click

from ...credentials.credential import Credential, labelled
from ...credentials.record import (
    ANY_PROVIDER,
    PARKED,
    RETIRED,
    CredentialStore,
    FarCredentialStore,
    Record,
    record_name,
)
from ...credentials.sources import credentials_from
from ...credentials.stores import FileStore, StoreError, open_credential_store
from ...errors import ConfigError
from ...identity import SHOWN_DIGITS, Identities
from ...stores import StoreDown
from ...units import read_duration
from ..ui.options import ExampleCommand, Notation, json_option
from ..ui.store_page import credential_fields, credential_sentence, credential_table
from ..ui.terminal import DONE, CommandFailed, complain, say, table_console

ACTIONS = ("park", "free", "retire")
MOST_NAMES = 10
"""Names in a message."""


def read_pause(text: str) -> float:
    """A duration. Anything else is not repeated: it may be a key in the wrong place."""
    try:
        return read_duration(text)
    except ValueError:
        raise ValueError("expected a time such as 90s, 10m, 2h or 30d") from None


def complete_action(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For a shell: the first word; labels are not listed, which would need the store."""
    is_first = not context.params.get("words")
    return [action for action in ACTIONS if action.startswith(incomplete)] if is_first else []


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate keys", "all known credentials and their state"),
        ("headgate keys --from env:OPENAI_API_KEY", "the state of the keys in OPENAI_API_KEY, OPENAI_API_KEY_1, ..."),
        ("headgate keys --from file:keys.txt", "the keys in a file, one per line: label=secret"),
        ("headgate keys --from 'cmd:pass show openai'", "the keys that a command prints"),
        ("headgate keys park key-2 --for 10m", "let key-2 rest for ten minutes"),
        ("headgate keys free key-2", "use it again now, whether it was resting or disabled"),
        ("headgate keys free openai/4b4db9", "the same by provider and id, if several have the same label"),
        ("headgate keys retire key-2", "disable it until it is freed"),
        ("headgate keys --json | jq .state", "for programs: one JSON line per credential"),
    ],
)
@click.argument("words", nargs=-1, metavar="[park|free|retire KEY]", shell_complete=complete_action)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="SOURCE",
    help="Only these keys: env:NAME, file:PATH or cmd:WORDS. Repeatable.  [default: all that programs have used]",
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
    help="The credential store: a file (SQLite, or JSON if it ends in .json) or redis://host:6379.  "
    '[default: the file of store="machine"]',
)
@json_option("Print one JSON line per credential.")
def command(
    words: tuple[str, ...], sources: tuple[str, ...], duration: float | None, state: str | None, as_json: bool
) -> int:
    """Show the state of keys; park, free or disable (retire) one.

    Programs that pass a store to their CredentialCoordinator share the state of their keys: which are resting after a
    rate limit and until when, which are out of quota, which are disabled. This command reads and changes the same
    store; running programs follow within seconds. The state is kept per provider and key: a key rejected at one address
    may be accepted at another. KEY is a label or id from the list, optionally as PROVIDER/KEY. Ids are six digits of a
    keyed hash; the keys themselves are never read from the command line, stored or shown.
    """
    action = check_action(words, duration)
    try:
        store = FileStore(state) if state is None or "://" not in state else open_credential_store(state)
        records = find(store, sources)
        if action is not None:
            records = [change(store, action, pick(records, words[1]), duration)]
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except (StoreError, StoreDown) as error:
        raise CommandFailed(f"{error}; choose another with --state.") from None
    if as_json:
        for record in records:
            click.echo(json.dumps(credential_fields(record, time.time())))
    elif action is not None:
        say(credential_sentence(records[0], time.time()))
    elif records:
        table_console().print(credential_table(records, time.time()))
    else:
        click.echo(
            f"No credentials in {getattr(store, 'path', None) or getattr(store, 'where', store)}.\n"
            "They appear once a program uses them: CredentialCoordinator(keys, store=...).\n"
            "Or give their source: headgate keys --from env:OPENAI_API_KEY"
        )
    return DONE


def check_action(words: tuple[str, ...], duration: float | None) -> str | None:
    """The action; None for the list."""
    if not words:
        if duration is not None:
            raise click.UsageError("--for needs park: headgate keys park KEY --for 10m.")
        return None
    if words[0] not in ACTIONS or len(words) != 2:
        raise click.UsageError(
            "expected park, free or retire and one label or id, or nothing for the list; do not put keys on the "
            "command line, where other users can see them."
        )
    if (words[0] == "park") != (duration is not None):
        raise click.UsageError("park needs --for, and the others do not take it: headgate keys park KEY --for 10m.")
    return words[0]


def find(store: CredentialStore, sources: tuple[str, ...]) -> list[Record]:
    """The records of the sources' credentials, or all. A change made before a program used the key is listed only until
    a program has used it: then it is in that program's record."""
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
    """The names of a credential, the best first; only the last is always unique."""
    shown = record.identity[:SHOWN_DIGITS]
    names = (record.label, f"{record.label}/{shown}", shown)  # the second as pages write it
    return *(one for name in names for one in (name, f"{record.provider}/{name}")), record.identity, record.name


def pick(records: list[Record], name: str) -> Record:
    """The record with this name, if there is exactly one."""
    found = [record for record in records if name in names_of(record)]
    if len(found) == 1:
        return found[0]
    several = found or records[:MOST_NAMES]
    uses = Counter(name for record in records for name in set(names_of(record)))
    unique = [next(one for one in names_of(record) if uses[one] == 1) for record in several[:MOST_NAMES]]
    if found:
        raise ConfigError(f"{len(found)} credentials match; choose one of {', '.join(unique)}")
    raise ConfigError(f"no credential has this label or id; known: {', '.join(unique) or 'none'}")


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
            raise ConfigError("it is disabled; free it first")
        until = max(now + (duration or 0.0), now + record.rests_for(now))
        changed = replace(record, written_at=now, until=until, reason=PARKED)
    store.save([changed, *lifted])
    return changed


def freed(record: Record, now: float) -> Record:
    return replace(record, written_at=now, era=record.era + 1, until=0.0, retired=False, reason="")
