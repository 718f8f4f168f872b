"""The visible text of a page: a line for each block, and nothing that is not shown."""

from __future__ import annotations

import pytest
from selectolax.lexbor import LexborHTMLParser

from headgate.crawl.page import tree
from headgate.crawl.page.tree import Walked, walk


def walked(markup: str) -> Walked:
    root = LexborHTMLParser(markup).root
    assert root is not None
    return walk(root)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<h1>One</h1>two<p>three", "One\ntwo\nthree"),
        ("<p>un<b>believ</b>able\n  and <font>so</font> on", "unbelievable and so on"),
        ("<p>one<br>two<br><br>three", "one\ntwo\nthree"),
        ("<ul><li>one<li>two <b>and</b> more<ol><li>three</ol></ul>after", "- one\n- two and more\n- three\nafter"),
        ("<li><p>one", "one"),
        ("<table><tr><th>a<th>b<tr><td><td>1<td>2</table>", "a | b\n1 | 2"),
        ("<pre>  one\n    two\n</pre>three  four", "  one\n    two\nthree four"),
        ("<nav>Home</nav><footer>Imprint</footer>", "Home\nImprint"),
        ("<p>one<script>1</script><style>2</style><textarea>3</textarea><select><option>4</select>", "one"),
        ("<p>one<button>Press</button><noscript>none</noscript>", "one"),
        ("<svg><text>x</text></svg><template><p>y</template><title>z</title>", ""),
        ("<p hidden>a</p><p>b <span style='visibility: hidden'>c</span> d", "b d"),
    ],
)
def test_a_line_for_each_block_that_is_shown(markup: str, text: str) -> None:
    assert walked(markup).visible_text() == text


def test_text_and_links_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MOST_TEXT", 5)
    monkeypatch.setattr(tree, "MOST_ANCHORS", 2)
    found = walked("<p>one<p>two<p>three<a href=1></a><a href=2></a><a href=3></a>")
    assert (found.visible_text(), found.is_cut, [anchor.href for anchor in found.anchors]) == (
        "one\ntwo",
        True,
        ["1", "2"],
    )


def test_depth_is_measured() -> None:
    flat, deep = walked("<p>x</p>" * 50), walked("<div>" * 50 + "x")
    assert (flat.deepest, deep.deepest) == (3, 52)
    assert flat.total_depth < deep.total_depth / 4
