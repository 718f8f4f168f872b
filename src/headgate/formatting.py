"""Numbers as people say them, and names from outside as a terminal or a log can show them.

What leaves by the log is escaped too: keys, row names and the words of servers, before any handler sees them. A key
with a line feed in it could pass for a line of ours, and one with an escape code could rewrite the terminal. The texts
are escaped in the record's arguments, or in its message if it has none; ``extra`` fields are data for programs and stay
as they are.
"""

from __future__ import annotations

import logging
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
