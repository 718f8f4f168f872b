"""``headgate verify``: check that a batch has lost nothing; the exit code is the result."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import click

from ...batch.input.rows import Rows
from ...batch.input.template import Template
from ...batch.ledger import LedgerError, RowState
from ...batch.ledger.queries import read_status
from ...batch.ledger.schema import beside, output_of
from ...batch.ledger.verify import LedgerVerifier, Verification
from ...errors import ConfigError, InputError
from ..ui.display import RESUME, plural
from ..ui.options import ExampleCommand, json_option
from ..ui.terminal import DONE, FAILED, CommandFailed, say
from .status import find_ledger

ELSEWHERE = "-"


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate verify results.jsonl", "is the ledger consistent with itself and with results.jsonl?"),
        ("headgate verify results.jsonl --input rows.jsonl", "and is every row of the input done, failed or open?"),
        ("headgate verify results.jsonl --json | jq .findings", "for programs: one JSON line"),
    ],
)
@click.argument("path", required=False, metavar="[OUTPUT|LEDGER]")
@click.option("--input", "source", metavar="FILE", help="The input.  [default: the one in the ledger, if it exists]")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help='The output; "-" to skip it.  [default: OUTPUT, or the one in the ledger]',
)
@json_option("Print one JSON line.")
def command(path: str | None, source: str | None, output: str | None, as_json: bool) -> int:
    """Verify a batch: input = done + failed + open, no row twice, ledger and output agree.

    All rows are counted again, and the whole output is compared with the ledger: lines that are duplicated, changed,
    missing or not written by the run are listed. The batch may be running. The exit code is 0 if everything agrees, and
    3 if it does not or cannot be checked.
    """
    ledger = find_ledger(path)
    for name, file in (("--input", source), ("--output", output)):
        if file not in (None, ELSEWHERE) and not os.path.isfile(str(file)):
            raise click.UsageError(f"{name}: there is no file {file}.")
    try:
        identity = read_status(ledger).identity
        source = source or existing(beside(ledger, identity.get("input", "")))
        output = (output or compared(path, ledger, output_of(ledger, identity))) if output != ELSEWHERE else None
        with LedgerVerifier(ledger, output) as verifier:
            verifier.check_itself()
            if source is not None:
                verifier.check_input(digests_of(source, identity))
            if output is not None:
                verifier.check_output()
            result = verifier.result
    except (LedgerError, InputError, ConfigError) as error:
        raise CommandFailed(f"{error}.") from None
    say(json.dumps(result_fields(result)) if as_json else result_page(result))
    return DONE if result.holds else FAILED


def compared(path: str | None, ledger: str, written: str | None) -> str | None:
    """The output to compare: the named one, which may be a copy, or the written one; None: there is no file."""
    is_named = path is not None and os.path.isfile(path) and os.path.abspath(path) != ledger
    return path if is_named and written is not None else written


def existing(path: str) -> str | None:
    return path if os.path.isfile(path) else None


def digests_of(source: str, identity: Mapping[str, str]) -> Iterator[bytes]:
    """Of each row, in order, as the run read them. No requests are made from them, so any template will do."""
    form = "csv" if identity.get("format") == "csv" else "jsonl"
    with Rows(source, format=form, template=Template("{}"), delimiter=identity.get("delimiter")) as rows:
        for row in rows:
            yield row.digest


def result_fields(result: Verification) -> dict[str, Any]:
    states = result.counts.states
    return {
        "holds": result.holds,
        "input": result.input_rows,
        "seen": result.counts.seen,
        "done": states.get(RowState.DONE, 0),
        "dead": states.get(RowState.DEAD, 0),
        "open": result.open,
        "written": result.written,
        "output_lines": result.lines,
        "findings": [finding.text for finding in result.findings],
        "problems": [
            {"code": finding.problem.value, "line": finding.line, "row": finding.row} for finding in result.findings
        ],
    }


def result_page(result: Verification) -> str:
    fields = result_fields(result)
    rows = f"{fields['done']:,} done + {fields['dead']:,} failed + {fields['open']:,} open"
    total = result.counts.seen if result.input_rows is None else result.input_rows
    what = "rows read so far; the input was not checked" if result.input_rows is None else "rows of input"
    lines = [f"{total:,} {what}: {rows}."]
    if result.lines is not None:
        lines.append(f"{plural(result.lines, 'line')} of output compared with the ledger.")
    if result.torn:
        lines.append("The last line of the output is incomplete, as after a crash; the next run rewrites it.")
    if result.replaced:
        lines.append("The output is from before headgate retry; the next run rewrites it.")
    lines += [f"  problem: {finding.text}" for finding in result.findings]
    unwritten = fields["done"] + fields["dead"] - result.written
    return "\n".join([*lines, next_step(result, unwritten)])


def next_step(result: Verification, unwritten: int) -> str:
    """The last line: the result, and what to do."""
    if result.holds and not (result.open or unwritten):
        return "Verified: no row is lost or duplicated."
    if result.holds:
        later = f" ({plural(unwritten, 'result')} not in the output yet)" if unwritten else ""
        return f"Verified so far{later}. {RESUME}"
    if not result.counts.seen:
        return (
            "Verification failed. The ledger has no rows: the output was written with another ledger. Restore it, or "
            "run the same headgate run command with --recover."
        )
    if all(finding.problem.of_output for finding in result.findings):
        return (
            "Verification failed. The ledger is consistent and has every result: move the output away and run the same "
            "headgate run command to rewrite it."
        )
    return "Verification failed. The ledger has every result: make a copy of it before anything else."
