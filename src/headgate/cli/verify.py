"""``headgate verify``: the proof that a batch has lost nothing, with the exit code as its verdict."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import click

from headgate.batch.formats.problems import InputError
from headgate.batch.formats.reading import Rows
from headgate.batch.formats.template import Template
from headgate.batch.ledger import LedgerError, RowState
from headgate.batch.sqlite_identity import beside, output_of
from headgate.batch.sqlite_proof import Proof, Prover
from headgate.batch.sqlite_reading import look
from headgate.errors import ConfigError

from . import DONE, FAILED, CommandFailed, say
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
    help='The output; "-" if it went elsewhere.  [default: the one that is named, or where the run has put it]',
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line.")
def command(path: str | None, source: str | None, output: str | None, as_json: bool) -> int:
    """Prove that a batch is sound: input = done + dead + open, no row twice, ledger and output agree.

    Everything is counted again from the rows themselves, and the whole output is compared: lines that are there twice,
    were changed, are missing or were never written by the run are named. A run may go on meanwhile. The exit code is 0
    if the proof holds, and 3 if it does not or cannot be made.
    """
    ledger = find_ledger(path)
    for name, file in (("--input", source), ("--output", output)):
        if file not in (None, ELSEWHERE) and not os.path.isfile(str(file)):
            raise click.UsageError(f"there is no file {file} for {name}.")
    try:
        identity = look(ledger).identity
        source = source or existing(beside(ledger, identity.get("input", "")))
        output = (output or compared(path, ledger, output_of(ledger, identity))) if output != ELSEWHERE else None
        with Prover(ledger, output) as prover:
            prover.check_itself()
            if source is not None:
                prover.check_input(digests_of(source, identity))
            if output is not None:
                prover.check_output()
            proof = prover.proof
    except (LedgerError, InputError, ConfigError) as error:
        raise CommandFailed(f"{error}.") from None
    say(json.dumps(as_fields(proof)) if as_json else as_page(proof))
    return DONE if proof.holds else FAILED


def compared(path: str | None, ledger: str, written: str | None) -> str | None:
    """The output that is named, which may be a copy of the one that was written; None for standard output."""
    is_named = path is not None and os.path.isfile(path) and os.path.abspath(path) != ledger
    return path if is_named and written is not None else written


def existing(path: str) -> str | None:
    return path if os.path.isfile(path) else None


def digests_of(source: str, identity: Mapping[str, str]) -> Iterator[bytes]:
    """Of each row, in order, as the run read them. No request is made of them, so any template will do."""
    form = "csv" if identity.get("format") == "csv" else "jsonl"
    with Rows(source, format=form, template=Template("{}"), delimiter=identity.get("delimiter")) as rows:
        for row in rows:
            yield row.digest


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
        "findings": [finding.text for finding in proof.findings],
        "problems": [
            {"code": finding.problem.value, "line": finding.line, "row": finding.row} for finding in proof.findings
        ],
    }


def as_page(proof: Proof) -> str:
    fields = as_fields(proof)
    rows = f"{fields['done']:,} done + {fields['dead']:,} dead + {fields['open']:,} open"
    total = proof.counts.seen if proof.input_rows is None else proof.input_rows
    whose = "rows read so far; the input was not looked at" if proof.input_rows is None else "rows of input"
    lines = [f"{total:,} {whose}: {rows}."]
    if proof.lines is not None:
        lines.append(f"{proof.lines:,} lines of output compared with the ledger.")
    if proof.torn:
        lines.append("The last line of the output is torn, as a crash leaves it; the next run writes it again.")
    if proof.replaced:
        lines.append("The output is the one from before headgate retry; the next run writes it again.")
    lines += [f"  wrong: {finding.text}" for finding in proof.findings]
    waiting = fields["done"] + fields["dead"] - proof.written
    if not proof.holds and not proof.counts.seen:
        lines.append(
            "The proof does not hold. The ledger has no rows: the output was written with another one. Bring that "
            "back, or run the same headgate run command with --recover."
        )
    elif not proof.holds and all(finding.problem.of_output for finding in proof.findings):
        lines.append(
            "The proof does not hold. The ledger is sound and has every result: move the output away, and the same "
            "headgate run command writes it again."
        )
    elif not proof.holds:
        lines.append("The proof does not hold. The ledger has every result; keep a copy of it before anything else.")
    elif proof.open or waiting:
        later = f" ({waiting:,} results are not in the output yet)" if waiting else ""
        lines.append(f"The proof holds{later}. Run the same command again to go on.")
    else:
        lines.append("The proof holds.")
    return "\n".join(lines)
