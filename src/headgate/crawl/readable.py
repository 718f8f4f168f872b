"""What a person would read of a page, out of all that stands on it.

    1  what says that it is beside the point goes: navigation, asides, footers, notices, advertisements
    2  one part that says it is the point is taken: <main>, <article>, several articles (a thread, a list)
    3  if none does, blocks speak for themselves: long ones with few links are text, and short ones (headings, list
       items, dates) are what their neighbours are
    4  whenever that leaves next to nothing, the step before counts: a page of links is a page of links

Nothing is learned and no page is special; a rule is here if leaving it out makes one of the test's pages worse.
"""

from __future__ import annotations

from .page_walk import Block, Walked
from .page_zones import Purpose, Zone

LONGEST_TEXT = 1_000_000
"""Characters."""

_NEXT_TO_NOTHING = 80
_ENOUGH_FOR_A_POINT = 140
_SHARE_FOR_A_POINT = 0.2
"""Of the page's text outside of links."""
_SHARE_OF_ONE_ARTICLE = 0.6
"""Of the text in all articles, and in the main part; then the others are teasers."""
_MOST_FOR_APART = 0.5
"""What is named like a sidebar and holds more of the page than this is the page."""
_SMALL = 400
_LONG = 80
_LIST_OF_LINKS = 3
"""Blocks in a row that are nothing but links."""
_NEAR = 3
_A_NAME = 25
"""A link as short as this, and in one word, can be a person's name above what they wrote."""
_SENTENCE_ENDS = (".", "!", "?", "。", "！", "？", "…", ":", "”", '"', "।", "؟")
_LISTED = frozenset(("li", "tr", "dd"))
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))


def readable(walked: Walked) -> str:
    """The text: blocks apart by empty lines, list items and table rows by line ends."""
    everything = walked.blocks
    total = sum(len(block.text) - block.linked for block in everything)
    apart = _and_within(walked.zones, {id(zone) for zone in walked.zones if _is_apart(zone, total)})
    seen = [block for block in everything if id(block.zone) not in apart]
    point = _and_within(walked.zones, _point(walked.zones, apart, seen))
    chosen = _without_lists_of_links([block for block in seen if id(block.zone) in point])
    if _length(chosen) < _NEXT_TO_NOTHING:
        chosen = _by_density(seen)
    if _length(chosen) < _NEXT_TO_NOTHING:
        chosen = seen
    if not chosen:
        chosen = everything
    return _written(chosen)


def _and_within(zones: list[Zone], some: set[int]) -> set[int]:
    """These zones and all that lie within them. Outer ones come first in the list."""
    for zone in zones:
        if id(zone.parent) in some:
            some.add(id(zone))
    return some


def _length(blocks: list[Block]) -> int:
    return sum(len(block.text) for block in blocks)


def _is_apart(zone: Zone, total: int) -> bool:
    if zone.purpose in (Purpose.MAIN, Purpose.ARTICLE) or zone.holds_the_point:
        return False
    if zone.length - zone.linked > _MOST_FOR_APART * total and total:
        return False
    return zone.purpose is Purpose.APART or zone.length < _SMALL or zone.linked > 0.25 * zone.length


def _point(zones: list[Zone], apart: set[int], seen: list[Block]) -> set[int]:
    """The zones that are the point of the page; none if none says so, or not with enough text."""
    text = {id(zone): 0 for zone in zones}
    for block in seen:
        if block.zone is not None:
            text[id(block.zone)] += len(block.text) - block.linked
    for zone in reversed(zones):
        if zone.parent is not None:
            text[id(zone.parent)] += text[id(zone)]
    mains = [zone for zone in zones if zone.purpose is Purpose.MAIN]
    main = max(mains, key=lambda zone: text[id(zone)], default=None)
    in_main = _and_within(zones, {id(main)})
    articles, in_articles = [], set[int]()
    for zone in zones:
        if id(zone.parent) in in_articles:
            in_articles.add(id(zone))
        elif zone.purpose is Purpose.ARTICLE:
            in_articles.add(id(zone))
            if id(zone) not in apart and (main is None or id(zone) in in_main):
                articles.append(zone)
    largest = max(articles, key=lambda zone: text[id(zone)], default=None)
    of_articles = sum(text[id(zone)] for zone in articles)
    enough = max(_ENOUGH_FOR_A_POINT, _SHARE_FOR_A_POINT * sum(len(block.text) - block.linked for block in seen))
    of_all = max(of_articles, 0 if main is None else text[id(main)])
    if largest is not None and text[id(largest)] >= max(enough, _SHARE_OF_ONE_ARTICLE * of_all):
        return {id(largest)}
    if main is not None and text[id(main)] >= enough:
        return {id(main)}
    return {id(zone) for zone in articles} if of_articles >= enough else set()


