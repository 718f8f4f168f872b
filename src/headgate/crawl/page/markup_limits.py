"""How much of a page may be given to an HTML parser, so that it costs about what it weighs.

HTML as browsers read it has steps that look at everything still open, and a rule that repeats every open ``<b>`` in
each new paragraph. So 500 KB of ``<div>`` keep a parser busy for half a minute, and 29 KB of ``<b id=1><b
id=2>...<p><p>...`` become four million elements and more than a gigabyte. Both are prevented before parsing:

- Where it could matter, what only changes the look of letters (b, i, font, ...) is renamed to an element that nothing
  is known about. Such elements are not repeated, and readable text has no use for them.
- Large pages are looked through once for how deep they get. The first place where the work would be out of proportion
  is where the page is cut.

Looking through errs on one side: wherever this reading could be wrong about what ends an element, nothing is taken to
end any more. So it may think a page deeper than it is, never shallower.
"""

from __future__ import annotations

import re

MOST_WORK = 30_000_000
"""Open elements passed by, summed over all tags: about 0.2 s of a parser's time."""
MOST_TAGS = 200_000
MOST_ATTRIBUTES = 1_000_000
"""Roughly counted, over the whole page."""
MOST_ATTRIBUTES_OF_ONE = 1_000
MOST_REPEATED = 300_000
"""Elements that are made because others were not ended: about 100 MB."""
EASY_TAGS = 3_000
"""With no more tags than this a page cannot be deep enough to matter."""

_SPACE = rb"\t\n\f\r "
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
_LETTERING = rb"(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>]|\Z)"
_LETTERING_TAG = re.compile(rb"(?i)<(/?)" + _LETTERING)
_LETTERING_START = re.compile(rb"(?i)<" + _LETTERING + rb"(?:[" + _SPACE + rb"/]++|" + _ATTRIBUTE + rb")*+")
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
_UNSURE = _RAW | _words("plaintext frameset mglyph malignmark")
"""What is in them is markup or not, depending on where they stand."""
_HTML_WITHIN = {b"svg": _words("foreignobject desc title"), b"math": _words("mi mo mn ms mtext")}
_ENDS_SVG = _words(
    "blockquote body br center dd div dl dt embed h1 h2 h3 h4 h5 h6 head hr img li listing menu meta ol p pre ruby "
    "span sub sup table ul var"
)
_IMPLIED = _words("p li dd dt option optgroup rb rp rt rtc")
_ENDS_IMPLIED = _words(
    "address article aside blockquote button center dd details dialog dir div dl dt fieldset figcaption figure footer "
    "header hgroup h1 h2 h3 h4 h5 h6 li listing main menu nav ol p pre search section select summary ul"
)
_IN_TABLES = _words("tbody thead tfoot tr td th")
_TABLES = _IN_TABLES | _words("table")
_END_THEIR_LIKE = {
    b"p": _words("p"), b"li": _words("li"), b"dd": _words("dd dt"), b"dt": _words("dd dt"), b"option": _words("option"),
    b"td": _words("td th"), b"th": _words("td th"), b"tr": _words("td th tr"), b"a": _words("a"),
}  # fmt: skip


def parseable_prefix(body: bytes) -> tuple[bytes, str]:
    """As much of a page (in UTF-8) as can be parsed in proportion; and what it was cut for, as a clause, or nothing."""
    tags = body.count(b"<")
    if tags <= EASY_TAGS and tags * _repeated(body) <= MOST_REPEATED and not _MANY_ATTRIBUTES.search(body):
        return body, ""
    body = without_lettering(body)
    end, problem = _TagScan(body).run()
    return (body, "") if end is None else (body[:end], problem)


def without_lettering(body: bytes) -> bytes:
    return _LETTERING_TAG.sub(rb"<\1z", body)


def _repeated(body: bytes) -> int:
    """How many elements a new paragraph can begin with at most; of equal ones, a parser repeats three."""
    lettering = _LETTERING_START.findall(body)
    return min(len(lettering), 3 * len(set(lettering)))


class _TagScan:
    """One pass over the tags of a page."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.open: list[tuple[bytes, bytes]] = []
        """Elements not ended yet; and ``svg`` or ``math`` if that is what they hold, nothing if it is HTML."""
        self.sure = True
        """Whether it is still certain what ends where."""

    def run(self) -> tuple[int | None, str]:
        """Where to cut and why; None if nowhere."""
        body, position = self.body, 0
        tags = work = attributes = 0
        while (token := _TOKEN.search(body, position)) is not None:
            position = token.end()
            closing, name, own, cdata = token.groups()
            if name is None:
                if cdata and self.open and self.open[-1][1]:
                    self.sure = False  # it ends elsewhere than in HTML
                elif cdata:
                    position = body.find(b">", position) + 1 or len(body)
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
                position = self._start(name.lower(), _closes_itself(own), position)
        return None, ""

    def _start(self, name: bytes, closes_itself: bool, position: int) -> int:
        """An element begins; the position after it, and after its content if that is no markup."""
        stack = self.open
        if stack and stack[-1][1]:
            if name not in _ENDS_SVG:
                self.sure = self.sure and name != b"annotation-xml"
                if not (closes_itself and self.sure):
                    within = stack[-1][1]
                    stack.append((name, b"" if name in _HTML_WITHIN[within] else within))
                return position
            while self.sure and stack and stack[-1][1]:
                stack.pop()
        if name in (b"svg", b"math"):
            if not (closes_itself and self.sure):
                stack.append((name, name))
            return position
        if name in _RAW and self.sure and (b"select", b"") not in stack:
            return self._after_raw(name, position)
        if name in _VOID and self.sure:
            return position
        self.sure = self.sure and name not in _UNSURE
        while self.sure and stack and stack[-1][0] in _END_THEIR_LIKE.get(name, ()):
            if stack.pop()[0] == name:
                break
        stack.append((name, b""))
        return position

    def _after_raw(self, name: bytes, position: int) -> int:
        end = re.compile(rb"(?i)</" + name + rb"(?=[" + _SPACE + rb"/>])").search(self.body, position)
        if end is None:
            return len(self.body)
        if name == b"script" and (comment := self.body.find(b"<!--", position, end.start())) >= 0:
            # a script within a comment within a script does not end where it seems to
            self.sure = not re.compile(rb"(?i)<script").search(self.body, comment, end.start())
        token = _TOKEN.match(self.body, end.start())
        return token.end() if token else len(self.body)

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
            # an end from outside may end all of the SVG, or be passed over
            self.sure = name not in (b"p", b"br") and all(outer != name for outer, _ in stack[: at + 1])
            return
        passed = _IMPLIED | _IN_TABLES if name in _TABLES else _IMPLIED if name in _ENDS_IMPLIED else frozenset()
        while at and stack[at][0] != name and stack[at][0] in passed and not stack[at][1]:
            at -= 1
        if stack[at][0] == name and not stack[at][1] and (name not in _IN_TABLES or self._is_in_table(at)):
            del stack[at:]

    def _is_in_table(self, at: int) -> bool:
        """Outside of tables, rows and cells are passed over, and so are their ends."""
        while at and self.open[at][0] in _IN_TABLES:
            at -= 1
        return self.open[at][0] == b"table"


def _closes_itself(attributes: bytes) -> bool:
    """Whether the slash at the end is one, and not the last letter of a value."""
    if not attributes.endswith(b"/"):
        return False
    end = 0
    for attribute in re.finditer(_ATTRIBUTE, attributes):
        end = attribute.end()
    return end < len(attributes)
