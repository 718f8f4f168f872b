"""The results as a page of Markdown: the table, every mark, the headline, the rule, what is missed and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.lab import scale
from bench.lab.marks import (
    AHEAD,
    BUDGET,
    CLASSES,
    REFUSALS_PER_LOOK,
    SLACK,
    TOLD_THE_QUOTA,
    Class,
    Verdict,
    compare,
    verdicts,
    without_marks,
)
from bench.lab.misses import (
    GOODPUT_LOST,
    MANY_CALLS,
    REFUSALS_WON,
    Miss,
    by_algorithm,
    headline,
    misses,
    summary,
    worst,
)
from bench.lab.plan import (
    ADAPTIVE,
    BOUND,
    DEFAULT_CIRCUIT,
    HERDS,
    LESSER,
    OURS,
    PUBLISHED,
    RIVAL_OF_UNSEEN,
    RIVALS,
    TOGETHER,
)
from bench.lab.results import Cell, Results
from headgate.lab.charts.drawing_file import save
from headgate.lab.charts.run_chart import outages_of, picture_of
from headgate.lab.experiment import run
from headgate.lab.scenario import Scenario
from headgate.lab.scenario_file import named

MET, MISSED = "met", "**missed**"


def page(
    results: Results, scenarios: Mapping[str, Scenario], notes: Mapping[str, str], became_worse: Sequence[str] = ()
) -> str:
    parts = ["# The controllers in the lab", *_introduction(), summary(results, scenarios, notes)]
    if became_worse:
        parts += ["## Worse than the committed table", _list(became_worse)]
    parts += ["## Every strategy, every scenario", *_table(results, scenarios)]
    parts += ["## Marks", *_marks(results, scenarios)]
    parts += ["## Scenarios that were never seen before", *_unseen(results)]
    parts += ["## Is anybody better?", *_rivals(results)]
    parts += ["## What is missed, and why", *_explanations(misses(results, scenarios), notes)]
    parts += ["## With the circuit as it comes", *_circuit(results)]
    parts += ["## Four telling scenarios", *_pictures()]
    parts += ["## What size costs", *_scale(results)]
    parts += ["## How this was measured", *_circumstances(results)]
    return "\n\n".join(parts) + "\n"


def _introduction() -> Iterator[str]:
    yield (
        "Simulated servers whose quota is not told, and strategies that have to find it. Goodput is what got done as a "
        "share of what an oracle gets done, who knows the server's state and is never refused; beside it stands the "
        "share of all calls that were refused. Goodput alone means nothing: calling without end gets all there is to "
        "get, with half of the calls refused, and users banned."
    )


# ---------------------------------------------------------------------- the table


def _table(results: Results, scenarios: Mapping[str, Scenario]) -> Iterator[str]:
    rivals = [name for name in RIVALS if any(results.seeds(scenario, name) for scenario in scenarios)]
    rows = [["scenario", ADAPTIVE, *(f"{name} (ours)" if name in OURS else name for name in rivals)]]
    rows.append(["---"] * len(rows[0]))
    names = _in_order_of_classes(name for name in scenarios if results.seeds(name, ADAPTIVE))
    for name in names:
        own = results.cell(name, ADAPTIVE)
        assert own is not None
        cells = [_compact(results.cell(name, rival), (rival, name) in HERDS) for rival in rivals]
        rows.append([name, f"**{100 * own.goodput:.1f} / {_percent(own.refused_share)}**", *cells])
    yield "Goodput % / 429 %, medians. A 503 for too many at once counts as a 429."
    yield _grid(rows)
    yield _list([f"{name}: {scenarios[name].note}." for name in names])
    yield (
        "Over 100 %: a client may use up a first window that began before it did, while the oracle spreads its calls "
        f"evenly. Published strategies know no shared controller; what they reach in *{TOGETHER} scenarios stands in "
        "those without it."
    )


def _in_order_of_classes(names: Iterable[str]) -> list[str]:
    order = [name for one in CLASSES for name in (*one.scenarios, *one.also)]
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def _compact(cell: Cell | None, is_herd: bool) -> str:
    if cell is None:
        return ""
    return f"{100 * cell.goodput:.0f} / {_percent(cell.refused_share)}{'¹' if is_herd and len(cell.seeds) == 1 else ''}"


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.2f}" if percent < 9.995 else f"{percent:.0f}"


# ---------------------------------------------------------------------- marks


def _marks(results: Results, scenarios: Mapping[str, Scenario]) -> Iterator[str]:
    yield (
        "For *adaptive*, medians over its seeds. *Besides*: p99 of an item (first send to success) in times of the "
        "oracle's; seconds until 95 % of the quota is used after a step, for a step up on bare 429s within "
        f"{SLACK} k/(b R) with b = {BUDGET}, k = {REFUSALS_PER_LOOK} and R the quota before the step; Jain's index of "
        "fairness between the processes; the share refused in the minute from the first refusal on. "
        "Scenarios in italics are held to the marks of the class they resemble."
    )
    found = list(verdicts(results, scenarios))
    for one in CLASSES:
        several = [(name, marks) for judged, name, marks in found if judged is one]
        if several:
            yield f"### {one.title}"
            yield _grid(_class_rows(one, several))
    unjudged = without_marks(name for name in scenarios if results.seeds(name, ADAPTIVE))
    if unjudged:
        yield f"Without a mark: {', '.join(unjudged)}."


def _class_rows(one: Class, several: Sequence[tuple[str, Sequence[Verdict]]]) -> Iterator[list[str]]:
    yield ["scenario", f"goodput, >= {100 * one.goodput:g} %", f"429s, <= {100 * one.refused:g} %", "besides"]
    yield ["---"] * 4
    for name, (goodput, refused, *besides) in several:
        told = "; ".join(f"{each.what}: {each.told} ({each.asked}) {_verdict(each)}" for each in besides)
        named = f"*{name}*" if name in one.also else name
        yield [named, f"{goodput.told} {_verdict(goodput)}", f"{refused.told} {_verdict(refused)}", told]


def _verdict(one: Verdict) -> str:
    return MET if one.met else MISSED


def _unseen(results: Results) -> Iterator[str]:
    found = headline(results, ADAPTIVE)
    if found is None:
        yield "Not run."
        return
    yield (
        f"{found.scenarios} scenarios drawn by chance (algorithm, quota, burst, window, service time, round trip, "
        "steps, what the server says), one run each. Their seed is a hash of the controller's sources: another "
        "controller gets others."
    )
    columns = ["", "p50 goodput", "p10 goodput", "least", "p50 429s", "p90 429s", f"most, {MANY_CALLS:,} calls or more"]
    rows = [columns, ["---"] * 7]
    for label in (ADAPTIVE, BOUND, RIVAL_OF_UNSEEN):
        if (one := headline(results, label)) is not None:
            shares = (one.goodput_p50, one.goodput_p10, one.goodput_least)
            refused = (one.refused_p50, one.refused_p90, one.refused_most)
            rows.append([label, *(f"{share:.2%}" for share in shares), *(f"{share:.3%}" for share in refused)])
    yield _grid(rows)
    yield _list([f"{one.what}: {one.told} ({one.asked}) {_verdict(one)}" for one in found.verdicts()])
    yield from _bound(results)
    yield "Those in which *adaptive* does worst:"
    rows = [["scenario", "goodput / 429s", "what it is"], ["---"] * 3]
    yield _grid([*rows, *([name, str(cell), note] for name, cell, note in worst(results, ADAPTIVE))])


def _bound(results: Results) -> Iterator[str]:
    """What could be reached at all, and by how much of it each way of counting is missed."""
    found = headline(results, BOUND)
    if found is None:
        return
    missed = " and ".join(one.what for one in found.verdicts() if not one.met)
    yield (
        f"*{BOUND}* is a bound for any client. It runs through the same servers and is told how they count, their "
        "window and their burst, and at the first refusal the quota itself. It pays what no client is spared: it "
        "begins at the pace of *adaptive* and doubles at most once in a round trip; a quota that is reached, or has "
        "fallen, refuses what leaves in one round trip; one that was raised is seen only by a look, and looks that "
        "find nothing are refused, at most one call in a hundred; a Retry-After is waited for. *adaptive* has to find "
        "out how the server counts, and to measure the quota, on top. "
        + (f"The bound itself misses: {missed}." if missed else "The bound meets every mark: none is beyond reach.")
    )
    rows = [["of an oracle's goodput is missing, on average", ADAPTIVE, BOUND], ["---"] * 3]
    shares = by_algorithm(results, ADAPTIVE), by_algorithm(results, BOUND)
    yield _grid([*rows, *([name, *(f"{1 - each[name]:.1%}" for each in shares)] for name in shares[0])])


def _rivals(results: Results) -> Iterator[str]:
    found = compare(results)
    if not found.pairs:
        yield "No other strategy was run beside it."
        return
    dearly = found.ahead - len(found.beaten)
    yield (
        f"The rule: in no scenario does anybody reach {100 * AHEAD:g} % more of the oracle's goodput without sending "
        f"more 429s, over the same seeds. Of {found.pairs} pairs of a rival and a scenario, the rival gets that much "
        f"more done in {found.ahead}, in {dearly} of them with more 429s. "
        f"The rule is {f'{MISSED} in {len(found.beaten)}' if found.beaten else MET}."
    )
    if found.beaten:
        rows = [["scenario", "rival", "theirs", "adaptive, the same seeds"], ["---"] * 4]
        yield _grid([*rows, *([one.scenario, one.rival, str(one.theirs), str(one.ours)] for one in found.beaten)])
    told = [f"{one.rival} in {one.scenario}, {one.theirs}" for one in compare(results, TOLD_THE_QUOTA).beaten]
    yield (
        f"The rule is about those who have to find the quota. {' and '.join(TOLD_THE_QUOTA)} are told it from the "
        f"start, and counting them it would be broken {'by ' + '; '.join(told) if told else 'no further'}."
    )


def _explanations(missed: Sequence[Miss], notes: Mapping[str, str]) -> Iterator[str]:
    if not missed:
        yield "Nothing is missed."
    by_name: dict[str, list[str]] = {}
    for one in missed:
        by_name.setdefault(one.name, []).append(one.what)
    for name, whats in by_name.items():
        yield f"**{name}** ({'; '.join(whats)}): {notes.get(name, 'not explained.').strip()}"


# ---------------------------------------------------------------------- the rest


def _circuit(results: Results) -> Iterator[str]:
    yield (
        "The lab closes an open circuit after half a second: with the usual 15 s one would judge the circuit and not "
        "the strategy. Where circuits open, this is what *adaptive* reaches with the settings as they come:"
    )
    rows = [["scenario", "in the lab", "as it comes"], ["---"] * 3]
    for name in results.runs:
        own, usual = results.cell(name, ADAPTIVE), results.cell(name, DEFAULT_CIRCUIT)
        if own is not None and usual is not None:
            rows.append([name, str(own), f"{usual} ({_seeds(len(usual.seeds))})"])
    yield _grid(rows) if len(rows) > 2 else "Not run."


# ---------------------------------------------------------------------- the pictures
# Four scenarios that show what the figures mean: each strategy's run under the other, with one seed.

SEED = 0


class Illustration(NamedTuple):
    scenario: str
    strategies: tuple[str, ...]
    caption: str


ILLUSTRATIONS = (
    Illustration(
        "step",
        ("adaptive", "cubic", "aimd-10s", "backoff"),
        "A quota that falls and rises: found, held and followed. Backoff gets as much done, with a third refused.",
    ),
    Illustration(
        "fw60",
        ("adaptive", "cubic", "pause-60", "gradient2"),
        "A window of a minute that begins at an unknown moment: spread evenly, or spent at once and then refused.",
    ),
    Illustration(
        "queue80",
        ("adaptive", "gradient2", "cubic", "backoff"),
        "A server that slows down as its queue grows, and says 503 when that is full: the latency tells in time.",
    ),
    Illustration(
        "hdr-tb",
        ("adaptive", "header-pace", "cubic"),
        "A server that says what is left: its steps are followed at once, and nothing is refused.",
    ),
)


def draw(illustration: Illustration, folder: Path) -> Path:
    scenario = named(illustration.scenario)
    oracle = run(scenario, "oracle", SEED)
    headed = []
    for strategy in illustration.strategies:
        one = run(scenario, strategy, SEED, watch=True)
        share = one.goodput_against(oracle)
        headed.append((f"{share:.1%} of an oracle's goodput, {one.refused_share:.2%} refused", one))
    path = folder / f"{illustration.scenario}.svg"
    save(
        picture_of(headed, title=illustration.scenario, note=scenario.note, outages=outages_of(scenario)).drawing(),
        path,
    )
    return path


def _pictures() -> Iterator[str]:
    for illustration in ILLUSTRATIONS:
        yield f"{illustration.caption}\n\n![{illustration.scenario}](pictures/{illustration.scenario}.svg)"


def _scale(results: Results) -> Iterator[str]:
    if not results.scale:
        yield "Not measured: `python -m bench.lab --full` does."
        return
    yield (
        "The real limiter in virtual time: processor time for a whole simulated call, and the memory a run added at "
        "its peak. The quota is the same for all sizes of a kind. Idle keys are packed after 10 s and forgotten "
        "when they are old or more than 100,000, so their memory ends there."
    )
    yield _list([f"{kind.name}: {kind.about}" for kind in scale.KINDS])
    yield _grid(scale.rows(results.scale["measured"]))
    yield f"Measured {results.scale['when']}, {results.scale['machine']}."


def _circumstances(results: Results) -> Iterator[str]:
    facts = results.circumstances
    seeds = facts["seeds"]
    yield f"`{facts['command']}`, {facts['when']}, in {facts['minutes']:.1f} minutes; {facts['machine']}."
    yield _list(
        [
            f"adaptive and the oracle: {_seeds(seeds['ours'])}",
            f"{', '.join(PUBLISHED)}: {_seeds(seeds['published'])}",
            f"{', '.join(LESSER)}: {_seeds(seeds['lesser'])}",
        ]
    )
    if seeds["herds"] < seeds["published"]:
        herds = ", ".join(f"{strategy} in {scenario}" for strategy, scenario in sorted(HERDS))
        yield (
            f"¹ {_seeds(seeds['herds']).capitalize()} of {herds}: crowds of workers that ask again and again while "
            "they wait, which takes long. `python -m bench.lab --full` gives all of them 20."
        )
    yield (
        "The same seed gives the same run to the byte, so figures move only with the code. A run of the lab fails "
        f"when a cell of *adaptive* lost over {100 * GOODPUT_LOST:g} points of goodput or won over "
        f"{100 * REFUSALS_WON:g} points of 429s against the committed table, which `controllers.json` has in full."
    )


def _seeds(count: int) -> str:
    return {0: "not run", 1: "1 seed"}.get(count, f"{count} seeds")


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _grid(rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
