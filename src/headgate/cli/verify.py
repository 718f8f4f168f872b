"""``headgate verify``: the proof that a batch has lost nothing, with the exit code as its verdict."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import click

from headgate.batch.formats.compression import Compression, is_damage, unpacked
from headgate.batch.formats.problems import InputError
from headgate.batch.formats.reading import Rows
from headgate.batch.formats.template import Template
from headgate.batch.ledger import LedgerError, RowState
from headgate.batch.sqlite_file import SUFFIX
from headgate.batch.sqlite_proof import Proof, Prover
from headgate.batch.sqlite_reading import look
from headgate.errors import ConfigError

from . import DONE, FAILED, CommandFailed
from .examples import ExampleCommand
from .status import find_ledger

ELSEWHERE = "-"


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate verify results.jsonl", "does the ledger agree with itself and with results.jsonl?"),
        ("headgate verify results.jsonl --input rows.jsonl", "and is every row of the input done, dead or open?"),
        ("headgate verify results.jsonl --json | jq .findings", "for programs: one JSON line"),
    ],
)
@click.argument("path", required=False, metavar="[OUTPUT|LEDGER]")
@click.option(
    "--input", "source", metavar="FILE", help="The input.  [default: the one the ledger names, if it is there]"
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help='The output; "-" if it went elsewhere.  [default: where the run has put it]',
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line.")
def command(path: str | None, source: str | None, output: str | None, as_json: bool) -> int:
    """Prove that a batch is sound: input = done + dead + open, no row twice, ledger and output agree.

    Everything is counted again from the rows themselves. A run may go on meanwhile. The exit code is 0 if the proof
    holds, and 3 if it does not or cannot be made.
    """
    ledger = find_ledger(path)
    for name, file in (("--input", source), ("--output", output)):
        if file not in (None, ELSEWHERE) and not os.path.isfile(str(file)):
            raise click.UsageError(f"there is no file {file} for {name}.")
    try:
        identity = look(ledger).identity
        source = source or existing(beside(ledger, identity.get("input", "")))
        output = output or output_of(ledger, identity)
        with Prover(ledger) as prover:
            prover.check_itself()
            if source is not None:
                prover.check_input(digests_of(source, identity))
            proof = prover.proof
            if output is None and proof.written:
                proof.found(f"the output that {proof.written:,} rows were written to is not there; name it with -o")
            elif output not in (None, ELSEWHERE):
                prover.check_output(lines_of(str(output), proof))
    except (LedgerError, InputError, ConfigError) as error:
        raise CommandFailed(f"{error}.") from None
    click.echo(json.dumps(as_fields(proof)) if as_json else as_page(proof))
    return DONE if proof.holds else FAILED


def output_of(ledger: str, identity: Mapping[str, str]) -> str | None:
    """The output as the run has named it; what bears the ledger's name, if it did not."""
    named = identity.get("output", os.path.basename(ledger).removesuffix(SUFFIX))
    return ELSEWHERE if named == ELSEWHERE else existing(beside(ledger, named))


def beside(ledger: str, name: str) -> str:
    """Files are named as seen from the ledger, so that all of them may be moved together."""
    return os.path.join(os.path.dirname(ledger), name)


def existing(path: str) -> str | None:
    return path if os.path.isfile(path) else None


def digests_of(source: str, identity: Mapping[str, str]) -> Iterator[bytes]:
    """Of each row, in order, as the run read them. No request is made of them, so any template will do."""
    form = "csv" if identity.get("format") == "csv" else "jsonl"
    with Rows(source, format=form, template=Template("{}"), delimiter=identity.get("delimiter")) as rows:
        for row in rows:
            yield row.digest


def lines_of(output: str, proof: Proof) -> Iterator[bytes]:
    """What the checkpoint says is whole; the next run cuts off what stands behind it."""
    length = os.path.getsize(output)
    if length < proof.offset:
        proof.found(f"the output has {length:,} bytes, but {proof.offset:,} were written to it")
    with open(output, "rb") as file:
        try:
            beginning = io.BufferedReader(_Beginning(file, proof.offset))
            yield from cast(Iterable[bytes], unpacked(beginning, Compression.of_name(output), output))
        except Exception as error:
            if not is_damage(error):
                raise
            proof.found(f"the output is damaged ({error})")


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


def as_fields(proof: Proof) -> dict[str, Any]:
    states = proof.counts.states
    return {
        "holds": proof.holds,
        "input": proof.input_rows,
        "seen": proof.counts.seen,
        "done": states.get(RowState.DONE, 0),
        "dead": states.get(RowState.DEAD, 0),
        "open": proof.open,
        "written": proof.written,
        "output_lines": proof.lines,
        "findings": proof.findings,
    }


def as_page(proof: Proof) -> str:
    fields = as_fields(proof)
    rows = f"{fields['done']:,} done + {fields['dead']:,} dead + {fields['open']:,} open"
    total = proof.counts.seen if proof.input_rows is None else proof.input_rows
    whose = "rows read so far; the input was not looked at" if proof.input_rows is None else "rows of input"
    lines = [f"{total:,} {whose}: {rows}."]
    if proof.lines is not None:
        lines.append(f"{proof.lines:,} lines of output compared with the ledger.")
    lines += [f"  wrong: {sentence}" for sentence in proof.findings]
    waiting = fields["done"] + fields["dead"] - proof.written
    if not proof.holds:
        lines.append("The proof does not hold. The ledger has every result; keep a copy of it before anything else.")
    elif proof.open or waiting:
        later = f" ({waiting:,} results are not in the output yet)" if waiting else ""
        lines.append(f"The proof holds{later}. Run the same command again to go on.")
    else:
        lines.append("The proof holds.")
    return "\n".join(lines)
