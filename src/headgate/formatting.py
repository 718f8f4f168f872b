"""Text for people: numbers as people say them, text from outside without control codes and without secrets.

What leaves by the log is escaped too: keys, row names and the words of servers, before any handler sees them. A key
with a line feed in it could pass for a line of ours, and one with an escape code could rewrite the terminal. The texts
are escaped in the record's arguments, or in its message if it has none; ``extra`` fields are data for programs and stay
as they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable


def printable(text: str) -> str:
    r"""The text on one line and without control codes: a line feed becomes ``\n``, an escape ``\x1b``.

    For keys, row names, labels and the words of a server, wherever a person reads them: none of them can move the
    cursor, colour what follows or pass for a line of ours. What is printable stays as it is.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def format_seconds(seconds: float) -> str:
    """``"40 ms"``, ``"12.3 s"``, ``"15 min"``, ``"2.5 h"`` or ``"3.5 days"``."""
    if seconds < 1:
        return f"{max(1.0, 1000 * seconds):.0f} ms" if seconds > 0 else "0 ms"
    if seconds < 600:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def format_number(number: float, digits: int = 3) -> str:
    """``"0.25"``, ``"12.5"`` or ``"2,560"``."""
    return f"{number:.{digits}g}" if number < 999.5 else f"{number:,.0f}"


def format_rate(per_second: float) -> str:
    """``"12.5 calls/s"``; of slow rates ``"6 calls/min"``, ``"1 call/h"`` or ``"20 calls/day"``."""
    units = (("s", 1), ("min", 60), ("h", 3600))
    unit, seconds = next((one for one in units if per_second * one[1] >= 0.1), ("day", 86_400))
    number = format_number(per_second * seconds)
    return f"{number} {'call' if number == '1' else 'calls'}/{unit}"


def plural(count: int, word: str) -> str:
    """``1 page``, ``2 pages``, ``2 addresses``."""
    return f"{count:,} {word}" + ("" if count == 1 else "es" if word.endswith("s") else "s")


def nearest_name(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that this one is most likely a misspelling of."""
    from difflib import get_close_matches  # here, because only a mistake needs it

    return next(iter(get_close_matches(name.lower(), list(known), n=1, cutoff=cutoff)), None)


# ---------------------------------------------------------------------- the log

LOGGERS = (
    "headgate",
    "headgate.batch",
    "headgate.resilience.circuit_breaker",
    "headgate.events",
    "headgate.limiter",
    "headgate.fleet",
    "headgate.proxy",
    "headgate.resilience.recovery",
    "headgate.resilience",
    "headgate.web",
)
"""All loggers there are: a logger's filter does not hear what its children log."""


class PrintableFilter(logging.Filter):
    """Lets everything pass, with arguments that a terminal and a log file show on one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.args and isinstance(record.args, tuple):
            record.args = tuple(map(_printable, record.args))
        elif not record.args:
            record.msg = _printable(record.msg)
        return True


def _printable(argument: object) -> object:
    if isinstance(argument, BaseException):
        argument = str(argument)
    return printable(argument) if isinstance(argument, str) else argument


def filter_logs() -> None:
    """Filter all loggers of this package, once."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, PrintableFilter) for one in logger.filters):
            logger.addFilter(PrintableFilter())


# ---------------------------------------------------------------------- secrets

# Keys travel as ``?key=``, in headers, in front of an ``@``, and in messages that quote them. Each place has a pattern
# that starts at a fixed word and never goes back, so the work grows with the text and no faster.

LONGEST_TEXT = 65_536
"""Characters kept; the rest is dropped, since it was not searched for secrets."""
HIDDEN = "***"

_NAMES = (
    r"(?:[a-z]{1,16}[_-]){0,3}(?:api[_-]?key|(?:access|auth|refresh|id|session)[_-]?token|(?:client|app)[_-]?secret|"
    r"subscription[_-]?(?:key|token)|(?:secret|access|private)[_-]?(?:access[_-]?)?key|"
    r"secret|passwd|password|token|signature|sig)"
)
_HEADERS = (
    r"(?:proxy-)?authorization|(?:set-)?cookie|x-(?:[a-z]{1,16}-){0,3}(?:key|token|secret)|api-key|"
    r"ocp-apim-subscription-key"
)
_GAP = r"(?:\\{0,2}[\"'])?[ \t]{0,8}[:=][ \t]{0,8}(?:\\{0,2}[\"'])?"
_SHAPES = (
    r"sk-|pk-|rk-|[spr]k_(?:live|test)_|whsec_|AIza|ya29\.|tvly-|gsk_|pplx-|xai-|hf_|r8_|nvapi-|gh[pousr]_|"
    r"github_pat_|glpat-|xox[abeoprs]-|xapp-|shp[a-z]{2}_|AKIA|ASIA"
)
_PATTERNS = (
    # credentials in front of a host
    (re.compile(r"(?<=://)[^\s/?#@]+@"), HIDDEN + "@"),
    # Authorization: Bearer abc   'x-api-key': 'abc'
    (re.compile(rf"(?i)(?<![\w-])((?:{_HEADERS}){_GAP})[^\r\n\"']+"), rf"\1{HIDDEN}"),
    # ?key=abc   api_key=abc   "access_token": "abc"
    (re.compile(rf"(?i)(?<![\w-])({_NAMES}{_GAP})[^\s&;,\"'<>#)}}\]]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)([?&;]key=)[^\s&;,\"'<>#]+"), rf"\1{HIDDEN}"),
    # Bearer abc, wherever it stands
    (re.compile(r"(?i)\b(bearer|basic)[ \t]{1,8}[a-z0-9._~+/=-]{6,}"), rf"\1 {HIDDEN}"),
    # keys known by their shape, and JSON web tokens
    (re.compile(rf"(?<![A-Za-z0-9])({_SHAPES})[A-Za-z0-9_.-]{{6,}}"), rf"\1{HIDDEN}"),
    (re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]{8,}"), HIDDEN),
)


_CREDENTIAL_NAME = re.compile(
    r"cookie|credential|signature|secret|passw(?:or)?d|passphrase|authori[sz]|authentic|bearer|jwt|hmac"
    r"|(?:token|key|auth)(?:-|$)|(?:^|-)(?:sig|pwd|otp)(?:-|$)"
)
_NO_CREDENTIAL = frozenset(("idempotency-key", "sec-websocket-key"))


def is_credential(name: str) -> bool:
    """Whether a header or parameter of this name may hold a credential, by the names that are in use for it."""
    name = name.lower().replace("_", "-")
    return name not in _NO_CREDENTIAL and _CREDENTIAL_NAME.search(name) is not None


def for_display(text: str) -> str:
    """What a person may see of a name or a sentence from outside: no credentials, no control codes, one line."""
    return printable(redact(text))


LONGEST_REASON = 300


def shortened(text: str) -> str:
    """One line of at most ``LONGEST_REASON`` characters."""
    text = printable(" ".join(text.split()))
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 4] + " ..."


def redact(text: str) -> str:
    """The text without credentials, at most ``LONGEST_TEXT`` characters of it."""
    shown = text[:LONGEST_TEXT]
    for pattern, instead in _PATTERNS:
        shown = pattern.sub(instead, shown)
    return shown if len(text) <= LONGEST_TEXT else shown + " ..."
