"""``headgate watch``: the runs of this machine, live, and why they wait; or what reports to a store."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Self

import click
from rich.console import Console
from rich.layout import Layout
from rich.live import Live
from rich.text import Text

from ...observe.run_registry import machine_runs
from ...units import read_duration
from ..ui.display import Display, Frame, Mode
from ..ui.observe_options import ObservedCommand, page, web_option
from ..ui.options import Notation, json_option, shared_store_options
from ..ui.run_page import RunsFrame
from ..ui.run_sampler import RunsSampler, StoreSampler, fleet_run_option
from ..ui.session import sigterm_interrupts
from ..ui.terminal import DONE, say

SHORTEST = 0.1
"""Seconds between two frames, at least."""
LINE_EVERY, SCREEN_EVERY = 5.0, 1.0
MOST_ENDED = 50
"""Lines that stay on the terminal afterwards."""
QUIT_KEYS = "qQ\x1b\x03"
HINT = Text("\n q or Ctrl-C quits; the runs continue", "dim")
HINT_LINES = 2


def read_every(text: str) -> float:
    seconds = read_duration(text)
    if seconds < SHORTEST:
        raise ValueError(f"{text!r} is too short; the minimum is {SHORTEST:g}s")
    return seconds


@click.command(
    cls=ObservedCommand,
    examples=[
        ("headgate watch", "the runs of this machine, live; full detail for a single one"),
        ("headgate watch run-4711", "one run: by the start of its name, its process id, or words of its title"),
        (
            "headgate watch --store redis://cache:6379",
            "the runs that report there, and what shares which quota",
        ),
        ("headgate watch --store redis://cache:6379 --run nightly", "one run of many machines, live"),
        ("headgate watch --json | jq -c '[.run, .progress.done]'", "for programs: a JSON line a second for each run"),
        ("headgate watch --web", "in a browser too"),
    ],
)
@click.argument("run", required=False, metavar="[RUN]")
@shared_store_options
@fleet_run_option
@click.option(
    "--every",
    type=Notation("TIME", read_every),
    help="Time between two updates.  [default: 1s, in a pipe 5s]",
)
@web_option
@json_option("Print JSON lines: the state of each run, and its new events.")
def command(
    run: str | None,
    store: str | None,
    keys: tuple[str, ...],
    fleet_run: str | None,
    every: float | None,
    web: int | None,
    as_json: bool,
) -> int:
    """Watch runs live: progress, learned rates and why they wait. q or Ctrl-C quits; the runs continue.

    Every headgate run, crawl, proxy and demo of yours on this machine is shown unless it was started with --unseen.
    With RUN it ends when that run ends. With --store, the runs that workers on several machines report there are shown
    with the shared limits, and --run shows one of them in full.
    """
    if store is not None and (run is not None or web is not None):
        raise click.UsageError(
            "--store can be combined with --run, --key, --every and --json, not with RUN or --web "
            "(headgate web --store shows it in a browser)."
        )
    if fleet_run is not None and store is None:
        raise click.UsageError(
            f"--run needs --store; a run of this machine needs only its name: headgate watch {fleet_run}."
        )
    if keys and store is None:
        raise click.UsageError("--key needs --store: headgate watch --store machine --key NAME.")
    with suppress(KeyboardInterrupt), sigterm_interrupts(), ExitStack() as stack:
        if store is not None:
            follow(StoreSampler(store, keys, fleet_run).sample, as_json=as_json, every=every)
            return DONE
        runs = machine_runs()
        sampler = RunsSampler(runs, run)
        if web is not None:
            stack.enter_context(page(runs, web))
        follow(sampler.sample, as_json=as_json, every=every)
    return DONE


def follow(sample: Callable[[], Frame], *, as_json: bool, every: float | None) -> None:
    """Show frames until a key or the end of the chosen run ends it."""
    console = Console(highlight=False)
    display: Display | FullScreen
    if as_json:
        display = Display(Mode.JSON, every=SCREEN_EVERY)
    elif not console.is_terminal or console.is_dumb_terminal:
        display = Display(Mode.LINES, every=LINE_EVERY, lines_err=False)
    else:
        display = FullScreen(console)
    with display, _key_watch() as is_quit_within:
        while True:
            frame = sample()
            display.show(frame)
            if (isinstance(frame, RunsFrame) and frame.is_over) or is_quit_within(every or display.every):
                return


class FullScreen:
    """Frames on the whole terminal; afterwards it shows what was there before, and which runs have ended."""

    every = SCREEN_EVERY

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop")
        self._ended: list[str] = []

    def show(self, frame: Frame) -> None:
        if isinstance(frame, RunsFrame):
            self._ended += frame.ended_lines()
        layout = Layout()
        content = frame.render(self._console.width, self._console.height - HINT_LINES)
        layout.split_column(Layout(content), Layout(HINT, size=HINT_LINES))
        self._live.update(layout, refresh=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)
        for line in self._ended[-MOST_ENDED:]:
            say(line)


@contextmanager
def _key_watch() -> Iterator[Callable[[float], bool]]:
    """A function that waits, and returns True as soon as a key quits. Without a keyboard it only waits."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()):
        yield _wait
        return
    try:
        import select
        import termios
        import tty
    except ImportError:  # Windows: Ctrl-C quits
        yield _wait
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def is_quit_within(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([terminal], [], [], left)[0]:
                return False
            typed = sys.stdin.read(1)
            if not typed or typed in QUIT_KEYS:
                return True
        return False

    tty.setcbreak(terminal)
    try:
        yield is_quit_within
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False
