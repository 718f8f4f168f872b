"""The store for many machines: shared quotas in a Redis or Valkey, one script for each request.

An exchange is one round trip, however many keys it is about; the server runs one script after the other, by its own
clock. Where a server does not answer in time, takes no changes or is gone, ``StoreDown`` says so.

A request expires, by the server's clock, when its member stops waiting for the answer. A server that was frozen or cut
off carries out late what it was sent meanwhile; such a request would take permits that no call will use. One that has
expired although its answer arrives in time shows a server's clock that was set forward: it is sent again.

    headgate:salt                  what key names are hashed with; made by the first process
    headgate:1:(32 hex digits)     one quota with all that belongs to it: one key, so that a Cluster keeps it whole

Every exchange also asks for the salt. A server that has lost its data has lost that too: the first process puts the
one it knows back, and a process that finds another there goes over to it before it takes anything.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import ConfigError
from ...identity import Identities
from .. import coordinator, grants
from ..protocol import Note, SyncReply, SyncRequest, plain
from ..store import FORGOTTEN_AFTER, TIMEOUT, AdaptiveTimeout, FormerStoreNames, MemberView, QuotaView, StoreDown, shown
from .redis_connection import FAULTS, LONGEST_TIMEOUT, NoScriptError, Server, connect, read_address, why

SALT = "headgate:salt"
SALT_BYTES = 32
MOST_TRIES = 4
"""How often a request is sent: again if the salt has changed or the server's clock was set forward."""
NEVER_EXPIRES = float(1 << 53)
"""For as long as the server's clock is not known."""
KEYS = "headgate:1"
"""The number grows when they are written in another way, so that old and new programs keep out of each other's way."""
NUMBERS = struct.Struct("<20d")
EXPIRED = struct.Struct("<d")
"""What a request that has expired is answered with: the server's clock."""
SHOWN_AT_ONCE = 100


_NUMBERS = {
    name: value
    for known in (vars(grants), vars(coordinator), {"KEPT_FOR": int(FORGOTTEN_AFTER)})
    for name, value in known.items()
    if name.isupper() and type(value) in (int, float)
}
"""The constants of the scripts, such as how long a lease is: defined once, in Python, and put in front of them."""


class Request(NamedTuple):
    key: str
    """Decides which node of a Cluster is asked."""
    words: tuple[Any, ...]


class Script:
    """A server knows a script by its hash once it has run it; until then it wants the whole text."""

    def __init__(self, *names: str, flags: str = "", numbers: Mapping[str, float] | None = None) -> None:
        """``numbers``: the constants that it begins with; by default those of shared quotas."""
        folder = Path(__file__).parent / "lua"
        lines = [f"#!lua{flags}"]
        lines += [f"local {name} = {value!r}" for name, value in sorted((numbers or _NUMBERS).items())]
        self.text = "\n".join([*lines, *((folder / f"{name}.lua").read_text("utf-8") for name in names)])
        self.name = sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def by_name(self, key: str, arguments: Sequence[bytes]) -> Request:
        return Request(key, ("EVALSHA", self.name, 1, key, *arguments))

    def whole(self, key: str, arguments: Sequence[bytes]) -> Request:
        return Request(key, ("EVAL", self.text, 1, key, *arguments))


SYNC = Script("fields", "shared_quota", "coordinator", "grants", "sync")
SNAPSHOT = Script("fields", "snapshot", flags=" flags=no-writes")


