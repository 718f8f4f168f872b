"""``headgate mock``: serve a rate-limited API on loopback until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

import click

from ...lab.scenario import REFILLING
from ...mock.api import DEFAULT_AT_ONCE, DEFAULT_RATE, SCOPES, MockPlan
from ...mock.dialects import DIALECTS
from ...mock.llm import LANGUAGE_APIS
from ...mock.providers import PROVIDER_APIS
from ...mock.quota import ALGORITHMS
from ...mock.server import MockServer
from ...units import MOST_PER_WINDOW, read_outage, read_rate, read_step, read_whole_number
from ..ui.options import DURATION, WHOLE, ExampleCommand, Notation, Number, count_option, json_option, port_option
from ..ui.session import cannot_listen, run_async
from ..ui.terminal import DONE, CannotStart


def read_key(text: str) -> MockPlan:
    """``60/min,burst=20,tokens=30000/min,per-day=500,0.5@10s``: the rate first, the rest in any order."""
    rate, *others = text.split(",")
    named = dict(other.split("=", 1) for other in others if "=" in other)
    steps = tuple(read_step(other) for other in others if "=" not in other)
    burst, tokens, per_day = (named.pop(name, None) for name in ("burst", "tokens", "per-day"))
    read_in, written = (named.pop(name, None) for name in ("input_tokens", "output_tokens"))
    if named:
        raise ValueError(
            f"{next(iter(named))!r} is not a setting of a key; write burst=20, tokens=30000/min or per-day=500"
        )
    try:
        calls = read_rate(rate)
    except ValueError:  # not repeated: it may be an API key in the wrong place
        raise ValueError("the quota of the key is missing: write 50/s, 600/min or 200/10s first") from None
    return MockPlan(
        rate=calls,
        burst=None if burst is None else read_whole_number(burst),
        tokens=None if tokens is None else read_rate(tokens),
        input_tokens=None if read_in is None else read_rate(read_in),
        output_tokens=None if written is None else read_rate(written),
        per_day=None if per_day is None else read_whole_number(per_day),
        steps=steps,
    )


RATE = Notation("N/TIME", read_rate)
STEP = Notation("FACTOR@TIME", read_step)
OUTAGE = Notation("TIME+TIME", read_outage)
ALL = "all"
KEY = Notation("N/TIME[,...]", read_key)


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate mock", "50 calls a second on a free port; the address is printed"),
        ("headgate mock --rate 600/min --headers openai --port 8080", "with the rate-limit headers of OpenAI"),
        ("headgate mock --rate 600/min --headers gemini", "like Gemini: the limit is only in the error body"),
        ("headgate mock --rate 100/s --step 0.5@10s --outage 20s+3s", "half the quota after 10 s, an outage at 20 s"),
        ("headgate mock --key 50/s --key 20/s,0.5@10s", "two keys, each with its own quota"),
        ("headgate mock --algorithm concurrency --at-once 8", "limit concurrent calls instead of calls per second"),
        ("headgate mock --provider tavily --rate 100/min --per-day 1000", "the API of Tavily, with a quota per key"),
        ("headgate mock --provider all --port 8080", "all search APIs, each under its name"),
        ("headgate mock --provider openai --rate 500/min --tokens 30000/min", "language models, for the real SDK"),
        (
            "headgate mock --provider anthropic --key 60/min,tokens=30000/min --key 60/min,per-day=500,0.5@10s",
            "two keys, each with its own limits and steps",
        ),
        ("curl -i http://127.0.0.1:8080/v1/anything", "a call"),
        ("curl http://127.0.0.1:8080/_truth", "the true quota and counters"),
    ],
)
@click.option("--rate", type=RATE, help=f"The quota: 50/s, 600/min, 200/10s.  [default: {DEFAULT_RATE}]")
@click.option(
    "--algorithm",
    type=click.Choice(ALGORITHMS),
    default="bucket",
    show_default=True,
    help="How calls are counted: a token bucket, GCRA (evenly spaced), fixed windows, a sliding log, a strict log that "
    "also counts refused calls, or concurrent calls (concurrency).",
)
@click.option(
    "--burst",
    type=Number(1, MOST_PER_WINDOW),
    metavar="N",
    help="The capacity of a bucket, or the burst of GCRA.  [default: N of --rate]",
)
@count_option("--at-once", f"The limit of --algorithm concurrency.  [default: {DEFAULT_AT_ONCE}]", 1, MOST_PER_WINDOW)
@click.option(
    "--headers",
    "dialect",
    type=click.Choice(list(DIALECTS)),
    default="none",
    show_default=True,
    metavar="NAME",
    help="The vendor whose rate-limit headers and error bodies are used: " + ", ".join(DIALECTS) + ". "
    "docs/scenarios.md describes each.",
)
@click.option(
    "--latency", type=DURATION, default="40ms", show_default=True, help="Latency of an answer, plus or minus a quarter."
)
@click.option(
    "--step", "steps", type=STEP, multiple=True, help="Change the quota: 0.5@10s halves it after 10 s. Repeatable."
)
@click.option(
    "--outage",
    "outages",
    type=OUTAGE,
    multiple=True,
    help="Fail: 12s+3s answers 503 for 3 s after 12 s. Repeatable.",
)
@click.option(
    "--key",
    "keys",
    type=KEY,
    multiple=True,
    help="A key with its own quota instead of --rate, optionally with burst and steps (50/s,burst=20,0.5@10s), and for "
    "language models tokens=30000/min (or input_tokens, output_tokens) and per-day=500. "
    'The first is sent as "Authorization: Bearer mock-key-1"; '
    "without a key the answer is 401. Repeatable.",
)
@click.option(
    "--provider",
    "providers",
    type=click.Choice([*PROVIDER_APIS, ALL, *LANGUAGE_APIS]),
    multiple=True,
    help="Also serve a search API (all: all of them) or a language model's: its real paths, responses and errors, "
    "under its name. Any key is accepted, except those that begin with 'revoked'; each has its own --rate. Repeatable.",
)
@click.option(
    "--tokens",
    type=RATE,
    help="Tokens per key of a language model's API, in and out: 30000/min.  [default: no limit]",
)
@click.option("--input-tokens", type=RATE, help="Only those of the prompt, per key: 30000/min.  [default: no limit]")
@click.option("--output-tokens", type=RATE, help="Only those of the answer, per key: 8000/min.  [default: no limit]")
@count_option(
    "--per-day",
    "Calls per day and key of a --provider; the day ends at midnight Pacific time, for language models other than "
    "Gemini UTC.  [default: no limit]",
    1,
    MOST_PER_WINDOW,
)
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default=SCOPES[0],
    show_default=True,
    help="Whose the limits of a language model's API are: each key's, those of its project or organization, or as the "
    "vendor has them, by model and service tier where it does so. The key acme.search.1 is of the organization acme "
    "and its project search.",
)
@click.option("--per-model", is_flag=True, help="Each model and service tier of a language model's API has its own.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@port_option(0, "The port to listen on.  [default: a free one]")
@click.option("--seed", type=WHOLE, help="Make latencies, responses and ids repeatable.")
@click.option(
    "--stop-with-stdin", is_flag=True, help="Stop when standard input closes, for programs that start the mock."
)
@json_option("Print the address and the final counters as JSON lines.")
def command(providers: tuple[str, ...], stop_with_stdin: bool, as_json: bool, **given: Any) -> int:
    """Serve a rate-limited mock API.

    Every path under /v1/ answers small JSON. Calls over the quota get 429, in the format of a real vendor with
    --headers. Times in --step and --outage count from the first call.

    With --provider it also serves the APIs of search engines and language models. POST /_faults scripts their next
    answers: {"provider": "tavily", "trouble": "rate_limited", "times": 3}.
    """
    check_usage(providers, given)
    try:
        plan = plan_of(given)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    server = MockServer(
        plan,
        dialect=given["dialect"],
        host=given["host"],
        port=given["port"],
        seed=given["seed"],
        providers=tuple(each for name in providers for each in (PROVIDER_APIS if name == ALL else (name,))),
    )
    return run_async(serve(server, stop_with_stdin=stop_with_stdin, as_json=as_json))


def check_usage(providers: Sequence[str], given: dict[str, Any]) -> None:
    """Refuse options that exclude each other, or that need another one."""
    rate, keys, tokens = given["rate"], given["keys"], given["tokens"]
    apart = given["input_tokens"] or given["output_tokens"]
    if given["per_day"] is not None and not providers:
        raise click.UsageError("--per-day needs a --provider.")
    counted = tokens or apart or any(key.counts_tokens or key.per_day for key in keys)
    if counted and not any(name in LANGUAGE_APIS for name in providers):
        models = " or ".join(LANGUAGE_APIS)
        raise click.UsageError(f"tokens, and per-day of a --key, are for language models; add --provider {models}.")
    instead_of_keys = {
        "--rate": rate,
        "--step": given["steps"],
        "--tokens": tokens,
        "--input-tokens or --output-tokens": apart,
        "--provider": [name for name in providers if name not in LANGUAGE_APIS],
    }
    excluded = next((option for option, value in instead_of_keys.items() if value), None)
    if keys and excluded is not None:
        raise click.UsageError(
            f"{excluded} cannot be combined with --key; each key has its own quota: --key 50/s,0.5@10s."
        )
    paced = tuple(name for name in ALGORITHMS if name != "concurrency")
    burst = given["burst"] or next((key.burst for key in keys if key.burst), None)
    for option, value, meant_for in (
        ("--at-once", given["at_once"], ("concurrency",)),
        ("--burst", burst, REFILLING),
        ("--rate", rate, paced),
        ("--key", keys or None, paced),
    ):
        if value is not None and given["algorithm"] not in meant_for:
            raise click.UsageError(f"{option} is for --algorithm {' or '.join(meant_for)}, not {given['algorithm']}.")


def plan_of(given: dict[str, Any]) -> MockPlan:
    """Raises ``ValueError``."""
    return MockPlan(
        rate=given["rate"] or DEFAULT_RATE,
        algorithm=given["algorithm"],
        burst=given["burst"],
        at_once=given["at_once"] or DEFAULT_AT_ONCE,
        latency=given["latency"],
        steps=given["steps"],
        outages=given["outages"],
        tokens=given["tokens"],
        input_tokens=given["input_tokens"],
        output_tokens=given["output_tokens"],
        per_day=given["per_day"],
        scope=given["scope"],
        per_model=given["per_model"],
        keys=tuple(replace(key, burst=key.burst or given["burst"]) for key in given["keys"]),
    )


async def serve(server: MockServer, *, stop_with_stdin: bool, as_json: bool) -> int:
    host, port = server.host, server.port
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(server)
        except (OSError, UnicodeError) as error:
            raise CannotStart(cannot_listen(error, host, port)) from None
        with suppress(asyncio.CancelledError):  # Ctrl-C is how a server ends
            end_with_sigterm()
            announce(server, as_json)
            await (stdin_closed() if stop_with_stdin else asyncio.Event().wait())
    truth = server.truth()
    counts = "{asked} calls: {answered} answered, {rate_limited} rate limited, {down_answers} failed.".format(**truth)
    click.echo(json.dumps(truth) if as_json else f"\n{counts}")
    if not as_json:
        for name, service in server.services.items():
            click.echo(
                f"{name}: " + ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in service.counts.items())
            )
    return DONE


def announce(server: MockServer, as_json: bool) -> None:
    if as_json:
        bases = {"providers": {name: server.base_url(name) for name in server.services}} if server.services else {}
        click.echo(json.dumps({"url": server.url, **bases}))
    else:
        click.echo(f"mock API on {server.url}/v1/anything  (Ctrl-C stops it)")
        click.echo(f"true quotas and counters at {server.url}/_truth")
        for name in server.services:
            click.echo(f"{name:16}  base_url={server.base_url(name)}")
    sys.stdout.flush()


def end_with_sigterm() -> None:
    """End on SIGTERM as on Ctrl-C."""
    task = asyncio.current_task()
    if task is not None:
        with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def stdin_closed() -> bool:
    """Wait for the end of standard input, on a thread that does not delay the end of the process."""
    loop, closed = asyncio.get_running_loop(), asyncio.Event()

    def read_to_end() -> None:
        with suppress(OSError):
            while os.read(0, 65536):
                pass
        with suppress(RuntimeError):  # the loop is gone already
            loop.call_soon_threadsafe(closed.set)

    threading.Thread(target=read_to_end, daemon=True).start()
    return await closed.wait()
