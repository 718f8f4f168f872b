"""What an adaptive controller learned and decided, in sentences: for pictures and ``headgate simulate --explain``."""

from __future__ import annotations

from ..controllers.adaptive.trace import Step, TraceEvent
from ..formatting import format_number

_GIVEN_UP = {
    Step.HEADERS_STOPPED: "the headers have stopped",
    Step.HEADERS_USELESS: "the headers are no longer useful",
    Step.HEADERS_WRONG: "the headers do not describe the limit that refused calls",
    Step.NOT_A_CAP: "refused at a level that worked before: not a concurrency cap",
}


def decision_text(event: TraceEvent) -> str:
    """One sentence without a full stop."""
    step, numbers = event
    if step in _GIVEN_UP:
        return f"{_GIVEN_UP[step]}; continuing at {_rate(numbers['pace'])}"
    match step:
        case Step.CUT:
            return _cut(**numbers)
        case Step.CUT_AGAIN:
            share = f"{numbers['refused']:.0f} of {numbers['sent']} refused right after a cut"
            return f"{share}: down to {_rate(numbers['pace'])}"
        case Step.FELL_BACK:
            return f"refused while searching: back to {_rate(numbers['pace'])}, measuring on the way up"
        case Step.PROBING:
            held = f"{numbers['age']:.1f} s at {_rate(numbers['quota'])}"
            return f"{held}: probing at {_rate(numbers['pace'])} for more"
        case Step.CLIMBING:
            return f"more than {_rate(numbers['quota'])} admitted: the quota has grown, searching upwards"
        case Step.BLOCKED:
            why = f"told to wait {numbers['floor']:g} s" if numbers["floor"] else "no call is admitted"
            return f"{why}: a probe in {numbers['seconds']:.2f} s"
        case Step.RESUMED:
            return f"a probe was admitted after {numbers['blocked_for']:.2f} s"
        case Step.LEARNED_WINDOW:
            window, penalty = numbers["window"], numbers["penalty"]
            what = f"counts over about {window:.3g} s" if window else f"blocks for {penalty:.3g} s"
            quota = _rate(numbers["quota"])
            return f"blocked for {numbers['blocked_for']:.3g} s: the server {what}, {quota} on average"
        case Step.SHARED:
            return "measurements of the quota vary: other clients use it too; yielding"
        case Step.NOT_SHARED:
            return "measurements of the quota agree: no other client uses it now"
        case Step.FOLLOWING_HEADERS:
            return f"the headers state what remains of {numbers['limit']:g}: following them"
        case Step.CAPPED:
            return f"always refused with {numbers['cap']} in flight: a concurrency cap, staying below it"
        case _:
            return f"latency doubled without more throughput: at most {numbers['cap']:.0f} in flight"


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
    found = f"{calls:.0f} admitted in the {span:.3g} s since the last refusal, {_rate(calls / span)}"
    if silence >= 0.05 * span:
        found += f" with {min(silence, span):.2g} s of silence"
    if shared:
        made = "other clients share this quota, so a part is released"
    elif measured:
        made = f"the quota is {'about ' if rough else ''}{_rate(quota)}"
    else:
        found, made = "too few admitted to measure", f"assuming {_rate(quota)}"
    return f"refused at {_rate(pace)}; {found}: {made}; continuing at {_rate(new_pace)}"


def _rate(calls: float) -> str:
    return f"{format_number(calls)}/s"
