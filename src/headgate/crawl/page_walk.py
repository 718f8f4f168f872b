"""A page's tree, once through from top to bottom: its blocks of text, the zones they stand in, and its links.

A block is what a reader sees as one paragraph, heading, list item, table row or listing. A zone is a part of the page
that says what it is for: by its element (``<main>``, ``<article>``, ``<nav>``), its role, or the words of its class
and id. What is chosen of them is ``readable.py``'s to say; here nothing is judged, so links are found in every
corner.

Depth costs nothing here: open elements are on a list, not on Python's stack.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .page_zones import Purpose, Zone, is_unseen, purpose_of

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

MOST_TEXT = 2_000_000
"""Characters taken from a page, before anything is chosen."""
MOST_ANCHORS = 50_000
LONGEST_ANCHOR_TEXT = 200


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
_HEADINGS = _words("h1 h2 h3 h4 h5 h6")
_VERBATIM = _words("pre listing xmp")
_MAY_BE_ZONES = _BLOCKS - _words("html body tr tbody thead tfoot li p pre")
_LINE_BREAK = "\x1f"
"""Stands for <br> until a block is made; spaces and line ends of the source are one space."""
_PERMALINKS = frozenset("¶#§🔗⚓")


@dataclass(slots=True)
class Block:
    text: str
    linked: int
    """Characters of it that are links."""
    tag: str
    zone: Zone | None
    bullet: str = ""


@dataclass(slots=True)
class Anchor:
    """A link as it is written."""

    href: str
    rel: str
    text: list[str] = field(default_factory=list)
    length: int = 0


@dataclass(slots=True)
class Walked:
    blocks: list[Block]
    zones: list[Zone]
    anchors: list[Anchor]
    cut: bool
    """Whether there was more text than is taken."""


@dataclass(slots=True)
class _Open:
    """What changes back when an element ends."""

    tag: str
    zone: Zone | None
    anchor: Anchor | None
    quiet: bool


def walk(root: LexborNode) -> Walked:
    """Everything below this node."""
    walker = _Walker()
    ancestors: list[tuple[LexborNode, _Open | None]] = []
    names: dict[int, str] = {}
    node: LexborNode | None = root
    while node is not None:
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
    for zone in reversed(walker.zones):
        if zone.parent is not None:
            zone.parent.length += zone.length
            zone.parent.linked += zone.linked
    return Walked(walker.blocks, walker.zones, walker.anchors, walker.left <= 0)


class _Walker:
    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.zones: list[Zone] = []
        self.anchors: list[Anchor] = []
        self.left = MOST_TEXT
        self._pieces: list[str] = []
        self._linked = 0
        self._tag = "body"
        self._zone: Zone | None = None
        self._anchor: Anchor | None = None
        self._quiet = False
        self._verbatim = 0
        self._headings = 0
        self._lists: list[int] = []
        """For each open list the number of its last item; -1 if it has no numbers."""
        self._bullet = ""

    def take(self, node: LexborNode) -> None:
        """Text as it comes."""
        if self._quiet and self._anchor is None:
            return
        text = node.text_content or ""
        if not text:
            return
        anchor = self._anchor
        if anchor is not None:
            if anchor.length < LONGEST_ANCHOR_TEXT:
                anchor.text.append(text[:LONGEST_ANCHOR_TEXT])
                anchor.length += len(text.strip())
            if self._headings and text.strip() in _PERMALINKS:
                return
        if self._quiet or self.left <= 0:
            return
        self.left -= len(text)
        self._pieces.append(text)
        if anchor is not None:
            self._linked += len(text.strip())

    def enter(self, node: LexborNode, tag: str) -> _Open | None:
        """An element begins; None if nothing has to change back at its end."""
        if tag == "br":
            self._pieces.append("\n" if self._verbatim else _LINE_BREAK)
            return None
        if tag in _CELLS:
            if self._pieces and any(map(str.strip, self._pieces)):
                self._pieces.append(" | ")
            return None
        block = tag in _BLOCKS
        linking = tag in ("a", "area", "iframe", "frame")
        if not block and not linking and tag not in _QUIET and tag != "span":
            return None
        before = _Open(tag, self._zone, self._anchor, self._quiet)
        attributes = node.attributes
        if linking:
            self._link(tag, attributes)
        if tag in _QUIET or (attributes and is_unseen(attributes)):
            self._quiet = True
        if block:
            self.flush()
            self._tag = tag
            self._note_kind(tag, attributes)
        if tag in _MAY_BE_ZONES:
            self._enter_zone(tag, attributes)
        return before

    def leave(self, opened: _Open) -> None:
        tag = opened.tag
        if tag in _BLOCKS:
            self.flush()
            self._verbatim -= tag in _VERBATIM
            self._headings -= tag in _HEADINGS
            if tag in ("ul", "ol") and self._lists:
                self._lists.pop()
            self._tag = "body"
        self._zone, self._anchor, self._quiet = opened.zone, opened.anchor, opened.quiet

    def flush(self) -> None:
        """What has been taken is a block."""
        pieces, self._pieces = self._pieces, []
        linked, self._linked = self._linked, 0
        if not pieces:
            return
        text = "".join(pieces)
        text = text.strip("\r\n").rstrip() if self._verbatim else _tidy(text)
        if not text.strip(" |\r\n\t"):
            return
        self.blocks.append(Block(text, min(linked, len(text)), self._tag, self._zone, self._bullet))
        self._bullet = ""
        zone = self._zone
        if zone is not None:
            zone.length += len(text)
            zone.linked += linked

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

    def _note_kind(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag in _VERBATIM:
            self._verbatim += 1
        elif tag in _HEADINGS:
            self._headings += 1
            if tag == "h1":
                self._mark_the_point()
        elif tag == "ul":
            self._lists.append(-1)
        elif tag == "ol":
            start = attributes.get("start") or ""
            self._lists.append(int(start) - 1 if start.isdecimal() and len(start) < 7 else 0)
        elif tag == "li":
            if self._lists and self._lists[-1] >= 0:
                self._lists[-1] += 1
                self._bullet = f"{self._lists[-1]}. "
            else:
                self._bullet = "- "

    def _enter_zone(self, tag: str, attributes: dict[str, str | None]) -> None:
        purpose = purpose_of(tag, attributes, within=self._zone)
        if purpose is None:
            return
        if purpose in (Purpose.MAIN, Purpose.ARTICLE):
            self._mark_the_point()
        self._zone = Zone(purpose, self._zone)
        self.zones.append(self._zone)

    def _mark_the_point(self) -> None:
        zone = self._zone
        while zone is not None and not zone.holds_the_point:
            zone.holds_the_point = True
            zone = zone.parent


def _tidy(text: str) -> str:
    """Single spaces, and line breaks where they were asked for."""
    if _LINE_BREAK not in text:
        return " ".join(text.split())
    return "\n".join(line for part in text.split(_LINE_BREAK) if (line := " ".join(part.split())))
