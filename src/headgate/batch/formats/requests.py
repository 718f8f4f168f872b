"""What one row asks for, and the short way to it: of a line as nearly all write it, the body is sent as it stands.

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
    └──────────────────────── known by its form ────────────────────────┘└ body ┘

The body is read for its model and to see that it is whole, and not written anew.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..tokens import NO_TOKENS, Usage, estimate
from .glancing import glance, glance_at_finite

PLAIN_LINE = re.compile(
    rb'\{"custom_id": ?"([^"\\\x00-\x1f]{1,1024})", ?(?:"method": ?"POST", ?)?'
    rb'(?:"url": ?"([^"\\\x00-\x1f]{0,2048})", ?)?"(?:body|params)": ?(?=\{)'
)
"""A line as nearly everybody writes it, up to its body. What follows then is the body and a bracket."""


class Request(NamedTuple):
    """What one row asks for."""

    name: str
    method: str = "POST"
    path: str = ""
    """Below the target's base URL; empty is the target's usual one."""
    body: bytes | None = None
    model: str = ""

    @property
    def estimate(self) -> Usage:
        """The tokens it is likely to take; it takes a while to count them."""
        return NO_TOKENS if self.body is None else estimate(glance(self.body), self.path)


def plain_request(raw: bytes) -> Request | None:
    """The request in a line that is plain and whole; its body is sent as it stands there. All others take longer."""
    found = PLAIN_LINE.match(raw)
    if found is None or raw[-1:] != b"}":
        return None
    written = raw[found.end() : -1]
    try:
        body, name, path = glance_at_finite(written), found[1].decode(), (found[2] or b"").decode()
    except (ValueError, RecursionError):
        return None
    if type(body) is not dict or body.get("stream") is True:
        return None
    model = body.get("model")
    return Request(name, "POST", path, written, model if type(model) is str else "")
