"""The main text of a page, by trafilatura: the article, without navigation, asides, footers and notices.

Pages come from any server and trafilatura was written for honest ones, so it is asked only within bounds, and never
trusted to answer:

    too long, too many tags, too deep     not asked: its time grows with these, and no clock can end it halfway
    it raises, or finds next to nothing   the caller has the visible text instead: of a list of entries it finds one

The bounds are of the page and not of time, so the same page always has the same text. Within them the worst page that
was found takes two seconds; news pages take 10 to 100 ms (``bench/READABLE.md``). It fetches nothing, and may be called
from several threads.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from functools import cache

from .tree import Walked

LONGEST_MARKUP = 4_000_000
"""Characters."""
MOST_TAGS = 50_000
"""Beginnings and ends of elements together."""
DEEPEST = 200
"""Elements within one another; its parser leaves out what is deeper than 256."""
MOST_TOTAL_DEPTH = 1_000_000
"""Of all elements and texts together: it looks at what is around each of them."""

SMALLEST_SHARE = 0.35
"""Of the visible text outside of links. Articles have 0.38 to 1.0 of it; what has less is one entry of several."""

log = logging.getLogger("headgate")

_thread = threading.local()
"""``is_extracting``: whether this thread is inside of ``main_text``."""


def main_text(markup: str, walked: Walked) -> str:
    """Empty if there is none, it is too small a part of the page, or the page is out of bounds. Never raises."""
    if len(markup) > LONGEST_MARKUP or markup.count("<") > MOST_TAGS:
        return ""
    if walked.deepest > DEEPEST or walked.total_depth > MOST_TOTAL_DEPTH:
        return ""
    extract = _trafilatura()
    _thread.is_extracting = True
    try:
        found = extract(markup, fast=True) or ""
    except Exception as error:  # its message may hold anything, so it is not logged
        log.debug("No main text was found: trafilatura raised %s", type(error).__name__)
        return ""
    finally:
        _thread.is_extracting = False
    return found if len(found) >= SMALLEST_SHARE * walked.unlinked else ""


def is_loaded() -> bool:
    """Whether asking takes no longer than the page does: loading trafilatura takes most of a second."""
    return "trafilatura" in sys.modules


@cache
def _trafilatura() -> Callable[..., str | None]:
    from trafilatura import extract  # an extra, loaded when the first page has come

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "trafilatura"]
    for name in names:
        logging.getLogger(name).addFilter(_is_not_ours)
    return extract


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Its warnings of empty and broken pages are no news in a crawl; the program's own use of it stays as it is."""
    return not getattr(_thread, "is_extracting", False)
