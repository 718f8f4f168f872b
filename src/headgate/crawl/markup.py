"""How much of a page may be given to an HTML parser, so that it costs about what it weighs.

HTML as browsers read it has steps that look at everything still open, and a rule that repeats every open ``<b>`` in
each new paragraph. So 500 KB of ``<div>`` keep a parser busy for half a minute, and 29 KB of ``<b id=1><b
id=2>...<p><p>...`` become four million elements and more than a gigabyte. Both are prevented before parsing:

- What only changes the look of letters (b, i, font, ...) is renamed to an element that nothing is known about. Such
  elements are not repeated, and readable text has no use for them.
- Large pages are looked through once for how deep they get. The first place where the work would be out of proportion
  is where the page ends for us.

Looking through errs on one side: wherever this reading could be wrong about what ends an element, nothing is taken to
end any more. So it may think a page deeper than it is, never shallower.
"""

from __future__ import annotations

import re

MOST_WORK = 30_000_000
"""Open elements passed by, summed over all tags: about 0.2 s of a parser's time."""
MOST_TAGS = 300_000
MOST_ATTRIBUTES = 1_000_000
"""Roughly counted, over the whole page."""
MOST_ATTRIBUTES_OF_ONE = 1_000
EASY_TAGS = 3_000
"""With no more tags than this a page cannot be deep enough to matter."""

_SPACE = rb"\t\n\f\r "
_LETTERING = re.compile(rb"(?i)<(/?)(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>]|\Z)")
_ATTRIBUTE = (
    rb"(?:=[^" + _SPACE + rb"/>=]*+|[^" + _SPACE + rb"/>=]++)"
    rb"(?:["
    + _SPACE
    + rb"]*+=["
    + _SPACE
    + rb"]*+(?:\"[^\"]*+\"|'[^']*+'|[^"
    + _SPACE
    + rb"\"'>][^"
    + _SPACE
    + rb">]*+)?+)?+"
)
_NAME = rb"([a-zA-Z][^" + _SPACE + rb"/>]*+)"
_MANY_ATTRIBUTES = re.compile(
    rb"<" + _NAME + rb"(?:[" + _SPACE + rb"/]++|" + _ATTRIBUTE + rb"){%d}" % (2 * MOST_ATTRIBUTES_OF_ONE)
)
_TOKEN = re.compile(
    rb"(?s)<(?:(/?)" + _NAME + rb"((?:[" + _SPACE + rb"/]++|" + _ATTRIBUTE + rb")*+)(?:>|\Z)"
    rb"|!--(?:>|->|.*?(?:--!?>|\Z))|(!\[CDATA\[)|[!?/][^>]*+>?)"
)
_BETWEEN_ATTRIBUTES = _SPACE.decode("unicode_escape").encode() + b"/\"'"


