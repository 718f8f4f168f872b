"""What leaves by the log: keys, row names and the words of servers are escaped before any handler sees them.

A key with a line feed in it could pass for a line of ours, and one with an escape code could rewrite the terminal. The
texts are escaped in the record's arguments, or in its message if it has none; ``extra`` fields are data for programs
and stay as they are.
"""

from __future__ import annotations

import logging

from .formatting import printable

LOGGERS = (
    "headgate",
    "headgate.batch",
    "headgate.resilience.circuit_breaker",
    "headgate.events",
    "headgate.limiter",
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


def install() -> None:
    """Filter all loggers of this package, once."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, PrintableFilter) for one in logger.filters):
            logger.addFilter(PrintableFilter())
