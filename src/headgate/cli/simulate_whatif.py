"""``headgate simulate --trace``: how long a recorded run would have taken, told beside how long it took."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from headgate.sim.hindsight import Hindsight, look_back
from headgate.sim.notation import Rate
from headgate.sim.run_panels import picture_of
from headgate.sim.run_picture import RunsPicture
from headgate.sim.saving import save
from headgate.sim.trace import Trace, TraceError, read_trace
from headgate.sim.whatif import AS_RECORDED, Asked, Outlook, as_it_was, quotas, replay_of, simulate

from . import DONE, STOPPED, CommandFailed
from .simulate_people import duration
from .simulate_report import Answered, Report, counting_from, progress_bar

RECORDED_WITH = "adaptive"
"""The strategy that recordings are made with."""
CLOSE = 0.1
"""A simulation of the recorded run that is off by more than this share is not to be trusted blindly."""


def answer(
    report: Report,
    recording: Path,
    asked: Asked,
    strategies: Sequence[str],
    seeds: Sequence[int],
    picture: Path | None,
    *,
    explain: bool,
) -> int:
    try:
        trace = read_trace(recording)
        seen = look_back(trace)
    except OSError as error:
        raise click.UsageError(f"cannot read {recording} ({error.strerror}).") from None
    except TraceError as error:
        raise click.UsageError(f"{error}.") from None
    except ValueError as error:
        raise CommandFailed(f"{recording}: {error}.") from None

    answers: dict[tuple[Asked, str], Outlook] = {}
    questions = [(asked, strategy) for asked in dict.fromkeys((AS_RECORDED, asked)) for strategy in strategies]
    interrupted = False
    try:
        with progress_bar(len(questions) * len(seeds)) as show:
            for number, (question, strategy) in enumerate(questions):
                shown = counting_from(number * len(seeds), show)
                answers[question, strategy] = usual(seen, question, strategy, seeds, shown)
    except KeyboardInterrupt:
        interrupted = True
    rows = [Answered("as it was", as_it_was(seen))]
    for (question, strategy), outlook in answers.items():
        who = "" if tuple(strategies) == (RECORDED_WITH,) else f", {strategy}"
        rows.append(Answered(f"simulated {question}{who}", outlook, is_asked=question == asked))
    report.what_if(recording, trace.heading, seen, rows)
    if interrupted:
        report.note(f"Stopped: {len(answers)} of {len(questions)} answers are there.")
        return STOPPED
    for sentence in caveats(trace, seen, asked, answers):
        report.note(sentence)
    if explain or picture is not None:
        look_closer(report, recording, seen, asked, strategies, seeds[0], picture, explain=explain)
    return DONE


def usual(seen: Hindsight, asked: Asked, strategy: str, seeds: Sequence[int], show: Callable[[int], None]) -> Outlook:
    """The run of median length."""
    outlooks = []
    for seed in seeds:
        outlooks.append(simulate(seen, asked, strategy, seed))
        show(len(outlooks))
    return sorted(outlooks, key=lambda outlook: outlook.seconds)[(len(outlooks) - 1) // 2]


def caveats(trace: Trace, seen: Hindsight, asked: Asked, answers: Mapping[tuple[Asked, str], Outlook]) -> Iterator[str]:
    """How far the answer can be trusted."""
    again = answers.get((AS_RECORDED, RECORDED_WITH))
    if again is not None:
        off = abs(again.seconds - seen.seconds) / seen.seconds if seen.seconds else math.inf
        takes = f"Simulated as recorded, the run takes {duration(again.seconds)} instead of {duration(seen.seconds)}"
        trust = "the answer may be as far off" if off <= CLOSE else "not quite the server it met, so take it with care"
        yield f"{takes}, {off:.0%} off; {trust}."
    if not seen.is_measured and not isinstance(asked.rate, Rate):
        yield "The quota never showed between two refusals: it may be higher than simulated, and the run shorter."
    if any(math.isinf(outlook.seconds) for outlook in answers.values()):
        yield '"never" is longer than three times what the quota allows.'
    if not trace.is_whole:
        yield "The recording breaks off before its end; what is in it was used."


def look_closer(
    report: Report,
    recording: Path,
    seen: Hindsight,
    asked: Asked,
    strategies: Sequence[str],
    seed: int,
    picture: Path | None,
    *,
    explain: bool,
) -> None:
    outlooks = [simulate(seen, asked, strategy, seed, watch=True) for strategy in strategies]
    watched = [(outlook, outlook.run) for outlook in outlooks if outlook.run is not None]
    if explain:
        scenario = replay_of(seen, quotas(seen, asked.rate), asked.workers or seen.workers)
        for _, book in watched:
            report.story(scenario, book.strategy, seed, book.story)
    if picture is not None:
        headed = [(f"{duration(one.seconds)}, {one.refused_share:.2%} refused", book) for one, book in watched]
        ends = [one.seconds if math.isfinite(one.seconds) else book.horizon for one, book in watched]
        drawn = picture_of(
            headed,
            title=f"headgate simulate --trace {recording.name}: {asked}",
            note=f"{seen.items:,} calls, recorded in {duration(seen.seconds)}",
            outages=[(outage.at, outage.until) for outage in seen.outages],
            duration=max(ends),
        )
        write(report, drawn, picture)


def write(report: Report, drawn: RunsPicture, picture: Path) -> None:
    try:
        save(drawn.drawing(), picture)
    except OSError as error:
        raise CommandFailed(f"cannot write {picture} ({error.strerror}); choose another file with --picture.") from None
    report.drawn(picture)
