"""``headgate simulate --trace``: how long a recorded run would have taken, beside how long it took."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from ...lab.charts.drawing_file import save
from ...lab.charts.run_chart import RunsPicture, picture_of
from ...lab.measures import Run
from ...lab.traces.analysis import TraceAnalysis, analyze_trace
from ...lab.traces.reader import TraceError, read_trace
from ...lab.traces.trace import Trace
from ...lab.traces.whatif import (
    AS_RECORDED,
    RECORDED_WITH,
    Keys,
    Outlook,
    Times,
    WhatIf,
    as_it_was,
    average,
    quotas,
    replay_of,
    simulate,
    with_rate,
)
from ...units import Rate
from ..ui.terminal import DONE, STOPPED, CommandFailed
from .simulate_display import Report, WhatIfRow, duration, offset_by, progress_bar

CLOSE = 0.1
"""A simulation of the recorded run that is off by more than this share is marked as uncertain."""


def answer(
    report: Report,
    recording: Path,
    asked: WhatIf,
    strategies: Sequence[str],
    seeds: Sequence[int],
    picture: Path | None,
    *,
    explain: bool,
) -> int:
    trace, seen = read_recording(recording)
    answers: dict[tuple[WhatIf, str], Outlook] = {}
    asked_for = [(question, strategy) for question in (AS_RECORDED, asked) for strategy in strategies]
    questions = list(dict.fromkeys([(AS_RECORDED, RECORDED_WITH), *asked_for]))
    interrupted = False
    try:
        with progress_bar(len(questions) * len(seeds)) as show:
            for number, (question, strategy) in enumerate(questions):
                shown = offset_by(number * len(seeds), show)
                answers[question, strategy] = usual(seen, question, strategy, seeds, shown)
    except KeyboardInterrupt:
        interrupted = True
    rows = [WhatIfRow("as it was", as_it_was(seen))]
    for (question, strategy), outlook in answers.items():
        by = "" if tuple(strategies) == (RECORDED_WITH,) else f", {strategy}"
        rows.append(WhatIfRow(f"simulated {question}{by}", outlook, is_asked=question == asked))
    report.what_if(recording, trace.heading, seen, rows)
    if interrupted:
        report.note(f"Stopped: {len(answers)} of {len(questions)} answers are done.")
        return STOPPED
    for sentence in caveats(trace, seen, asked, answers):
        report.note(sentence)
    if explain or picture is not None:
        outlooks = [simulate(seen, asked, strategy, seeds[0], watch=True) for strategy in strategies]
        watched = [(outlook, outlook.run) for outlook in outlooks if outlook.run is not None]
        if explain:
            scenario = replay_of(seen, quotas(seen, asked), asked.workers or seen.workers)
            for _, run in watched:
                report.explanation(scenario, run.strategy, seeds[0], run.decisions)
        if picture is not None:
            title = f"headgate simulate --trace {recording.name}: {asked}, seed {seeds[0]}"
            write(report, drawing_of(title, seen, asked, watched), picture)
    return DONE


def read_recording(path: Path) -> tuple[Trace, TraceAnalysis]:
    try:
        trace = read_trace(path)
        return trace, analyze_trace(trace)
    except OSError as error:
        raise click.UsageError(f"cannot read {path} ({error.strerror}).") from None
    except TraceError as error:
        raise click.UsageError(f"{error}.") from None
    except ValueError as error:
        raise CommandFailed(f"{path}: {error}.") from None


def usual(
    seen: TraceAnalysis, asked: WhatIf, strategy: str, seeds: Sequence[int], show: Callable[[int], None]
) -> Outlook:
    """The run of median length."""
    outlooks = []
    for seed in seeds:
        outlooks.append(simulate(seen, asked, strategy, seed))
        show(len(outlooks))
    return sorted(outlooks, key=lambda outlook: outlook.seconds)[(len(outlooks) - 1) // 2]


def caveats(
    trace: Trace, seen: TraceAnalysis, asked: WhatIf, answers: Mapping[tuple[WhatIf, str], Outlook]
) -> Iterator[str]:
    """How far the answer can be trusted."""
    again = answers[AS_RECORDED, RECORDED_WITH]
    if not (seen.seconds and math.isfinite(again.seconds)):
        yield "Check: simulated as recorded, the run does not end as it did; the answer is unreliable."
    else:
        share = abs(again.seconds - seen.seconds) / seen.seconds
        off = "less than 1%" if share < 0.01 else f"{share:.0%}"
        takes = f"the run takes {duration(again.seconds)} instead of {duration(seen.seconds)} ({off} off)"
        care = "" if share <= CLOSE else " The simulated server differs from the real one; take the answer with care."
        yield (
            f"Check: simulated as recorded, {takes}. Expect at least this error; "
            f"with another quota or more workers it can be larger.{care}"
        )
    if asked.keys is not None:
        yield from about_keys(seen, asked, asked.keys)
    if not isinstance(asked.rate, Rate) and (when := known_from_below(seen)) is not None:
        yield f"The quota{when} has only a known lower bound; the run may be shorter than shown."
    if any(math.isinf(outlook.seconds) for outlook in answers.values()):
        yield '"never" means several times longer than the quota allows.'
    if not trace.is_whole:
        yield "The recording is incomplete; the recorded part was used."


def about_keys(seen: TraceAnalysis, asked: WhatIf, keys: Keys) -> Iterator[str]:
    """Where the budgets of keys come from that were not there."""
    recorded, number = len(seen.keys), keys.number(len(seen.keys))
    each = f"{average(with_rate(seen, asked.rate)).mean_rate:.3g}/s on average"
    of_one = "the recorded key" if recorded == 1 else f"an average one of the {recorded} recorded keys"
    extra = number - recorded
    if extra > 0:
        owner = "The added key has" if extra == 1 else f"Each of the {extra:,} added keys has"
        yield f"{owner} the budget of {of_one}: {each}. Keys that share one budget would add nothing."
    elif extra < 0:
        owner = "The key has" if number == 1 else f"Each of the {number:,} keys has"
        yield f"{owner} the budget of {of_one}: {each}."


def known_from_below(seen: TraceAnalysis) -> str | None:
    """When the quota is uncertain, in words after a blank; none for always, and None if it never is."""
    if all(stretch.is_measured for key in seen.keys for stretch in key.stretches):
        return None
    if not seen.is_measured:
        return ""
    stretches = seen.keys[0].stretches
    uncertain = [number for number, stretch in enumerate(stretches) if not stretch.is_measured]
    if len(seen.keys) > 1 or uncertain[-1] - uncertain[0] >= len(uncertain):
        return " at times"
    since, until = stretches[uncertain[0]].since, stretches[uncertain[-1]].until
    if uncertain[0] == 0:
        return f" before {until:.1f} s"
    return f" after {since:.1f} s" if uncertain[-1] == len(stretches) - 1 else f" from {since:.1f} s to {until:.1f} s"


def drawing_of(title: str, seen: TraceAnalysis, asked: WhatIf, watched: Sequence[tuple[Outlook, Run]]) -> RunsPicture:
    return picture_of(
        [(f"{duration(one.seconds)}, {one.refused_share:.2%} refused", run) for one, run in watched],
        title=title,
        note=f"{seen.items:,} calls, recorded in {duration(seen.seconds)}",
        outages=[(outage.at, outage.until) for outage in seen.outages],
        duration=max(one.seconds if math.isfinite(one.seconds) else run.horizon for one, run in watched),
        quota_name=quota_name(asked),
    )


def quota_name(asked: WhatIf) -> str:
    match asked.rate:
        case None:
            return "quota as seen" if asked.keys is None else f"quota as seen, {asked.keys}"
        case Times():
            return f"quota as seen, {asked.rate}"
        case Rate():
            return "quota as requested"


def write(report: Report, drawn: RunsPicture, picture: Path) -> None:
    try:
        save(drawn.drawing(), picture)
    except OSError as error:
        raise CommandFailed(f"cannot write {picture} ({error.strerror}); choose another file with --picture.") from None
    report.drawn(picture)
