"""Four scenarios in which one sees what the figures mean: each strategy's run under the other, with one seed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from headgate.lab.charts.drawing_file import save
from headgate.lab.charts.run_chart import outages_of, picture_of
from headgate.lab.experiment import run
from headgate.lab.scenario_file import named

SEED = 0


class Telling(NamedTuple):
    scenario: str
    strategies: tuple[str, ...]
    caption: str


TELLING = (
    Telling(
        "step",
        ("adaptive", "cubic", "aimd-10s", "backoff"),
        "A quota that falls and rises: found, held and followed. Backoff gets as much done, with a third refused.",
    ),
    Telling(
        "fw60",
        ("adaptive", "cubic", "pause-60", "gradient2"),
        "A window of a minute that begins at an unknown moment: spread evenly, or spent at once and then refused.",
    ),
    Telling(
        "queue80",
        ("adaptive", "gradient2", "cubic", "backoff"),
        "A server that slows down as its queue grows, and says 503 when that is full: the latency tells in time.",
    ),
    Telling(
        "hdr-tb",
        ("adaptive", "header-pace", "cubic"),
        "A server that says what is left: its steps are followed at once, and nothing is refused.",
    ),
)


def draw(telling: Telling, folder: Path) -> Path:
    scenario = named(telling.scenario)
    oracle = run(scenario, "oracle", SEED)
    headed = []
    for strategy in telling.strategies:
        one = run(scenario, strategy, SEED, watch=True)
        share = one.goodput_against(oracle)
        headed.append((f"{share:.1%} of an oracle's goodput, {one.refused_share:.2%} refused", one))
    path = folder / f"{telling.scenario}.svg"
    save(picture_of(headed, title=telling.scenario, note=scenario.note, outages=outages_of(scenario)).drawing(), path)
    return path
