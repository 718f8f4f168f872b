"""Numbers as people say them."""

from __future__ import annotations


def span(seconds: float) -> str:
    """``"40 ms"``, ``"12.3 s"``, ``"15 min"`` or ``"2.5 h"``."""
    if seconds < 1:
        return f"{max(1.0, 1000 * seconds):.0f} ms" if seconds > 0 else "0 ms"
    if seconds < 600:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def brief(number: float, digits: int = 3) -> str:
    """``"0.25"``, ``"12.5"`` or ``"2,560"``."""
    return f"{number:.{digits}g}" if number < 999.5 else f"{number:,.0f}"
