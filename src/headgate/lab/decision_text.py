"""What an adaptive controller learned and decided, in sentences: for pictures and ``headgate simulate --explain``."""

from __future__ import annotations

from ..controllers.adaptive.trace import Step, TraceEvent
from ..formatting import format_number

_GIVEN_UP = {
    Step.HEADERS_STOPPED: "no headers come any more",
    Step.HEADERS_USELESS: "the headers are of no use any more",
    Step.HEADERS_WRONG: "the headers do not describe what refuses us",
    Step.NOT_A_CAP: "refused where it was fine: no cap after all",
}


def decision_text(event: TraceEvent) -> str:
    """One sentence without a full stop."""
    step, numbers = event
    if step in _GIVEN_UP:
        return f"{_GIVEN_UP[step]}; going on at {_rate(numbers['pace'])}"
    match step:
        case Step.CUT:
            return _cut(**numbers)
        case Step.CUT_AGAIN:
            share = f"{numbers['refused']:.0f} of {numbers['sent']} refused right after a cut"
            return f"{share}: down to {_rate(numbers['pace'])}"
        case Step.FELL_BACK:
            return f"refused in a search: back to {_rate(numbers['pace'])}, to measure on the way up"
        case Step.PROBING:
            held = f"{numbers['age']:.1f} s at {_rate(numbers['quota'])}"
            return f"{held}: a look at {_rate(numbers['pace'])}, is there more?"
        case Step.CLIMBING:
            return f"more is let in than {_rate(numbers['quota'])}: it has grown, searching upwards"
        case Step.BLOCKED:
            why = f"told to wait {numbers['floor']:g} s" if numbers["floor"] else "nothing gets in"
            return f"{why}: a probe in {numbers['seconds']:.2f} s"
        case Step.RESUMED:
            return f"a probe was let in after {numbers['blocked_for']:.2f} s"
        case Step.LEARNED_WINDOW:
            window, penalty = numbers["window"], numbers["penalty"]
            what = f"counts over about {window:.3g} s" if window else f"shuts us out for {penalty:.3g} s"
            quota = _rate(numbers["quota"])
            return f"blocked for {numbers['blocked_for']:.3g} s: the server {what}, {quota} on average"
        case Step.SHARED:
            return "measurements of the quota wander: others take from it too: yielding"
        case Step.NOT_SHARED:
            return "measurements of the quota agree: it is ours alone again"
        case Step.FOLLOWING_HEADERS:
            return f"the headers say what is left of {numbers['limit']:g}: following them"
        case Step.CAPPED:
            return f"always refused with {numbers['cap']} in flight: a cap, keeping to it"
        case _:
            return f"answers take twice as long and no more get done: at most {numbers['cap']:.0f} in flight"


def _cut(
    pace: float,
    calls: float,
    span: float,
    silence: float,
    measured: float,
    quota: float,
    rough: float,
    shared: float,
    new_pace: float,
) -> str:
    found = f"{calls:.0f} let in within {span:.3g} s of the last refusal, {_rate(calls / span)}"
    if silence >= 0.05 * span:
        found += f" with {min(silence, span):.2g} s of silence"
    if shared:
        made = "others share this quota, so a part is given up"
    elif measured:
        made = f"the quota is {'about ' if rough else ''}{_rate(quota)}"
    else:
        found, made = "too few let in to measure by", f"taken for {_rate(quota)}"
    return f"refused at {_rate(pace)}; {found}: {made}; going on at {_rate(new_pace)}"


def _rate(calls: float) -> str:
    return f"{format_number(calls)}/s"
