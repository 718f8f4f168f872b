"""The options of ``headgate run``, and what becomes of them: the input, the ledger, the keys, the batch's settings.

Values are in ``given`` by the name of their option. Those that several commands share are in ``cli/ui/options.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...batch.config import ALIKE, job_config
from ...batch.input import Rows, Template
from ...batch.input.rows import FORMATS
from ...batch.ledger.schema import SUFFIX
from ...batch.pricing import Prices
from ...batch.runner import AUTO_WORKERS, MOST_WORKERS
from ...batch.target import TargetConfig
from ...engine.output_file import STDOUT
from ...errors import ConfigError
from ..ui.config_file import config_option
from ..ui.observe_options import TraceRecorder, count_rows, observe_options
from ..ui.options import (
    DURATION,
    Notation,
    Number,
    count_option,
    deadline_option,
    groups_option,
    json_lines_option,
    limits_option,
    quiet_option,
    target_options,
    trace_option,
    wait_option,
)
from ..ui.shared_state import MACHINE, SharedState, store_option, vendor_coordinator

if TYPE_CHECKING:
    from ...credentials import CredentialCoordinator

F = TypeVar("F", bound=Callable[..., Any])


def read_workers(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        workers = int(text)
    except ValueError:
        workers = 0
    if not 1 <= workers <= MOST_WORKERS:
        raise ValueError(f"{text!r} is not auto or a whole number from 1 to {MOST_WORKERS:,}")
    return workers


def run_options(command: F) -> F:
    """All of them, in the order in which the help lists them."""
    options = (
        click.argument("source", metavar="IN"),
        click.option(
            "-o",
            "--output",
            required=True,
            metavar="OUT",
            help='Where results go, one line per row as it finishes; "-" is stdout. Names in .gz and .zst are '
            "compressed.",
        ),
        target_options,
        groups_option,
        click.option(
            "--format",
            "form",
            type=click.Choice(FORMATS),
            default="auto",
            show_default=True,
            help="The format of IN: a vendor's batch file, plain JSON lines (bodies, or values for a template), or "
            "CSV. auto looks at its name and first lines.",
        ),
        click.option(
            "--template", metavar="FILE", help="JSON with {column} placeholders, filled from each row. A CSV needs one."
        ),
        click.option(
            "--name-field", metavar="NAME", help="The column or field with each row's id.  [default: custom_id]"
        ),
        click.option(
            "--delimiter",
            metavar="CHARACTER",
            help="The field separator of a CSV.  [default: , ; or tab, by its header]",
        ),
        click.option(
            "--on-broken",
            type=click.Choice(("stop", "dead")),
            default="stop",
            show_default=True,
            help="For a row that is invalid or repeats a custom_id: stop there, or record it as failed (dead) and "
            "continue.",
        ),
        click.option(
            "--plan",
            "only_plan",
            is_flag=True,
            help="Estimate rows, tokens, cost and time, and list rows that cannot be sent; send nothing.",
        ),
        limits_option,
        click.option(
            "--price",
            "prices",
            multiple=True,
            metavar="MODEL=IN/OUT|auto",
            help="Per million tokens; * is any model. auto: published prices, by genai-prices. Repeatable.",
        ),
        click.option(
            "--max-cost", type=Number(0, min_open=True), metavar="AMOUNT", help="Stop before the cost exceeds this."
        ),
        count_option("--max-tokens", "Stop before input and output tokens exceed this.", 1),
        deadline_option,
        click.option("--timeout", type=DURATION, default="10min", show_default=True, help="Timeout for one response."),
        click.option(
            "--workers",
            type=Notation("auto|N", read_workers),
            default="auto",
            show_default=True,
            help="Maximum concurrent calls; auto leaves this to the limiter.",
        ),
        count_option("--max-attempts", "Maximum attempts per row.", 1, 1000, default=5),
        store_option(MACHINE),
        click.option("--ledger", metavar="FILE", help=f"The file with the state of every row.  [default: OUT{SUFFIX}]"),
        click.option(
            "--recover",
            is_flag=True,
            help="If OUT exists and its ledger does not, first rebuild the ledger from IN and OUT: rows in OUT are not "
            "sent again.",
        ),
        wait_option,
        click.option(
            "--keep-going",
            is_flag=True,
            help=f"Continue even if the first {ALIKE} rows all fail with the same error.  [default: stop]",
        ),
        config_option,
        trace_option,
        observe_options,
        json_lines_option,
        quiet_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def open_rows(source: str, given: dict[str, Any]) -> Rows:
    template = given["template"]
    return Rows(
        source,
        format=given["form"],
        template=None if template is None else Template.read(template),
        name_field=given["name_field"],
        delimiter=given["delimiter"],
        on_broken=given["on_broken"],
    )


def ledger_path(output: str, ledger: str | None) -> str | None:
    """None: standard output without ``--ledger``, whose ledger nothing would find again."""
    if ledger is not None:
        if os.path.abspath(ledger) == os.path.abspath(output):
            raise click.UsageError("--ledger and --output are the same file; each needs its own.")
        return ledger
    return None if output == STDOUT else output + SUFFIX


def credentials_of(
    to: TargetConfig, given: dict[str, Any], shared: SharedState | None = None
) -> CredentialCoordinator | None:
    endpoint = to.endpoint
    return vendor_coordinator(endpoint.name, endpoint.key_variable, given["sources"], shared, given["groups"])


def prices_of(given: Iterable[str]) -> Prices:
    try:
        return Prices.of(Prices.table(given))
    except ConfigError as error:
        raise click.UsageError(f"--price: {error}.") from None


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    prices = prices_of(given["prices"])
    if given["max_cost"] is not None and not prices:
        raise click.UsageError("--max-cost needs prices; pass --price MODEL=IN/OUT, or --price auto.")
    return {
        "workers": given["workers"],
        "prices": prices,
        "config": job_config(
            max_attempts=given["max_attempts"],
            wait=given["wait"],
            keep_going=given["keep_going"],
            deadline=given["deadline"],
            max_tokens=given["max_tokens"],
            max_cost=given["max_cost"],
        ),
    }


def trace_recorder(
    given: dict[str, Any], rows: Rows, credentials: CredentialCoordinator | None
) -> TraceRecorder | None:
    if given["trace"] is None:
        return None
    workers = AUTO_WORKERS if given["workers"] == "auto" else given["workers"]
    keys = 1 if credentials is None else len(credentials.labels)
    return TraceRecorder(given["trace"], workers=workers, calls=count_rows(rows), keys=keys)