class RedisStore(FormerStoreNames):
    """Nothing is connected before the first exchange. A child process makes connections of its own."""

    def __init__(self, url: str, *, timeout: float | None = None) -> None:
        """``timeout``: seconds that an exchange has at most; by default what suits a server that is near."""
        if timeout is not None and not 0.0 < timeout <= LONGEST_TIMEOUT:
            raise ConfigError(f"timeout={timeout!r} must be above 0 and at most {LONGEST_TIMEOUT:.0f} seconds")
        self._address = read_address(url)
        chosen = self._address.timeout or timeout
        self._connect_timeout = chosen or TIMEOUT
        self._sync_timeout, self._ask_timeout = AdaptiveTimeout(chosen), AdaptiveTimeout(chosen)
        """Of exchanges; and of what else is asked, some of it before the first exchange."""
        self.where = str(self._address)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._salt: bytes | None = None
        self._clock_ahead: float | None = None
        """By how much the server's clock is ahead of ``time.monotonic()``, at most; None before the first exchange."""

    def sync(self, requests: Sequence[tuple[str, SyncRequest]]) -> list[SyncReply]:
        """One round trip, and one or two more at the very first. Raises ``StoreDown``."""
        if not requests:
            return []
        messages = [_message(request) for _, request in requests]
        for _ in range(MOST_TRIES):
            salt, expires = self.salt(), self._expires()
            names, sent_at = Identities(salt), time.monotonic()
            calls = [
                (f"{KEYS}:{names.of(key)}", (*message, expires))
                for (key, _), message in zip(requests, messages, strict=True)
            ]
            timeout = self._sync_timeout
            *answers, found = self._ask([*(SYNC.by_name(*call) for call in calls), _salt_request(salt)], timeout)
            if isinstance(found, bytes) and found != salt:
                self._salt = found
                continue
            answers = self._run(SYNC, calls, answers, timeout)
            received_at = time.monotonic()
            timeout.answered(received_at - sent_at)
            self._read_clock(max(_clock(answer) for answer in answers), sent_at, received_at)
            if all(len(answer) > 1 for answer in answers):
                return [_reply(answer) for answer in answers]
        raise StoreDown(f"{self.where}: its salt or clock keeps changing")

    def _expires(self) -> bytes:
        """The instant, on the server's clock, after which a request that is sent now is not waited for any more."""
        if self._clock_ahead is None:
            return b"%r" % NEVER_EXPIRES
        return b"%r" % (time.monotonic() + self._clock_ahead + self._sync_timeout.seconds)

    def _read_clock(self, clock: float, sent_at: float, received_at: float) -> None:
        """Bound how far the server's clock is ahead; the tightest bound counts until an answer contradicts it.

        The latest bound alone would be loose by as long as that one exchange took, and a late request live on.
        """
        known, least, most = self._clock_ahead, clock - received_at, clock - sent_at
        self._clock_ahead = most if known is None or known < least else min(known, most)

    def snapshot(self) -> list[QuotaView]:
        try:
            found = sorted(key.decode() for key in self._connected().keys(f"{KEYS}:*"))
        except FAULTS as fault:
            raise self._down(fault) from None
        views = []
        for begin in range(0, len(found), SHOWN_AT_ONCE):
            calls: list[Call] = [(key, ()) for key in found[begin : begin + SHOWN_AT_ONCE]]
            answers = self._run(SNAPSHOT, calls, self._ask([SNAPSHOT.by_name(*call) for call in calls]))
            views += [_view(key, answer) for (key, _), answer in zip(calls, answers, strict=True) if answer]
        return views

    def close(self) -> None:
        self._leave_to_parent()
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def __repr__(self) -> str:
        return f"<RedisStore: {self.where}>"

    # ------------------------------------------------------------------ for what else is shared on the same server

    def salt(self) -> bytes:
        """What names are hashed with on this server; asked for at first, and kept up to date by every request."""
        if self._salt is None:
            proposed = secrets.token_hex(SALT_BYTES).encode()
            found: bytes | None
            (found,) = self._sound(self._ask([_salt_request(proposed)]))
            self._salt = proposed if found is None else found
        return self._salt

    def ask(self, *requests: Request) -> list[Any]:
        """An answer to each of these, in one round trip. Raises ``StoreDown``, also if only one of them failed.

        A client that has named nothing here yet only reads, and leaves an empty server empty.
        """
        salt = Request(SALT, ("GET", SALT)) if self._salt is None else _salt_request(self._salt)
        *answers, found = self._sound(self._ask([*requests, salt]))
        if found is not None:
            self._salt = found
        return answers

    def run(self, script: Script, key: str, arguments: tuple[bytes, ...]) -> Any:
        """What the script answers for this key. Raises ``StoreDown``."""
        call = key, arguments
        return self._run(script, [call], self._ask([script.by_name(*call)]))[0]

    # ------------------------------------------------------------------ asking

    def _run(
        self, script: Script, calls: Sequence[Call], answers: Sequence[Any], timeout: AdaptiveTimeout | None = None
    ) -> list[Any]:
        """The answers, without errors: a script that the server did not know by its name is sent whole."""
        answers = list(answers)
        unknown = [index for index, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        again = self._ask([script.whole(*calls[index]) for index in unknown], timeout) if unknown else []
        for index, answer in zip(unknown, again, strict=True):
            answers[index] = answer
        return self._sound(answers)

    def _sound(self, answers: list[Any]) -> list[Any]:
        for answer in answers:
            if isinstance(answer, Exception):
                raise self._down(answer)
        return answers

    def _ask(self, requests: Sequence[Request], timeout: AdaptiveTimeout | None = None) -> list[Any]:
        """One round trip. ``timeout``: an exchange's, which knows itself when it was answered."""
        began, used = time.monotonic(), timeout or self._ask_timeout
        try:
            answers = self._connected().ask(requests, used.seconds)
        except FAULTS as fault:
            down = self._down(fault, used)
            used.failed()
            raise down from None
        if timeout is None:
            used.answered(time.monotonic() - began)
        return answers

    def _down(self, fault: BaseException, timeout: AdaptiveTimeout | None = None) -> StoreDown:
        return StoreDown(f"{self.where}: {why(fault, (timeout or self._ask_timeout).seconds)}")

    def _connected(self) -> Server:
        self._leave_to_parent()
        with self._lock:
            if self._server is None:
                self._server = connect(self._address, self._connect_timeout)
            return self._server

    def _leave_to_parent(self) -> None:
        """In a child process, the connections and a lock that was held at that moment are the parent's."""
        if self._process != os.getpid():
            self._process, self._lock, self._server = os.getpid(), threading.Lock(), None


# ------------------------------------------------------------------ what is sent, and what comes back

Call = tuple[str, tuple[bytes, ...]]
"""The key and the arguments of a script."""


def _salt_request(salt: bytes) -> Request:
    """Gives what is there; nothing if this one had to be put there."""
    return Request(SALT, ("SET", SALT, salt, "NX", "GET"))


def _message(request: SyncRequest) -> tuple[bytes, ...]:
    message = plain(request)
    terms, note = message.pop("terms"), message.pop("note")
    learned = ""
    if message["publication"] is None:
        del message["publication"]
    else:
        learned = message["publication"].pop("learned")
    texts = json.dumps(message, separators=(",", ":")), json.dumps(terms, separators=(",", ":")), note, learned
    return tuple(text.encode("utf-8", "surrogatepass") for text in texts)


def _clock(answer: list[bytes]) -> float:
    """The server's own, as it answered; it comes last."""
    (clock,) = EXPIRED.unpack(answer[0][-EXPIRED.size :])
    return float(clock)


def _reply(answer: list[bytes]) -> SyncReply:
    numbers, short_of, learned, *notes = answer
    (
        now, granted, first, line, rate, hold, era, wait,
        circuit_open, open_for, probe, cap, left, word, members, fence, covers, learned_ago, solo, _,
    ) = NUMBERS.unpack(numbers)  # fmt: skip
    return SyncReply(
        now=now,
        granted=int(granted),
        first=first,
        line=line,
        rate=rate,
        hold=hold,
        era=int(era),
        wait=wait,
        short_of=short_of.decode(),
        circuit_open=bool(circuit_open),
        open_for=open_for,
        probe=bool(probe),
        cap=cap,
        left=left,
        word=int(word),
        members=int(members),
        solo=bool(solo),
        fence=int(fence),
        notes=tuple(_note(note) for note in notes),
        learned=learned.decode("utf-8", "surrogatepass"),
        covers=int(covers),
        learned_ago=learned_ago,
    )


def _note(kept: bytes) -> Note:
    number, at, length, rest = kept.split(b" ", 3)
    member, text = rest[: int(length)], rest[int(length) :]
    return Note(number=int(number), at=float(at), member=member.decode(), text=text.decode("utf-8", "surrogatepass"))


def _view(key: str, answer: bytes) -> QuotaView:
    facts = json.loads(answer)
    leader = facts.pop("leader")
    members = tuple(
        MemberView(name=name, seen_ago=seen_ago, flying=flying, hungry=hungry, leads=name == leader)
        for name, seen_ago, flying, hungry in sorted(facts.pop("members"))
    )
    return QuotaView(
        name=shown(key.rpartition(":")[2]),
        leader=leader if any(member.leads for member in members) else "",
        members=members,
        **facts,
    )
