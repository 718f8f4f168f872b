"""Open a body far enough to see whether it complains, within bounds.

A body is bytes, text or JSON already parsed. It may be a page of HTML, a stream of
server-sent events whose last one is the error, a million brackets deep, or half a
gigabyte; every one of those is looked at within the bounds below or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

LONGEST_BODY = 262_144
"""Bytes of a body that are parsed as JSON; errors are far smaller."""
LOOK = 4096
"""Bytes at either end of a good answer in which a hidden error is looked for."""
MOST_LOOKS = 8
"""Places in which the word "error" is looked at more closely."""
LONGEST_GAP = 32
"""Bytes between the word "error" and what it holds."""
MOST_ENTRIES = 16
"""Entries of any list inside a body that are looked at."""

Json = Mapping[str, Any]

FAILED = ("response.failed", "error")
"""Types of the events that end a stream which has failed, as OpenAI's Responses name them."""

_ERROR = r'"errors?"(?:\s{0,8}:\s{0,8}[{"\[]|\s{0,8}[,}])'
"""An error as a name with something behind it, or as a value."""
_ERROR_BYTES = _ERROR.encode()


def may_complain(body: object) -> bool:
    """A cheap look at the body of a good answer: may an error hide in it, or a budget?"""
    if type(body) is bytes and len(body) <= 2 * LOOK:  # as nearly all are
        return _may_complain(body, b'"error', _ERROR_BYTES, b"throttleStatus")
    if isinstance(body, str):
        return any(_may_complain(part, '"error', _ERROR, "throttleStatus") for part in _parts(body, "\nevent:"))
    if isinstance(body, bytes | bytearray):
        parts = _parts(body, b"\nevent:")
        return any(_may_complain(part, b'"error', _ERROR_BYTES, b"throttleStatus") for part in parts)
    if isinstance(body, Mapping):
        hints = any(key in body for key in ("error", "errors", "extensions", "choices"))
        return hints or body.get("ok") is False or body.get("type") in FAILED
    return False


def open_body(body: object) -> Json | None:
    """The JSON object a body holds, or the one its event stream ends with; None when there is none."""
    if isinstance(body, Mapping):
        return body
    if isinstance(body, list):
        return first_object(body)
    if isinstance(body, bytes | bytearray):
        body = bytes(body if len(body) <= LONGEST_BODY else body[-LOOK:]).decode("utf-8", "replace")
    if not isinstance(body, str):
        return None
    text = (body if len(body) <= LONGEST_BODY else body[-LOOK:]).strip().removeprefix("\ufeff")
    if text[:1] in ("{", "["):
        return _json(text)
    return _event(text)


def objects(value: object) -> Iterator[Json]:
    """The objects in a list, at most ``MOST_ENTRIES``; nothing when it is no list."""
    if isinstance(value, list | tuple):
        for entry in islice(value, MOST_ENTRIES):
            if isinstance(entry, Mapping):
                yield entry


def first_object(value: object) -> Json | None:
    return next(objects(value), None)


def _parts(body: Any, event: Any) -> tuple[Any, ...]:
    """Both ends and, of a stream, the beginning of its last event, which may be long."""
    if len(body) <= 2 * LOOK:
        return (body,)
    last = body.rfind(event, -LONGEST_BODY)
    return (body[:LOOK], body[-LOOK:], body[last : last + LOOK] if last >= 0 else body[:0])


def _may_complain(text: Any, word: Any, pattern: Any, budget: Any) -> bool:
    """``"error": null`` is in many good answers, so the word alone says nothing."""
    if budget in text:
        return True
    at = -1
    for _ in range(MOST_LOOKS):
        at = text.find(word, at + 1)
        if at < 0:
            return False
        if re.match(pattern, text[at : at + LONGEST_GAP]):
            return True
    return True


def _event(text: str) -> Json | None:
    """The last event of a stream that is an error, else the last data line with an error inside."""
    at = max(text.rfind(f"event:{space}{kind}") for kind in FAILED for space in ("", " "))
    if at < 0:
        at = max((match.start() for match in islice(re.finditer(_ERROR, text), MOST_LOOKS)), default=-1)
        at = text.rfind("\n", 0, at) + 1 if at >= 0 else -1
    data = text.find("data:", at) if at >= 0 else -1
    if data < 0:
        return None
    end = text.find("\n", data)
    return _json(text[data + 5 : end if end >= 0 else len(text)].strip())


def _json(text: str) -> Json | None:
    import json  # not loaded for answers that say all in their headers

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, an endless number, or a tower of brackets
        return None
    if isinstance(value, dict):
        return value
    return first_object(value)