def _without_lists_of_links(blocks: list[Block]) -> list[Block]:
    """Lists of links in the midst of text lead elsewhere; where there is hardly any text they are the page."""
    if sum(len(block.text) - block.linked for block in blocks) < _SMALL:
        return blocks
    kept: list[Block] = []
    run: list[Block] = []
    for block in [*blocks, None]:
        if block is not None and block.linked > 0.8 * len(block.text):
            run.append(block)
            continue
        if len(run) < _LIST_OF_LINKS:
            kept += run
        run = []
        if block is not None:
            kept.append(block)
    return _without_empty_sections(kept)


def _without_empty_sections(blocks: list[Block]) -> list[Block]:
    """A heading stays if something follows it before the next one of its rank or above."""
    kept: list[Block] = []
    nearest = ""
    for block in reversed(blocks):
        is_heading = block.tag in _HEADINGS
        if not is_heading or (nearest and nearest > block.tag) or nearest == "text":
            kept.append(block)
            nearest = block.tag if is_heading else "text"
    return kept[::-1]


def _by_density(blocks: list[Block]) -> list[Block]:
    """Long blocks with few links, and what stands between or right above them."""
    verdicts = [_verdict(block) for block in blocks]
    ahead, ahead_of_headings = _distances(verdicts, stops=True), _distances(verdicts, stops=False)
    kept = []
    since_good, kept_before, tag_before = _NEAR + 1, False, ""
    for block, verdict, next_good, next_of_heading in zip(blocks, verdicts, ahead, ahead_of_headings, strict=True):
        goes_on = block.tag in _LISTED and block.tag == tag_before and kept_before  # a list is one step, however long
        since_good = 0 if verdict > 0 else _NEAR + 1 if verdict < 0 else since_good + (not goes_on)
        near = since_good <= _NEAR
        keep = verdict > 0 or (verdict == 0 and next_good <= _NEAR and (near or kept_before))
        keep = keep or (verdict == 0 and near and block.tag in _LISTED)
        keep = keep or (block.tag in _HEADINGS and verdict == 0 and next_of_heading <= _NEAR)
        if keep:
            kept.append(block)
        kept_before, tag_before = keep, block.tag
    return kept


def _verdict(block: Block) -> int:
    """1 is text, -1 is no text, 0 is for the neighbours to say."""
    length = len(block.text)
    if block.linked > 0.5 * length:
        return 0 if length <= _A_NAME and " " not in block.text else -1
    if block.tag in ("pre", "blockquote"):
        return 1
    if block.linked > 0.33 * length:
        return 0
    return int(length >= _LONG or (length >= _LONG // 3 and block.text.endswith(_SENTENCE_ENDS)))


def _distances(verdicts: list[int], *, stops: bool) -> list[int]:
    """For each block how far ahead the next text is; if ``stops``, beyond reach where something else comes first."""
    distances = [_NEAR + 1] * len(verdicts)
    distance = _NEAR + 1
    for at in range(len(verdicts) - 1, -1, -1):
        distances[at] = distance
        distance = 1 if verdicts[at] > 0 else _NEAR + 1 if verdicts[at] < 0 and stops else distance + 1
    return distances


def _written(blocks: list[Block]) -> str:
    pieces: list[str] = []
    left = LONGEST_TEXT
    before: Block | None = None
    for block in blocks:
        together = before is not None and ((block.bullet and before.bullet) or before.tag == block.tag == "tr")
        piece = ("" if before is None else "\n" if together else "\n\n") + block.bullet + block.text
        pieces.append(piece[:left])
        left -= len(piece)
        if left <= 0:
            break
        before = block
    return "".join(pieces)
