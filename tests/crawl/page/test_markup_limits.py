"""The look through a page before it is parsed: it may think it deeper than it is, never shallower."""

from __future__ import annotations

import random
from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser

from headgate.crawl.page import markup_limits
from headgate.crawl.page.markup_limits import parseable_prefix, without_lettering

TAGS = (
    "a div p span ul li ol table tr td th tbody caption select option optgroup button form h1 h2 svg g path title "
    "desc foreignobject math mi mglyph annotation-xml style script textarea template object dd dt dl pre z iframe "
    "noscript section body html head frameset input br source ruby rt marquee details summary"
)
NAMES = TAGS.split()
OTHERS = [
    "<!--",
    "-->",
    "--!>",
    "<!-->",
    "<![CDATA[",
    "]]>",
    "<!x>",
    "<?y>",
    "</>",
    "</ x>",
    "w",
    "<",
    ">",
    "'",
    '"',
    "=",
]


def piece(rng: random.Random) -> str:
    kind = rng.random()
    name = rng.choice(NAMES)
    if kind < 0.45:
        attribute = rng.choice(
            ["", "", "", " a", " a=b", " a='>'", ' a=">"', " ='>", " a=b'>", " encoding='text/html'", " '"]
        )
        return f"<{name}{attribute}{rng.choice(['', '', '', '/', ' /'])}>"
    return f"</{name}>" if kind < 0.85 else rng.choice(OTHERS)


def depth_of(body: bytes) -> int:
    root = LexborHTMLParser(body).root
    deepest = depth = 0
    node: Any = root
    while node is not None:
        deepest = max(deepest, depth)
        if node.first_child is not None:
            node, depth = node.first_child, depth + 1
            continue
        while node is not None and node.next is None:
            node, depth = node.parent, depth - 1
        node = node.next if node is not None else None
    return deepest


@pytest.mark.parametrize("seeds", [range(250), pytest.param(range(250, 4_000), marks=pytest.mark.chaos)])
def test_a_page_is_never_deeper_than_it_was_taken_for(seeds: range) -> None:
    """A motif repeated a hundred times: whatever it leaves open piles up, and must have been seen to."""
    for seed in seeds:
        rng = random.Random(seed)
        motif = "".join(piece(rng) for _ in range(rng.randint(2, 7)))
        body = without_lettering((motif * 100).encode())
        seen = deepest_seen(body)
        real = depth_of(body)
        assert real <= 4 * seen + 30, f"seed {seed}: {motif!r} is {real} deep and was taken for {seen}"


def deepest_seen(body: bytes) -> int:
    """How deep the look gets, by the work it counts: each tag adds what is open."""
    look = markup_limits._TagScan(body)
    deepest = 0
    start, end = look._start, look._end

    def started(name: bytes, closes_itself: bool, position: int) -> int:
        nonlocal deepest
        after = start(name, closes_itself, position)
        deepest = max(deepest, len(look.open))
        return after

    def ended(name: bytes) -> None:
        end(name)

    look._start, look._end = started, ended  # type: ignore[method-assign]
    look.run()
    return deepest


@pytest.mark.parametrize(
    "unit",
    [
        b"<div><p>text<ul><li>one<li>two</ul></div>",
        b"<table><tr><td>a<td>b<tr><td>c</table>",
        b"<tr><td>a<td>b",
        b"<p>one<p>two<br><img src=x><input>",
        b"<dl><dt>a<dd>b<dt>c<dd>d</dl>",
        b"<svg viewBox='0 0 1 1'><title>Icon</title><path d='M0'/><g><circle r=1 /></g></svg>",
        b"<script>if (a < b) document.write('<div>')</script><style>a > b {}</style>",
        b"<b>bold</b> <i>and <u>under</u></i> <a href=/x><code>code</code></a>",
        b"<select><option>a<option>b</select><textarea><div></textarea>",
        b"<!-- <div> --><div title='<div>'></div>",
        b"<section><header><h2>x</h2></header><figure><img><figcaption>y</figcaption></figure></section>",
    ],
)
def test_large_ordinary_pages_are_left_whole(unit: bytes) -> None:
    body = b"<!doctype html><html><head><title>t</title></head><body>" + unit * (2_000_000 // len(unit) // 10)
    assert parseable_prefix(body)[1] == ""


def test_lettering_is_renamed_and_nothing_else_and_only_where_it_could_matter() -> None:
    before = b"<b>a</b><B class=x>b</B><br><base><body><i\n>c</i><img><s/><span><small>d</small><em>"
    after = b"<z>a</z><z class=x>b</z><br><base><body><z\n>c</z><img><z/><span><z>d</z><z>"
    assert without_lettering(before) == after
    assert parseable_prefix(before) == (before, "")


def test_a_page_is_cut_before_the_tag_that_is_too_much() -> None:
    cut, why = parseable_prefix(b"<p>one</p>" + b"<div>" * 20_000)
    assert cut.startswith(b"<p>one</p><div>")
    assert cut.endswith(b"<div>")
    assert "deep" in why
