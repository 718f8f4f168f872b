"""Verify that a ledger is sound: the input is done + dead + open, no row is a duplicate, the output agrees.

Everything is counted again from the rows themselves, in one view of the file, so a run may go on meanwhile.
The whole output is compared, line by line, with what the ledger has written and would write next:

    the same line         fine
    a line known, before  written twice: duplicate
    a line known, later   those between are missing, or the unknown lines before it are their changed selves
    a line not known      changed, if the ledger misses one in its place; else unknown
    an end that is torn   fine behind the checkpoint, where the ledger has the whole line: a crash leaves that

A finding is a code with what it is about, and a sentence for people; without one, the ledger holds.
"""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from math import isclose
from typing import IO, Any, NamedTuple, Self, cast

from ...engine.database import UNREADABLE, storable
from ...engine.output_file import Compression, is_damage, length_of, unpacked
from ...errors import HeadgateError
from ...formatting import redact
from ..input.template import quoted
from ..output import REPLACED, fingerprint
from . import Counts, LedgerError, RowState
from .queries import read_counts, read_final, read_note, read_unfinished
from .schema import ledger_error, open_to_read

ROWS_AT_ONCE = 1000
MOST_FINDINGS = 20
"""More are not listed: by then it is clear."""
MOST_DAMAGE = 3
"""Places of a damaged file that are listed."""
MOST_UNKNOWN = 10_000
"""Unknown lines in a row after which no more of the output is looked at."""
LONGEST_LINE = 1 << 28
"""Bytes that are read at a time at most, however long a foreign line is."""

SUMS = "SELECT state, count(*), sum(attempts), sum(tokens), total(cost) FROM rows GROUP BY state"
MISMATCHES = {
    "finished rows without a result: {}": (
        "SELECT count(*) FROM rows LEFT JOIN results USING (idx) WHERE rows.state >= 4 AND results.idx IS NULL"
    ),
    "results of rows that are open, unknown or in another final state: {}": (
        "SELECT count(*) FROM results LEFT JOIN rows USING (idx) WHERE rows.state IS NOT results.state"
    ),
    "results missing from the order of finished rows, or in it twice: {}": (
        "SELECT (SELECT count(*) FROM results) - (SELECT count(DISTINCT idx) FROM finals) "
        "+ (SELECT count(*) - count(DISTINCT idx) FROM finals)"
    ),
    "numbers missing from the order of finished rows: {}": (
        "SELECT coalesce(max(number), 0) - count(*) + (coalesce(min(number), 1) - 1) FROM finals"
    ),
    "rows counted as written to the output but not finished: {}": (
        "SELECT max(0, number - (SELECT count(*) FROM finals)) FROM output"
    ),
}
DUPLICATE_NAMES = "SELECT key, count(*), min(idx) + 1, max(idx) + 1 FROM rows GROUP BY key HAVING count(*) > 1 LIMIT 5"


KNOWN = (
    "CREATE TEMP TABLE known AS SELECT key, idx, number FROM finals JOIN rows USING (idx)",
    "CREATE INDEX temp.known_names ON known (key)",
)
"""Made only when a line of the output is not where it should be."""
LINES_NAMED = "SELECT number, line FROM temp.known JOIN results USING (idx) WHERE key = ? ORDER BY number LIMIT 100"


