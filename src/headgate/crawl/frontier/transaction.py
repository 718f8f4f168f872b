"""The frontier during one transaction: what is requested is gathered, and written with a few statements.

However many visits a transaction is about, it takes the same few statements, each of them one step for the
database: Python gives up its lock at every step, and a busy event loop takes milliseconds to hand it back.

    load ─> finish, put_off, add, take, ... ─> flush: URLs ─> hosts ─> totals ─> outputs, on disk ─> COMMIT

The outputs are on disk before the transaction that knows of their new length. If it does not come to that, they are
cut back to the length that the file knows before anything else is written to them, by this process or the next.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...core.decision import LONGEST_WAIT
from ...engine.database import storable
from ..url import host_of
from . import FoundUrl, Reason, StoredRobots, Visit, VisitState, schema
from .bounds import Bounds, UrlCounts, shape_of
from .schema import DONE, FAILED, PUT_OFF, REFUSED, STATES, TAKEN, WAITING
from .session import PageFile, recover

LONGEST_REASON = 2_000
"""Characters of a reason that are kept."""
ROWS_PER_STATEMENT = 256
MOST_AWOKEN = 1_000
"""URLs put off that may come back in one transaction; the next takes more."""
MOST_REMEMBERED = 50_000
"""URLs in each of the two lots of those seen recently: most links of a page are to pages that its neighbours link
to as well, and need not be looked for on disk."""

_COLUMN_OF = {WAITING: 0, TAKEN: 1, PUT_OFF: 2, DONE: 3, FAILED: 4, REFUSED: 4}
_TURN = 5
"""After the changes of its five counts, whether the host has had its turn."""


class FrontierTransaction:
    """What the writing thread works on. Nothing is written before ``flush``; ``forget`` drops it all."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: str,
        *,
        wall: Callable[[], float],
        pages: Sequence[PageFile],
        per_host: int,
        on_step: Callable[[str], None] | None,
    ) -> None:
        self.connection = connection
        self.path = path
        self.now = wall()
        """One instant for all of a transaction."""
        self._wall = wall
        self._pages = pages
        self._per_host = per_host
        self._on_step = on_step
        self._recent: tuple[set[int], set[int]] = (set(), set())
        """URLs seen recently, in two lots: newer and older."""
        self._has_more = False
        """Whether outputs may be longer than the frontier knows, because a commit has failed."""
        self._known: set[int] = set()
        """Of the URLs this transaction is about."""
        self._new: list[tuple[Any, ...]] = []
        self._ended: list[tuple[Any, ...]] = []
        self._hosts: defaultdict[int, list[int]] = defaultdict(lambda: [0] * (_TURN + 1))
        self._totals: defaultdict[str, int] = defaultdict(int)
        self._url_counts = UrlCounts(self._ask)
        self._results: list[tuple[bytes, ...]] = []
        self._due_at = 0.0
        """Nothing that is put off is due before this."""

    # ------------------------------------------------------------------ requests

    def load(self, digests: Iterable[int]) -> None:
        """Learn which of these URLs are known."""
        self.now = self._wall()
        newer, older = self._recent
        self._known = {one for one in digests if one in newer or one in older}
        missing = [one for one in digests if one not in self._known]
        if missing:
            self._known.update(json.loads(self.connection.execute(schema.KNOWN, (json.dumps(missing),)).fetchone()[0]))

    def add(
        self,
        found: Iterable[tuple[int, FoundUrl]],
        bounds: Bounds | None = None,
        left_out: list[tuple[FoundUrl, str]] | None = None,
    ) -> int:
        """How many of these are new; ``load`` has had their digests. What is beyond the bounds is left out."""
        new = {digest: one for digest, one in found if digest not in self._known}
        rows = [(digest, one, host_of(storable(one.url)), shape_of(one)) for digest, one in new.items()]
        if bounds is not None:
            self._url_counts.learn((host, shape) for *_, host, shape in rows if shape or bounds.per_host is not None)
        count = 0
        for digest, one, host, shape in rows:
            if bounds is not None and (why := self._url_counts.refuses(one, host, shape, bounds)) is not None:
                if left_out is not None:
                    left_out.append((one, why))
                continue
            self._known.add(digest)
            row = (digest, host, one.depth, one.redirects, shape, storable(one.url), storable(one.found_on))
            self._new.append(row)
            self._url_counts.add(host, shape)
            count += 1
        self._totals["waiting"] += count
        return count

    def finish(self, number: int, host: int, reason: str, records: tuple[bytes, ...] | None) -> None:
        """``records`` are the page's, one for each output; None if there is no page."""
        self._end(number, host, DONE, reason)
        if records is not None:
            self._results.append(records)

    def put_off(self, number: int, host: int, until: float, reason: str, attempts: int, rate_limited: int) -> None:
        until = self._within_reach(until)
        self._end(number, host, PUT_OFF, reason, attempts, rate_limited, until)
        self._due_at = min(self._due_at, until)

    def lose(self, number: int, host: int, state: VisitState, reason: Reason, attempts: int) -> None:
        """Failed or refused, for good."""
        self._end(number, host, STATES.index(state), str(reason), attempts)
        self._totals[f"reason.{reason.category}"] += 1

    def give_back(self, visits: Sequence[tuple[int, int]]) -> None:
        """Nothing was done about these."""
        numbers = [number for number, _ in visits]
        self.connection.execute(schema.MOVE, (WAITING, json.dumps(numbers)))
        for _, host in visits:
            self._count(host, TAKEN, WAITING)

    def rest(self, host: str, until: float, reason: str) -> None:
        """Nothing is taken from this host before then; a shorter rest than it has shortens nothing."""
        until = self._within_reach(until)
        self.connection.execute(
            schema.REST, {"until": until, "reason": storable(reason[:LONGEST_REASON]), "host": host}
        )

    def take(self, limit: int) -> list[tuple[int, Visit]]:
        """Each with its host's number. From each host in line one, then from each another, and so on."""
        self._wake_due()
        self._write()
        hosts = self._ask(schema.IN_LINE, self.now, limit)
        if not hosts:
            return []
        shares = _shares([min(waiting, self._per_host - taken) for _, _, waiting, taken in hosts], limit)
        names = {number: name for number, name, *_ in hosts}
        rows = self._ask(schema.FIRST_OF_EACH, max(shares), json.dumps(list(names)))
        taken: list[tuple[int, Visit]] = []
        for (host, first), share in zip(rows, shares, strict=True):
            self._hosts[host][_TURN] = 1
            for number, url, depth, *others in first[:share]:
                taken.append((host, Visit(number, url, names[host], depth, *others)))
                self._count(host, WAITING, TAKEN)
        self.connection.execute(schema.MOVE, (TAKEN, json.dumps([visit.number for _, visit in taken])))
        return taken

    def next_at(self) -> float | None:
        """When something may be taken, if nothing is requested until then."""
        self._write()
        ((of_hosts,), (of_urls,)) = (
            self.connection.execute(which).fetchone() for which in (schema.NEXT_HOST, schema.NEXT_DUE)
        )
        return min((at for at in (of_hosts, of_urls) if at is not None), default=None)

    def robots(self, host: str) -> StoredRobots | None:
        kept = self.connection.execute("SELECT status, body, fetched_at FROM robots WHERE host = ?", (host,)).fetchone()
        return None if kept is None else StoredRobots(*kept)

    def keep_robots(self, host: str, robots: StoredRobots) -> None:
        row = (host, robots.status, robots.body, robots.fetched_at)
        self.connection.execute("INSERT OR REPLACE INTO robots VALUES (?, ?, ?, ?)", row)

    def sign_off(self) -> None:
        """The process ends: what it has taken waits again."""
        self._write()
        self._add_up()
        recover(self.connection, self.now)
        if not self._has_more:  # else the next process finds that one has died here
            self.connection.execute("DELETE FROM processes")

    # ------------------------------------------------------------------ how it is written

    def flush(self) -> None:
        self._write()
        if self._results:
            self._write_pages()
        self._totals["pages"] += len(self._results)
        self._results.clear()
        self._add_up()
        self.connection.execute("INSERT OR REPLACE INTO totals VALUES ('seen_at', ?)", (int(self.now),))
        self._remember()

    def _write_pages(self) -> None:
        for number, pages in enumerate(self._pages):
            (known,) = self.connection.execute(schema.LENGTH, (pages.name,)).fetchone()
            length = pages.write((records[number] for records in self._results), known)
            self.connection.execute(schema.NEW_LENGTH, (length, pages.name))
        self._has_more = False
        if self._on_step:
            self._on_step("write")

    def forget(self) -> None:
        for kept in (self._known, self._new, self._ended, self._hosts, self._totals, self._results):
            kept.clear()
        self._url_counts.forget()
        self._recent = (set(), set())
        self._due_at = 0.0
        for pages in self._pages:
            pages.close()
        self._has_more = bool(self._pages)

    def _end(
        self, number: int, host: int, state: int, reason: str, attempts: int = 0, times: int = 0, until: float = 0.0
    ) -> None:
        self._ended.append((number, state, attempts, times, until, storable(reason[:LONGEST_REASON])))
        self._count(host, TAKEN, state)

    def _within_reach(self, instant: float) -> float:
        """Within 31 days; what is no number is now."""
        return min(instant, self.now + LONGEST_WAIT) if instant > self.now else self.now

    def _count(self, host: int, old: int, new: int) -> None:
        counts = self._hosts[host]
        counts[_COLUMN_OF[old]] -= 1
        counts[_COLUMN_OF[new]] += 1
        self._totals[STATES[old].value] -= 1
        self._totals[STATES[new].value] += 1

    def _wake_due(self) -> None:
        """Make deferred URLs whose time has come wait for a fetch again."""
        if self.now < self._due_at:
            return
        self._write()
        due = self._ask(schema.DUE, self.now, MOST_AWOKEN)
        self.connection.execute(schema.MOVE, (WAITING, json.dumps([number for number, _ in due])))
        for _, host in due:
            self._count(host, PUT_OFF, WAITING)
        (next_at,) = self.connection.execute(schema.NEXT_DUE).fetchone()
        self._due_at = float("inf") if next_at is None else next_at

    def _write(self) -> None:
        """URLs and hosts, as far as this transaction has come."""
        if self._new:
            (last,) = self.connection.execute("SELECT coalesce(max(id), 0) FROM urls").fetchone()
            self.connection.execute(schema.NEW_HOSTS, (json.dumps(list(dict.fromkeys(row[1] for row in self._new))),))
            self._put(schema.NEW_URLS, self._new)
            self.connection.execute(schema.NEW_SHAPES, (last,))
            for host, count in self._ask(schema.NEW_BY_HOST, last):
                self._hosts[host][_COLUMN_OF[WAITING]] += count
            self._new.clear()
            self._url_counts.written()
        self._put(schema.END, self._ended)
        self._ended.clear()
        self._put(schema.HOSTS, [(host, *counts, self._per_host, self.now) for host, counts in self._hosts.items()])
        self._hosts.clear()

    def _add_up(self) -> None:
        self._put(schema.ADD_UP, [(name, amount) for name, amount in self._totals.items() if amount])
        self._totals.clear()

    def _remember(self) -> None:
        newer, _ = self._recent
        newer |= self._known
        self._known = set()
        if len(newer) > MOST_REMEMBERED:
            self._recent = (set(), newer)

    def _ask(self, statement: str, *values: Any) -> list[list[Any]]:
        answer: list[list[Any]] = json.loads(self.connection.execute(statement, values).fetchone()[0])
        return answer

    def _put(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        """Write all of these. Statements come in few sizes, to be reused, and are filled up with empty rows."""
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            part = rows[start : start + ROWS_PER_STATEMENT]
            size = 1 << (len(part) - 1).bit_length()
            width = len(part[0])
            row = f"({', '.join('?' * width)})"
            values = [value for one in part for value in one] + [None] * (width * (size - len(part)))
            self.connection.execute(statement.format(values="VALUES " + ", ".join([row] * size)), values)


def _shares(most: Sequence[int], limit: int) -> list[int]:
    """Deal ``limit`` out in rounds, one to each that can take one more."""
    shares = [0] * len(most)
    while limit > 0 and any(share < bound for share, bound in zip(shares, most, strict=True)):
        for place, bound in enumerate(most):
            if shares[place] < bound and limit > 0:
                shares[place] += 1
                limit -= 1
    return shares
