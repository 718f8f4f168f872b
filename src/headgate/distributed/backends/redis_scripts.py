"""The scripts that a Redis runs for us, and how it is asked to.

Their numbers (how long a lease is, when a member is gone) are written down once, in Python, and put in front of
them here.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any, NamedTuple

from .. import coordinator, grants, shared_quota
from ..store import FORGOTTEN_AFTER

_NUMBERS = {
    name: value
    for known in (vars(shared_quota), vars(grants), vars(coordinator), {"KEPT_FOR": int(FORGOTTEN_AFTER)})
    for name, value in known.items()
    if name.isupper() and type(value) in (int, float)
}


class Request(NamedTuple):
    key: str
    """Decides which node of a Cluster is asked."""
    words: tuple[Any, ...]


class Script:
    """A server knows a script by its hash once it has run it; until then it wants the whole text."""

    def __init__(self, *names: str, flags: str = "") -> None:
        folder = Path(__file__).parent / "lua"
        lines = [f"#!lua{flags}"]
        lines += [f"local {name} = {value!r}" for name, value in sorted(_NUMBERS.items())]
        self.text = "\n".join([*lines, *((folder / f"{name}.lua").read_text("utf-8") for name in names)])
        self.name = sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def by_name(self, key: str, arguments: Sequence[bytes]) -> Request:
        return Request(key, ("EVALSHA", self.name, 1, key, *arguments))

    def whole(self, key: str, arguments: Sequence[bytes]) -> Request:
        return Request(key, ("EVAL", self.text, 1, key, *arguments))


SYNC = Script("fields", "shared_quota", "coordinator", "grants", "sync")
SNAPSHOT = Script("fields", "snapshot", flags=" flags=no-writes")