class Problem(Enum):
    LEDGER = "ledger"
    """The ledger does not agree with itself."""
    INPUT = "input"
    """The input is not the one that the ledger was made from."""
    NO_OUTPUT = "no_output"
    SHORT = "short"
    """The output has fewer bytes than were written to it."""
    DAMAGED = "damaged"
    """The output cannot be unpacked."""
    MISSING = "missing"
    CHANGED = "changed"
    DUPLICATE = "double"
    UNKNOWN_LINE = "stranger"

    @property
    def of_output(self) -> bool:
        """Whether the ledger is sound, so that the output can be written again from it."""
        return self not in (Problem.LEDGER, Problem.INPUT)

    @property
    def is_foreign(self) -> bool:
        """Whether writing the output again would lose something that is not in the ledger."""
        return self in (Problem.UNKNOWN_LINE, Problem.CHANGED, Problem.DAMAGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    problem: Problem
    text: str
    line: int | None = None
    """Of the output."""
    row: int | None = None
    """Of the input, from 1."""


@dataclass(slots=True, kw_only=True)
class Verification:
    """What was found."""

    counts: Counts
    written: int
    """Rows that the output holds."""
    offset: int
    input_rows: int | None = None
    """None if the input was not looked at."""
    lines: int | None = None
    """Lines of the output that were compared, None if it was not looked at."""
    replaced: bool = False
    """Whether the output is one that ``headgate retry`` has replaced, and that the next run writes again."""
    torn: bool = False
    """Whether the output's end is torn, as a crash leaves it; the next run writes it again."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.findings

    @property
    def open(self) -> int:
        """Rows of the input that are not final, whether a run has reached them yet or not."""
        return self.counts.open + max(0, (self.input_rows or 0) - self.counts.seen)

    @property
    def is_full(self) -> bool:
        """Whether no more findings are taken down."""
        return len(self.findings) >= MOST_FINDINGS

    def add(self, problem: Problem, text: str, *, line: int | None = None, row: int | None = None) -> None:
        if not self.is_full:
            self.findings.append(Finding(problem=problem, text=text, line=line, row=row))


class LedgerVerifier:
    """``with LedgerVerifier(path) as verifier``: one view of the ledger, however many questions are asked of it."""

    def __init__(self, path: str, output: str | None = None) -> None:
        """The output is looked at as long as it is now: all of that was in the ledger before it was in the file."""
        self._path, self._output = path, output
        self._length = None if output is None else length_of(output)
        try:
            self._connection = open_to_read(path)
            self._connection.execute("BEGIN")
            _, written, offset = self._connection.execute("SELECT * FROM output").fetchone()[1:]
            self.result = Verification(counts=read_counts(self._connection), written=written, offset=offset)
        except UNREADABLE as error:
            raise ledger_error(error, path) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._connection.close()
        if isinstance(error, UNREADABLE) and not isinstance(error, OSError | HeadgateError):
            raise ledger_error(error, self._path) from None

    def check_itself(self) -> None:
        """Whether the file is whole, and its tables agree with each other."""
        for (damage,) in self._ask(f"PRAGMA quick_check({MOST_DAMAGE})"):
            if damage != "ok":
                self.result.add(Problem.LEDGER, f"the ledger file is damaged ({quoted(damage)})")
        told, states = self.result.counts, dict[RowState, int]()
        attempts = tokens = 0
        cost = 0.0
        for number, rows, row_attempts, row_tokens, row_cost in self._ask(SUMS):
            states[tuple(RowState)[number]] = rows
            attempts, tokens, cost = attempts + row_attempts, tokens + row_tokens, cost + row_cost
        sums = (attempts, tokens, isclose(cost, told.cost, rel_tol=1e-6, abs_tol=1e-9))
        if states != told.states or sums != (told.attempts, told.tokens, True):
            self.result.add(Problem.LEDGER, "the totals do not match the rows")
        for sentence, question in MISMATCHES.items():
            ((count,),) = self._ask(question)
            if count:
                self.result.add(Problem.LEDGER, sentence.format(f"{count:,}"))
        for key, count, first, last in self._ask(DUPLICATE_NAMES):
            duplicates = f"{count:,} rows have the id {key!r}, such as rows {first:,} and {last:,}"
            self.result.add(Problem.LEDGER, duplicates, row=last)

    def check_input(self, digests: Iterable[bytes]) -> None:
        """Whether the input's rows, in their order, are those of the ledger."""
        digests, rows = iter(digests), 0
        while block := list(islice(digests, ROWS_AT_ONCE)):
            try:
                read_unfinished(self._connection, rows, block)
            except LedgerError as error:
                self.result.add(Problem.INPUT, str(error))
                if self.result.is_full:
                    break
            rows += len(block)
        self.result.input_rows = rows
        ((beyond,),) = self._ask(f"SELECT count(*) FROM rows WHERE idx >= {rows:d}")  # noqa: S608 - a number
        if beyond:
            gone = f"the input has {rows:,} rows; {beyond:,} more rows of the ledger are missing from it"
            self.result.add(Problem.INPUT, gone)

    def check_output(self) -> None:
        """Whether the whole output is what the ledger has, in its order."""
        result, path = self.result, self._output
        if path is None or self._length is None:
            if result.written:
                gone = f"the output with {result.written:,} rows is missing; name it with -o"
                result.add(Problem.NO_OUTPUT, gone)
            return
        replaced = read_note(self._connection, REPLACED)
        if replaced and not result.written and replaced == fingerprint(path):
            result.replaced = True
            return
        if self._length < result.offset:
            short = f"the output has {self._length:,} bytes, but {result.offset:,} were written to it"
            result.add(Problem.SHORT, short)
        lines = OutputLines(path, self._length)
        result.lines = _Comparison(self._connection, result).compare(lines)
        if lines.torn and self._length > result.offset:
            result.torn = True
        elif lines.damage:
            result.add(Problem.DAMAGED, f"the output is damaged ({lines.damage})")

    def _ask(self, question: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(question).fetchall()


class _Line(NamedTuple):
    """A line that the ledger has."""

    number: int
    row: int
    """From 1."""
    content: bytes


class _Comparison:
    """An output beside what the ledger has of it. Reads both once; keeps a line of each, and a few numbers."""

    def __init__(self, connection: sqlite3.Connection, result: Verification) -> None:
        self._connection, self._result = connection, result
        self._kept = self._lines_kept()
        self._next = next(self._kept, None)
        """The line that should come next."""
        self._unknown: list[tuple[int, str]] = []
        """Lines that the ledger does not have, since the last that it has: their numbers and names."""
        self._has_names = False

    def compare(self, lines: Iterable[bytes]) -> int:
        """How many lines were looked at."""
        result, count = self._result, 0
        for count, line in enumerate(lines, 1):
            expected = self._next
            if expected is not None and line == expected.content:
                if self._unknown:
                    self._settle(expected.number)
                self._next = next(self._kept, None)
            elif expected is not None and self._is_torn(line, expected):
                result.torn = True
            else:
                self._place(count, line)
            if result.is_full or len(self._unknown) >= MOST_UNKNOWN:
                break
        self._settle(result.written + 1)
        return count

    def _is_torn(self, line: bytes, expected: _Line) -> bool:
        """Only the last line can be without an end."""
        return line[-1:] != b"\n" and expected.number > self._result.written and expected.content.startswith(line)

    def _place(self, count: int, line: bytes) -> None:
        """A line is not where it should be."""
        name = text_in(line, "custom_id")
        number = None if name is None else self._number_of(name, line)
        if number is None:
            self._unknown.append((count, _shown(line) if name is None else quoted(redact(name))))
        elif self._next is None or number < self._next.number:
            again = f"line {count:,} of the output ({quoted(redact(name or ''))}) is a duplicate"
            self._result.add(Problem.DUPLICATE, again, line=count)
        else:
            self._settle(number)
            self._next = next(self._kept, None)

    def _settle(self, number: int) -> None:
        """Make findings of the unknown lines, and of those that should stand here before the one of this number."""
        unknown, self._unknown = iter(self._unknown), []
        missing = 0
        while self._next is not None and self._next.number < number:
            row = self._next.row
            if (found := next(unknown, None)) is not None:
                text = f"line {found[0]:,} of the output differs from row {row:,} in the ledger"
                self._result.add(Problem.CHANGED, text, line=found[0], row=row)
            elif not missing:
                missing, first = 1, row
            else:
                missing += 1
            self._next = next(self._kept, None)
        if missing:
            lines = "the line of" if missing == 1 else f"{missing:,} lines, the first of"
            self._result.add(Problem.MISSING, f"the output lacks {lines} row {first:,}", row=first)
        for line, name in unknown:
            text = f"line {line:,} of the output ({name}) is not in the ledger"
            self._result.add(Problem.UNKNOWN_LINE, text, line=line)
            if self._result.is_full:
                return

    def _number_of(self, name: str, line: bytes) -> int | None:
        """Its place in the order of finished rows, if the ledger has this very line."""
        if not self._has_names:
            self._has_names = True
            for statement in KNOWN:
                self._connection.execute(statement)
        ended = line if line[-1:] == b"\n" else line + b"\n"
        for number, content in self._connection.execute(LINES_NAMED, (storable(name),)):
            if content == ended:
                return int(number)
        return None

    def _lines_kept(self) -> Iterator[_Line]:
        number = 0
        while block := read_final(self._connection, number, ROWS_AT_ONCE):
            for one in block:
                for line in one.result.splitlines(keepends=True) if one.result.count(b"\n") > 1 else (one.result,):
                    if line:
                        yield _Line(one.number, one.index + 1, line)
            number = block[-1].number


class OutputLines:
    """The lines of an output, unpacked, as far as they can be read."""

    def __init__(self, path: str, length: int | None = None) -> None:
        """``length``: how many bytes of the file to read; all that are there now by default."""
        self._path, self._length = path, length_of(path) if length is None else length
        self.torn = False
        """Whether a packed piece at the end was cut short."""
        self.damage = ""
        """Why it could not be read to its end, that included."""

    def __iter__(self) -> Iterator[bytes]:
        if not self._length:
            return  # no piece at all, which is not a torn one
        with open(self._path, "rb") as file:
            try:
                raw = io.BufferedReader(_Beginning(file, self._length))
                whole = cast("IO[bytes]", unpacked(raw, Compression.of_name(self._path), self._path))
                while line := whole.readline(LONGEST_LINE):
                    yield line
            except Exception as error:
                if not is_damage(error):
                    raise
                self.torn, self.damage = isinstance(error, EOFError), str(error)


class _Beginning(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: io.BufferedReader, length: int) -> None:
        self._file = file
        self._left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


def text_in(line: bytes, name: str) -> str | None:
    """A field of a line of output; None if the line has none of this name."""
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        return None
    text = read.get(name) if isinstance(read, dict) else None
    return text if isinstance(text, str) else None


def _shown(line: bytes) -> str:
    return quoted(redact(line[:200].decode("utf-8", "replace").strip()))
