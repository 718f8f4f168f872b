"""Numbers as people say them, and names from outside as a terminal or a log can show them."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text on one line and without control codes: a line feed becomes ``\n``, an escape ``\x1b``.

    For keys, row names, labels and the words of a server, wherever a person reads them: none of them can move the
    cursor, colour what follows or pass for a line of ours. What is printable stays as it is.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def format_seconds(seconds: float) -> str:
    """``"40 ms"``, ``"12.3 s"``, ``"15 min"`` or ``"2.5 h"``."""
    if seconds < 1:
        return f"{max(1.0, 1000 * seconds):.0f} ms" if seconds > 0 else "0 ms"
    if seconds < 600:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def format_number(number: float, digits: int = 3) -> str:
    """``"0.25"``, ``"12.5"`` or ``"2,560"``."""
    return f"{number:.{digits}g}" if number < 999.5 else f"{number:,.0f}"
