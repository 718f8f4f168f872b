"""The pages of the manual, and what tests read in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
README = (ROOT / "README.md").read_text(encoding="utf-8")
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str, language: str) -> list[str]:
    return [body for found, body in _FENCE.findall(text) if found == language]


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return _FENCE.sub("", text)


def commands(text: str) -> list[str]:
    """Every ``headgate ...`` that a reader may type, with continued lines joined."""
    found = []
    for language in ("console", "sh"):
        for block in blocks(text, language):
            joined = block.replace("\\\n", " ")
            found += re.findall(r"(?:^|[\s(|])(headgate [a-z][^\n|#>]*)", joined)
    return found