def _words(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


_VOID = _words("area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr")
_RAW = _words("script style textarea title xmp iframe noembed noframes")
_HTML_IN_SVG = _words("foreignobject desc title mi mo mn ms mtext")
_ENDS_SVG = _words(
    "blockquote body br center dd div dl dt embed h1 h2 h3 h4 h5 h6 head hr img li listing menu meta ol p pre ruby "
    "span sub sup table ul var"
)
_IMPLIED = _words("p li dd dt option optgroup rb rp rt rtc")
_IMPLIED_IN_TABLES = _IMPLIED | _words("td th tr tbody thead tfoot")
_ENDS_IMPLIED = _words(
    "address article aside blockquote button center dd details dialog dir div dl dt fieldset figcaption figure footer "
    "header hgroup h1 h2 h3 h4 h5 h6 li listing main menu nav ol p pre search section summary ul"
)
_TABLES = _words("table tbody thead tfoot tr td th")
_END_THEIR_LIKE = {
    b"p": _words("p"), b"li": _words("li"), b"dd": _words("dd dt"), b"dt": _words("dd dt"), b"option": _words("option"),
    b"td": _words("td th"), b"th": _words("td th"), b"tr": _words("td th tr"), b"a": _words("a"),
}  # fmt: skip


def bearable(body: bytes) -> tuple[bytes, str]:
    """As much of a page (in UTF-8) as can be parsed in proportion; and what it was cut for, as a clause, or nothing."""
    body = _LETTERING.sub(rb"<\1z", body)
    if body.count(b"<") <= EASY_TAGS and not _MANY_ATTRIBUTES.search(body):
        return body, ""
    end, problem = _Look(body).through()
    return (body, "") if end is None else (body[:end], problem)


class _Look:
    """One look through the tags of a page."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.open: list[tuple[bytes, bool]] = []
        """Elements not ended yet, and whether what they hold is SVG or MathML."""
        self.selects = 0
        self.sure = True
        """Whether it is still certain what ends where."""

    def through(self) -> tuple[int | None, str]:
        """Where to cut and why; None if nowhere."""
        body, position = self.body, 0
        tags = work = attributes = 0
        while (token := _TOKEN.search(body, position)) is not None:
            position = token.end()
            closing, name, own, cdata = token.groups()
            if name is None:
                if cdata and self.open and self.open[-1][1]:
                    self.sure = False  # it ends elsewhere than in HTML
                continue
            tags += 1
            work += len(self.open) + 1
            here = len(own) - len(own.translate(None, _BETWEEN_ATTRIBUTES))
            attributes += here
            if here > MOST_ATTRIBUTES_OF_ONE and len(re.findall(_ATTRIBUTE, own)) > MOST_ATTRIBUTES_OF_ONE:
                return token.start(), f"has an element with more than {MOST_ATTRIBUTES_OF_ONE:,} attributes"
            if work > MOST_WORK:
                return token.start(), f"has elements nested {len(self.open):,} deep"
            if tags > MOST_TAGS or attributes > MOST_ATTRIBUTES:
                return token.start(), f"has more than {tags - 1:,} tags or {MOST_ATTRIBUTES:,} attributes"
            if closing:
                self._end(name.lower())
            else:
                position = self._start(name.lower(), own.endswith(b"/"), position)
        return None, ""

    def _start(self, name: bytes, closes_itself: bool, position: int) -> int:
        """An element begins; the position after it, and after its content if that is no markup."""
        stack = self.open
        if stack and stack[-1][1]:
            if name not in _ENDS_SVG:
                self.sure = self.sure and name != b"annotation-xml"
                if not (closes_itself and self.sure):
                    stack.append((name, name not in _HTML_IN_SVG))
                return position
            while self.sure and stack and stack[-1][1]:
                stack.pop()
        if name in (b"svg", b"math"):
            if not (closes_itself and self.sure):
                stack.append((name, True))
            return position
        if name in _RAW and self.sure and not self.selects:
            return self._after_raw(name, position)
        if name in _VOID and self.sure:
            return position
        self.sure = self.sure and name != b"plaintext" and name not in _RAW
        self.selects += name == b"select"
        while self.sure and stack and stack[-1][0] in _END_THEIR_LIKE.get(name, ()):
            if stack.pop()[0] == name:
                break
        stack.append((name, False))
        return position

    def _after_raw(self, name: bytes, position: int) -> int:
        end = re.compile(rb"(?i)</" + name + rb"(?=[" + _SPACE + rb"/>])").search(self.body, position)
        if end is None:
            return len(self.body)
        if name == b"script" and (comment := self.body.find(b"<!--", position, end.start())) >= 0:
            # a script within a comment within a script does not end where it seems to
            self.sure = not re.compile(rb"(?i)<script").search(self.body, comment, end.start())
        return self.body.find(b">", end.end()) + 1 or len(self.body)

    def _end(self, name: bytes) -> None:
        stack = self.open
        if not self.sure or not stack:
            return
        at = len(stack) - 1
        if stack[at][1] or (at and stack[at - 1][1]):  # among SVG's own elements
            while at >= 0 and (stack[at][1] or (at and stack[at - 1][1])):
                if stack[at][0] == name:
                    del stack[at:]
                    return
                at -= 1
            return
        passed = _IMPLIED_IN_TABLES if name in _TABLES else _IMPLIED if name in _ENDS_IMPLIED else frozenset()
        while at and stack[at][0] != name and stack[at][0] in passed and not stack[at][1]:
            at -= 1
        if stack[at][0] == name and not stack[at][1]:
            del stack[at:]
