"""What an operator may do to a run: pause it, let it go on, park, free or retire a credential, limit a key.

Each ends with a sentence that says what was done, or with the reason why it was not.
"""

from __future__ import annotations

from math import isfinite

from ..core.decision import LONGEST_WAIT
from ..core.words import span
from ..errors import ConfigError
from .of_credentials import CredentialsSeen
from .of_limiter import KeysSeen
from .snapshot import Action
from .source import ActionRefusedError
from .subject import Subject

MOST_RPS = 1e6
LONGEST_TARGET = 1_100
KINDS = ("pause", "resume", "park", "free", "retire", "limit")


def act(action: Action, subject: Subject, keys: KeysSeen | None, credentials: CredentialsSeen, *, is_over: bool) -> str:
    if action.kind not in KINDS:
        raise ActionRefusedError(f"this cannot be done here; what can is {', '.join(KINDS)}")
    if is_over:
        raise ActionRefusedError("this run has ended")
    if len(action.target) > LONGEST_TARGET:
        raise ActionRefusedError(f"target: it has {len(action.target):,} characters, which no key and no label has")
    try:
        if action.kind in ("pause", "resume"):
            return _pause(subject, action.kind == "pause")
        if action.kind == "limit":
            return _limit(action, subject, keys)
        return _credential(action, credentials)
    except ConfigError as error:
        raise ActionRefusedError(str(error)) from None


def _pause(subject: Subject, is_pause: bool) -> str:
    state = subject.state()
    if state == "stopping":
        raise ActionRefusedError("this run is about to end; there is nothing to pause or to resume")
    if is_pause == (state == "paused"):
        return "it was paused already" if is_pause else "it was not paused"
    if is_pause:
        subject.pause()
        return "paused: nothing new starts; what is under way is finished"
    subject.resume()
    return "resumed"


def _credential(action: Action, credentials: CredentialsSeen) -> str:
    coordinator, label = credentials.find(action.target)
    if action.kind == "free":
        coordinator.free(label)
        return f"{label} may be used again at once"
    if action.kind == "retire":
        coordinator.retire(label)
        return f"{label} is retired: it is used no more until it is freed"
    seconds = _number(action, "seconds to park for", LONGEST_WAIT)
    coordinator.park(label, seconds)
    return f"{label} rests for {span(seconds)}, unless it rests for longer already"


def _limit(action: Action, subject: Subject, keys: KeysSeen | None) -> str:
    if keys is None or subject.limiter is None:
        raise ActionRefusedError("there is no limiter here whose keys could be limited")
    key = keys.key_of(action.target)
    if not key or subject.limiter.look(key) is None:
        raise ActionRefusedError("there is no such key in use here")
    if action.value is None:
        subject.limiter.limit(key, None)
        return f"the limit of {keys.name_of(key)} is lifted"
    rps = _number(action, "calls a second", MOST_RPS)
    subject.limiter.limit(key, rps)
    return f"{keys.name_of(key)}: {rps:g} calls a second at most"


def _number(action: Action, what: str, most: float) -> float:
    value = action.value
    fine = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and 0 < value <= most
    if not fine or value is None:
        raise ActionRefusedError(f"value: it must be a number of {what}, above 0 and at most {most:,.0f}")
    return float(value)
