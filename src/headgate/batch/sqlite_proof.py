"""The proof that a ledger is sound: the input is done + dead + open, no row is there twice, the output agrees.

Everything is counted again from the rows themselves, in one view of the file, so a run may go on meanwhile.
Findings are sentences; without one, the proof holds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from math import isclose
from typing import Any, Self

from .ledger import Counts, LedgerError, RowState, Written
from .sqlite_file import in_words, open_to_read
from .sqlite_reading import read_counts, read_final, read_unfinished

ROWS_AT_ONCE = 1000
MOST_FINDINGS = 20
"""More are not told: by then it is clear."""

SUMS = "SELECT state, count(*), sum(attempts), sum(tokens), total(cost) FROM rows GROUP BY state"
MISMATCHES = {
    "{} rows are final and have no result": (
        "SELECT count(*) FROM rows LEFT JOIN results USING (idx) WHERE rows.state >= 4 AND results.idx IS NULL"
    ),
    "{} results belong to rows that are open, ended otherwise or are unknown": (
        "SELECT count(*) FROM results LEFT JOIN rows USING (idx) WHERE rows.state IS NOT results.state"
    ),
    "{} results are not in the order of finished rows, or are in it twice": (
        "SELECT (SELECT count(*) FROM results) - (SELECT count(DISTINCT idx) FROM finals) "
        "+ (SELECT count(*) - count(DISTINCT idx) FROM finals)"
    ),
    "{} numbers are missing in the order of finished rows": (
        "SELECT coalesce(max(number), 0) - count(*) + (coalesce(min(number), 1) - 1) FROM finals"
    ),
    "the output is said to hold {} rows more than are finished": (
        "SELECT max(0, number - (SELECT count(*) FROM finals)) FROM output"
    ),
}
TWINS = "SELECT key, count(*), min(idx) + 1, max(idx) + 1 FROM rows GROUP BY key HAVING count(*) > 1 LIMIT 5"


@dataclass(slots=True, kw_only=True)
class Proof:
    """What was found."""

    counts: Counts
    written: int
    """Rows that the output holds."""
    offset: int
    input_rows: int | None = None
    """None if the input was not looked at."""
    lines: int | None = None
    """Lines of the output that were compared, None if it was not looked at."""
    findings: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.findings

    @property
    def open(self) -> int:
        """Rows of the input that are not final, whether a run has come upon them yet or not."""
        return self.counts.open + max(0, (self.input_rows or 0) - self.counts.seen)

    def found(self, sentence: str) -> bool:
        """Take it down; whether there is room for more."""
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(sentence)
        return len(self.findings) < MOST_FINDINGS


class Prover:
    """``with Prover(path) as prover``: one view of the ledger, however many questions are asked of it."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._connection = open_to_read(path)
            self._connection.execute("BEGIN")
            _, written, offset = self._connection.execute("SELECT * FROM output").fetchone()[1:]
            self.proof = Proof(counts=read_counts(self._connection), written=written, offset=offset)
        except sqlite3.Error as error:
            raise in_words(error, path) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def check_itself(self) -> None:
        """Whether the tables agree with each other."""
        told, states = self.proof.counts, dict[RowState, int]()
        attempts = tokens = 0
        cost = 0.0
        for number, rows, row_attempts, row_tokens, row_cost in self._ask(SUMS):
            states[tuple(RowState)[number]] = rows
            attempts, tokens, cost = attempts + row_attempts, tokens + row_tokens, cost + row_cost
        sums = (attempts, tokens, isclose(cost, told.cost, rel_tol=1e-6, abs_tol=1e-9))
        if states != told.states or sums != (told.attempts, told.tokens, True):
            self.proof.found("the totals are not those of the rows")
        for sentence, question in MISMATCHES.items():
            ((count,),) = self._ask(question)
            if count:
                self.proof.found(sentence.format(f"{count:,}"))
        for key, count, first, last in self._ask(TWINS):
            self.proof.found(f"{count:,} rows have the name {key!r}: among them rows {first:,} and {last:,}")

    def check_input(self, digests: Iterable[bytes]) -> None:
        """Whether the input's rows, in their order, are those of the ledger."""
        digests, rows = iter(digests), 0
        while block := list(islice(digests, ROWS_AT_ONCE)):
            try:
                read_unfinished(self._connection, rows, block)
            except LedgerError as error:
                if not self.proof.found(str(error)):
                    break
            rows += len(block)
        self.proof.input_rows = rows
        ((beyond,),) = self._ask(f"SELECT count(*) FROM rows WHERE idx >= {rows:d}")  # noqa: S608 - a number
        if beyond:
            self.proof.found(f"the input has {rows:,} rows, and the ledger {beyond:,} more that are not in it now")

    def check_output(self, lines: Iterable[bytes]) -> None:
        """Whether the output, up to its checkpoint, is what the ledger has, in its order."""
        kept = (
            (one.index, line)
            for one in self._written()
            if one.result
            for line in one.result.removesuffix(b"\n").split(b"\n")
        )
        count = 0
        for count, (mine, theirs) in enumerate(zip_longest(kept, lines), 1):
            if mine is None or theirs is None:
                which = "ends early" if theirs is None else "goes on"
                self.proof.found(f"the output {which} at line {count:,}, unlike the ledger")
                break
            if mine[1] != theirs.removesuffix(b"\n") and not self.proof.found(
                f"line {count:,} of the output is not what the ledger has of row {mine[0] + 1:,}"
            ):
                break
        self.proof.lines = count

    def _written(self) -> Iterator[Written]:
        number = 0
        while number < self.proof.written:
            block = read_final(self._connection, number, min(ROWS_AT_ONCE, self.proof.written - number))
            if not block:
                return
            yield from block
            number = block[-1].number

    def _ask(self, question: str) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(question).fetchall()
        except sqlite3.Error as error:
            raise in_words(error, self._path) from None
