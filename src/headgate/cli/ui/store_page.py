"""What a store holds, as tables: which processes share which quota, and the state of each credential.

A store holds keyed hashes of keys only. A key that is named (``--key``) is shown by its name: it is hashed as the store
does, alone and together with each credential that the store knows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...core.decision import UNKNOWN
from ...core.gate_config import FASTEST
from ...credentials.record import ANY_PROVIDER, RETIRED, Record
from ...credentials.store_sync import CHECK_IDLE_EVERY
from ...credentials.stores import FileStore, StoreError
from ...distributed.store import shown
from ...errors import ConfigError
from ...formatting import format_seconds, printable, redact
from ...identity import KEY_BYTES, SHOWN_DIGITS, Identities
from ...stores import QuotaView, Store, StoreDown, is_redis, open_store
from ...wire.urls import host_key
from .display import STATE_WORDS, clock_time, plural
from .run_page import RunsFrame
from .shared_state import MACHINE

RAY = "ray"
PATIENCE = 2.0
"""Seconds for an answer: a person waits longer than a program."""
MOST_SHOWN = 20
"""Keys listed for a person; ``--json`` has them all."""
MOST_MEMBERS = 10
NUMBERS = ("rate", "most in flight", "in flight", "back in", "calls left")
GATE_STYLES = {"passing": "green", "idle": "dim"}
CREDENTIAL_STYLES = {"free": "green", "resting": "yellow", "disabled": "red"}


@dataclass(frozen=True, slots=True)
class StoreContent:
    """A ``Frame`` of a store."""

    where: str
    gates: list[QuotaView]
    records: list[Record]
    names: dict[str, str]
    """The names that were given, by the hashes the store shows."""
    at: float
    """When it was read: Unix time."""
    runs: RunsFrame | None = None
    """The fleet runs that are reported there, if there are any."""

    @property
    def is_empty(self) -> bool:
        return not (self.gates or self.records or self.runs)

    @property
    def headline(self) -> str:
        members = {one.name for gate in self.gates for one in gate.members}
        return f"{self.where}: {plural(len(self.gates), 'key')}, {plural(len(members), 'active process')}"

    @property
    def unusable(self) -> list[Record]:
        return [record for record in self.records if credential_state(record, self.at) != "free"]

    def lines(self) -> list[str]:
        lines = [*([] if self.runs is None else self.runs.lines()), self.headline]
        for gate in self.gates:
            state = ", ".join(filter(None, (rate_text(gate), gate_state(gate))))
            lines.append(f"  {self.names.get(gate.name) or gate.name}: {state}")
        return [*lines, *(credential_sentence(record, self.at) for record in self.unusable)]

    def render(self, width: int, height: int) -> RenderableType:
        """The runs first, then what is shared; without runs, also that nothing is."""
        parts: list[RenderableType] = [] if self.runs is None else [self.runs.render(width, height)]
        if self.gates or self.records or not parts:
            parts += [*([Text()] if parts else []), Text(self.headline, "bold")]
        parts += [Text(), gate_table(self)] if self.gates else []
        if len(self.gates) > MOST_SHOWN:
            parts.append(Text(f"... and {len(self.gates) - MOST_SHOWN:,} more keys; --json has them all", "dim"))
        parts += [Text(), credential_table(self.unusable, self.at)] if self.unusable else []
        return Group(*parts)

    def fields(self) -> list[dict[str, Any]]:
        return [*self.run_fields(), {"event": "store", **self.content_fields()}]

    def run_fields(self) -> list[dict[str, Any]]:
        return [] if self.runs is None else self.runs.fields()

    def content_fields(self) -> dict[str, Any]:
        return {
            "store": self.where,
            "keys": [
                {
                    "id": gate.name,
                    "name": self.names.get(gate.name),
                    "state": gate_state(gate),
                    "rate": gate.rate if gate.rate < FASTEST else None,
                    "hold": gate.hold,
                    "at_most": gate.cap or None,
                    "circuit_open": gate.circuit_open,
                    "open_for": gate.open_for,
                    "learned_ago": gate.learned_ago,
                    "members": [
                        {
                            "process": process_of(one.name),
                            "in_flight": one.flying,
                            "waits": one.hungry,
                            "leads": one.leads,
                            "seen_ago": one.seen_ago,
                        }
                        for one in gate.members
                    ],
                }
                for gate in self.gates
            ],
            "credentials": [credential_fields(record, self.at) for record in self.records],
        }


@dataclass(frozen=True, slots=True)
class StoreUnreachable:
    """A ``Frame`` of a store that does not answer; it may come back."""

    message: str

    def lines(self) -> list[str]:
        return [self.message]

    def render(self, width: int, height: int) -> RenderableType:
        return Text(self.message, "red")

    def fields(self) -> list[dict[str, Any]]:
        return [{"event": "unreachable", "reason": self.message}]


def store_frame(where: str, keys: Iterable[str]) -> StoreContent | StoreUnreachable:
    try:
        return read_store(where, keys)
    except ConfigError as error:
        raise click.UsageError(f"{error}.") from None
    except (StoreDown, StoreError) as error:
        return StoreUnreachable(redact(f"{error}."))


def read_store(where: str, keys: Iterable[str]) -> StoreContent:
    """Raises ``ConfigError``, ``StoreDown`` or ``StoreError``. Changes nothing."""
    store: Store
    if where == MACHINE:
        store = open_store(MACHINE, timeout=PATIENCE)
        records, hashes = FileStore().load, Identities.of_user
    elif is_redis(where):
        from ...credentials.redis_store import RedisCredentialStore

        store = both = RedisCredentialStore(where, timeout=PATIENCE)
        records, hashes = both.load, both.key_names
    elif where == RAY:
        store, records, hashes = open_store(RAY), list, lambda: Identities(b"\0" * KEY_BYTES)  # as its actor does
    else:
        raise ConfigError("--store: expected machine, redis://host:6379 or ray; only a shared store can be shown")
    with closing(store):
        gates = store.snapshot()
        known = records()
        names = hashed_names(keys, known, hashes()) if gates else {}  # an empty store has no salt to hash with
    return StoreContent(store.where, sorted(gates, key=_busiest_first), known, names, time.time())


def hashed_names(keys: Iterable[str], records: Iterable[Record], hashes: Identities) -> dict[str, str]:
    """By what the store shows of these keys: each alone, and each with every credential or group."""
    pairs = {record.group or record.identity: record.group or record.label for record in records}
    names: dict[str, str] = {}
    for given in keys:
        key = host_key(given)
        names |= {shown(hashes.of(f"{key}/{last}")): f"{key} {label}" for last, label in pairs.items()}
        names[shown(hashes.of(key))] = key
    return names


def _busiest_first(gate: QuotaView) -> tuple[float, float, str]:
    return -len(gate.members), UNKNOWN if gate.learned_ago is None else gate.learned_ago, gate.name


# ---------------------------------------------------------------------- quotas


def gate_state(gate: QuotaView) -> str:
    """What a call would meet, in a few words."""
    if gate.circuit_open:
        return f"circuit open, {format_seconds(gate.open_for)} to go" if gate.open_for else "circuit half open"
    if gate.hold:
        return f"held for {format_seconds(gate.hold)}"
    return "passing" if gate.members else "idle"


def process_of(member: str) -> str:
    return member.partition("-")[2] or member


def rate_text(gate: QuotaView) -> str:
    """Empty where there is none: a provider whose credentials have one each."""
    return f"{gate.rate:,.1f}/s" if gate.rate < FASTEST else ""


def gate_table(content: StoreContent) -> Table:
    rows = [row for gate in content.gates[:MOST_SHOWN] for row in gate_rows(gate, content.names.get(gate.name, ""))]
    states = {"pace": "cyan", "role": "dim", "seen": "dim"}
    return _table(rows, [{**states, "state": GATE_STYLES.get(row["state"], "yellow")} for row in rows])


def gate_rows(gate: QuotaView, name: str) -> list[dict[str, str]]:
    """A row for the key with the first of its processes, and one for each further process."""
    about = {
        "key": gate.name,
        "name": name,
        "pace": rate_text(gate),
        "state": gate_state(gate),
        "most in flight": f"{gate.cap:,.0f}" if gate.cap else "",
        "learned": "" if gate.learned_ago is None else f"{format_seconds(gate.learned_ago)} ago",
    }
    cells = [
        {
            "process": process_of(one.name),
            "in flight": f"{one.flying:,}",
            "seen": f"{format_seconds(one.seen_ago)} ago",
            "role": " ".join(word for word, holds in (("leads", one.leads), ("waits", one.hungry)) if holds),
        }
        for one in gate.members[:MOST_MEMBERS]
    ]
    if len(gate.members) > MOST_MEMBERS:
        more = f"... and {len(gate.members) - MOST_MEMBERS:,} more"
        cells.append({"process": more, "in flight": "", "seen": "", "role": ""})
    cells = cells or [dict.fromkeys(("process", "in flight", "seen", "role"), "")]
    blank = dict.fromkeys(about, "")
    return [{**(blank if place else about), **cell} for place, cell in enumerate(cells)]


# ---------------------------------------------------------------------- credentials


def credential_state(record: Record, now: float) -> str:
    if record.retired:
        return "retired"
    return "resting" if record.rests_for(now) > 0 else "free"


def credential_fields(record: Record, now: float) -> dict[str, Any]:
    state = credential_state(record, now)
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


def credential_sentence(record: Record, now: float) -> str:
    rest = record.rests_for(now)
    state = {
        "resting": f"is resting until {clock_time(now + rest, seconds=True)} ({format_seconds(rest)})",
        "retired": "is disabled",
        "free": "is enabled",
    }[credential_state(record, now)]
    return (
        f"{record.label} [{record.identity[:SHOWN_DIGITS]}] {state}. "
        f"Running programs notice within about {CHECK_IDLE_EVERY:g} seconds."
    )


def credential_table(records: Sequence[Record], now: float) -> Table:
    rows = [_credential_cells(credential_fields(record, now)) for record in records]
    styles = [{"state": CREDENTIAL_STYLES[row["state"]]} for row in rows]
    return _table(rows, styles, always=("label", "id", "state"))


def _credential_cells(fields: dict[str, Any]) -> dict[str, str]:
    return {
        "label": fields["label"],
        "provider": fields["provider"],
        "id": fields["shown"],
        "group": fields["group"] or "",
        "state": STATE_WORDS.get(fields["state"], fields["state"]),
        "back in": format_seconds(fields["back_in"]) if fields["back_in"] else "",
        "at": clock_time(fields["back_at"], seconds=True) if fields["back_at"] else "",
        "calls left": "" if fields["budget"] is None else f"{max(0.0, fields['budget']):,.0f}",
        "why": "disabled by hand" if fields["reason"] == RETIRED else fields["reason"].replace("_", " "),
    }


def _table(rows: Sequence[dict[str, str]], styles: Sequence[dict[str, str]], always: Sequence[str] = ()) -> Table:
    """A table without the columns that are empty in all rows, but for those of ``always``."""
    names = [name for name in rows[0] if name in always or any(row[name] for row in rows)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name in NUMBERS else "left", overflow="fold")
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*(Text(printable(row[name]), style=style.get(name, "")) for name in names))
    return table
