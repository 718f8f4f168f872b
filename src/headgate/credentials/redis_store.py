"""Records of credentials in a Redis or Valkey, for all processes that share them across machines.

    headgate:credentials:1     by identity and origin, with a version that changes whenever one of them does

It is asked over the connections of a ``RedisStore``, which it is as well: a program that shares its quotas and its
credentials needs one of these. Identities are made with the server's salt, so that all machines give a credential the
same one; what lies there holds no secret, and no hash that could be checked without the salt.

Times in it are the server's. A host whose clock is wrong reads and writes rests that are right all the same, rather a
round trip too long than any too short.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from ..clock import Clock, SystemClock
from ..distributed.backends.redis import RedisStore, Request, Script
from ..distributed.store import TIMEOUT
from ..identity import Identities
from .record import Record, by_name

CREDENTIALS = "headgate:credentials:1"
"""The number grows when older records cannot be read. Those named by an identity alone, without an origin, can."""
VERSION = b"version"
MOST_RECORDS = 10_000
"""Credentials that are remembered; of more, those written last."""
MOST_AT_ONCE = 1_000
"""Records in one script."""
MERGED = ("era", "until", "retired", "reason", "written_at")
"""What the script goes by; the rest is as the last writer has it."""
TIMES = ("written_at", "until", "budget_until")

_SAVE = Script("credentials")


class RedisCredentialStore(RedisStore):
    """``CredentialStore`` and ``Store`` on one server. Raises ``StoreDown``."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT, clock: Clock | None = None) -> None:
        """``clock``: the one by which the records are written that are given to it."""
        super().__init__(url, timeout=timeout)
        self._clock = SystemClock() if clock is None else clock
        self._named = b"", Identities(b"")
        """The salt that names were made with last, and what makes them."""

    def identities(self) -> Identities:
        """What secrets are called here; another object once the server has another salt."""
        salt = self.salt()
        if self._named[0] != salt:
            self._named = salt, Identities(salt + b"credentials")
        return self._named[1]

    def key_names(self) -> Identities:
        """What keys are called here."""
        return Identities(self.salt())

    def stamp(self) -> object:
        (version,) = self.ask(Request(CREDENTIALS, ("HGET", CREDENTIALS, VERSION)))
        return version

    def load(self) -> list[Record]:
        wanted = ("HGETALL", CREDENTIALS), ("TIME",)
        found, server_time = self.ask(*(Request(CREDENTIALS, words) for words in wanted))
        ahead = _seconds(server_time) - self._clock.wall()  # read after the answer: no rest gets shorter
        fields = dict(zip(found[::2], found[1::2], strict=True))
        fields.pop(VERSION, None)
        rows = [row for name, text in fields.items() if (row := _row(name, text)) is not None]
        return [_shifted(record, -ahead) for record in by_name(rows).values()]

    def save(self, records: Iterable[Record]) -> None:
        """Each is merged into what is there, in one script for all of them."""
        given = list(records)
        before = self._clock.wall()
        (server_time,) = self.ask(Request(CREDENTIALS, ("TIME",)))
        ahead = _seconds(server_time) - before
        for first in range(0, len(given), MOST_AT_ONCE):
            some = [_shifted(record, ahead) for record in given[first : first + MOST_AT_ONCE]]
            words = [word for record in some for word in (record.name.encode(), _text(record))]
            self.run(_SAVE, CREDENTIALS, (b"%d" % MOST_RECORDS, *words))


def _shifted(record: Record, seconds: float) -> Record:
    """The same by another clock; 0 is no instant."""
    return replace(record, **{name: at + seconds for name in TIMES if (at := getattr(record, name))})


def _text(record: Record) -> bytes:
    fields = asdict(record)
    del fields["identity"]
    merged = {name: fields.pop(name) for name in MERGED}
    return f"{json.dumps(merged)}\n{json.dumps(fields)}".encode()


def _row(name: bytes, text: bytes) -> dict[str, Any] | None:
    """None for what no version of ours has put there."""
    try:
        merged, about = (json.loads(part) for part in text.split(b"\n"))
        return {"identity": name.decode().partition("@")[0], **merged, **about}
    except (ValueError, TypeError):
        return None


def _seconds(server_time: list[bytes]) -> float:
    """Of the answer to ``TIME``: seconds and microseconds."""
    return int(server_time[0]) + int(server_time[1]) / 1e6
