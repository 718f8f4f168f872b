"""A page's tree, once through from top to bottom: its links, and its visible text.

The visible text is all that a browser would show, navigation and footers included: what is used of a page in which no
main text is found (``main_text`` in ``extract.py``). A block is a paragraph, heading, list item, table row or listing.

Depth costs nothing here: open elements are on a list, not on Python's stack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

MOST_TEXT = 2_000_000
"""Characters taken from a page, spaces included."""
MOST_ANCHORS = 50_000
LONGEST_ANCHOR_TEXT = 200
LONGEST_NAMES = 500
"""Characters of a style and a class that are looked at."""
NAMES_REMEMBERED = 2_048
"""Classes that are known to hide an element or not: a page has few, and has them often."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BLOCKS = _words(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure "
    "footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr html legend li listing main menu nav ol p pre search "
    "section summary table tbody tfoot thead tr ul xmp"
)
_CELLS = _words("td th")
_NOT_ENTERED = _words("script style template textarea select svg canvas object applet title head datalist")
_QUIET = _words("button noscript iframe audio video label noframes noembed")
_VERBATIM = _words("pre listing xmp")
_LINKING = _words("a area iframe frame")
_BULLET = "- "
_LINE_BREAK = "\x1f"
"""Stands for <br> until a block is made; spaces and line ends of the source are one space."""
_HIDING_STYLE = re.compile(r"(?i)display\s*:\s*none|visibility\s*:\s*hidden")
_HIDING_CLASS = re.compile(r"(?:^|\s)(?:sr-only|visually-?hidden|screen-reader-text|skip-?link)(?:$|\s)")


@dataclass(slots=True)
class Anchor:
    """A link as it is written."""

    href: str
    rel: str
    text: list[str] = field(default_factory=list)
    length: int = 0


@dataclass(slots=True)
class _Block:
    pieces: list[str]
    is_listed: bool
    is_verbatim: bool

    def text(self) -> str:
        """Single spaces, and line breaks where they were asked for; empty if there is nothing to see."""
        text = "".join(self.pieces)
        if self.is_verbatim:
            text = text.strip("\r\n").rstrip()
        else:
            text = "\n".join(line for part in text.split(_LINE_BREAK) if (line := " ".join(part.split())))
        if not text.strip(" |\r\n\t"):
            return ""
        return _BULLET + text if self.is_listed else text


@dataclass(slots=True)
class Walked:
    anchors: list[Anchor]
    is_cut: bool
    """Whether there was more text than is taken."""
    unlinked: int
    """Characters of visible text outside of links."""
    deepest: int
    """Elements within one another."""
    total_depth: int
    """Of all elements and texts together."""
    _blocks: list[_Block]

    def visible_text(self) -> str:
        """A line for each block."""
        return "\n".join(text for block in self._blocks if (text := block.text()))


@dataclass(slots=True)
class _Open:
    """What changes back when an element ends."""

    tag: str
    anchor: Anchor | None
    is_quiet: bool


def walk(root: LexborNode) -> Walked:
    """Everything below this node."""
    walker = _Walker()
    ancestors: list[tuple[LexborNode, _Open | None]] = []
    names: dict[int, str] = {}
    deepest = total = 0
    node: LexborNode | None = root
    while node is not None:
        total += len(ancestors)
        tag_id = node.tag_id
        tag = names.get(tag_id)
        if tag is None:
            tag = names[tag_id] = node.tag or ""
        if tag == "-text":
            walker.take(node)
        elif tag not in _NOT_ENTERED:
            opened = walker.enter(node, tag)
            child = node.first_child
            if child is not None:
                ancestors.append((node, opened))
                deepest = max(deepest, len(ancestors))
                node = child
                continue
            if opened is not None:
                walker.leave(opened)
        following = node.next
        while following is None and ancestors:
            node, left = ancestors.pop()
            if left is not None:
                walker.leave(left)
            following = node.next if ancestors else None
        node = following
    walker.flush()
    return Walked(walker.anchors, walker.left <= 0, walker.unlinked, deepest, total, walker.blocks)


class _Walker:
    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.anchors: list[Anchor] = []
        self.left = MOST_TEXT
        self.unlinked = 0
        self._pieces: list[str] = []
        self._anchor: Anchor | None = None
        self._is_quiet = False
        self._is_listed = False
        self._verbatim = 0

    def take(self, node: LexborNode) -> None:
        """Text as it comes."""
        anchor = self._anchor
        if self._is_quiet and anchor is None:
            return
        text = node.text_content or ""
        if anchor is not None and anchor.length < LONGEST_ANCHOR_TEXT:
            anchor.text.append(text[:LONGEST_ANCHOR_TEXT])
            anchor.length += len(text.strip())
        if text and not self._is_quiet and self.left > 0:
            self.left -= len(text)
            self._pieces.append(text)
            if anchor is None:
                self.unlinked += len(text.strip())

    def enter(self, node: LexborNode, tag: str) -> _Open | None:
        """An element begins; None if nothing has to change back at its end."""
        if tag == "br":
            self._pieces.append("\n" if self._verbatim else _LINE_BREAK)
            return None
        if tag in _CELLS:
            if self._pieces and any(map(str.strip, self._pieces)):
                self._pieces.append(" | ")
            return None
        is_block, is_linking = tag in _BLOCKS, tag in _LINKING
        if not is_block and not is_linking and tag not in _QUIET and tag != "span":
            return None
        before = _Open(tag, self._anchor, self._is_quiet)
        attributes = node.attributes
        if is_linking:
            self._link(tag, attributes)
        if tag in _QUIET or (attributes and _is_hidden(attributes)):
            self._is_quiet = True
        if is_block:
            self.flush()
            self._verbatim += tag in _VERBATIM
            self._is_listed = tag == "li"
        return before

    def leave(self, opened: _Open) -> None:
        if opened.tag in _BLOCKS:
            self.flush()
            self._verbatim -= opened.tag in _VERBATIM
        self._anchor, self._is_quiet = opened.anchor, opened.is_quiet

    def flush(self) -> None:
        """What has been taken is a block."""
        if self._pieces:
            self.blocks.append(_Block(self._pieces, self._is_listed, self._verbatim > 0))
            self._pieces = []
        self._is_listed = False

    def _link(self, tag: str, attributes: dict[str, str | None]) -> None:
        href = attributes.get("src" if tag in ("iframe", "frame") else "href")
        if href is None or len(self.anchors) >= MOST_ANCHORS:
            return
        anchor = Anchor(href, (attributes.get("rel") or "").lower()[:100])
        self.anchors.append(anchor)
        if tag == "a":
            self._anchor = anchor
        elif tag == "area":
            anchor.text.append((attributes.get("alt") or "")[:LONGEST_ANCHOR_TEXT])


def _is_hidden(attributes: dict[str, str | None]) -> bool:
    """Whether an element is there but not shown."""
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    style, class_ = attributes.get("style"), attributes.get("class")
    return bool(
        (style and _HIDING_STYLE.search(style[:LONGEST_NAMES])) or (class_ and _is_hiding_class(class_[:LONGEST_NAMES]))
    )


@lru_cache(maxsize=NAMES_REMEMBERED)
def _is_hiding_class(names: str) -> bool:
    return _HIDING_CLASS.search(names) is not None
