"""Sitemaps of every form, whole and broken."""

from __future__ import annotations

import gzip
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.crawl import sitemap
from headgate.crawl.sitemap import MOST_URLS, Sitemap, read_sitemap

WHERE = "https://site.example/sitemap.xml"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
ONE = f"{HEAD}<url><loc> https://site.example/a?x=1&amp;y=2 </loc><lastmod>2026-02-03</lastmod></url></urlset>"
READ = Sitemap(("https://site.example/a?x=1&y=2",))


def read(text: str | bytes) -> Sitemap:
    return read_sitemap(text.encode() if isinstance(text, str) else text, WHERE)


@pytest.mark.parametrize(
    "body",
    [
        ONE.encode(),
        gzip.compress(ONE.encode()),
        b"\xef\xbb\xbf" + ONE.encode(),
        b"\n\n  " + ONE.encode(),
        ONE.replace("UTF-8", "utf-16").encode("utf-16"),
        ONE.replace("UTF-8", "iso-8859-1").encode("latin-1"),
        ONE.replace("https://site.example/a?x=1&amp;y=2", "<![CDATA[https://site.example/a?x=1&y=2]]>").encode(),
        ONE.replace("https://site.example", "").encode(),
        ONE.replace("<", "<s:").replace("<s:/", "</s:").replace("<s:?", "<?").replace("xmlns=", "xmlns:s=").encode(),
    ],
    ids=["plain", "gzip", "mark", "space before", "UTF-16", "Latin-1", "CDATA", "relative", "prefixes"],
)
def test_pages_are_read(body: bytes) -> None:
    assert read(body) == READ


def test_an_index_leads_to_further_sitemaps() -> None:
    index = "<sitemapindex><sitemap><loc>/1.xml.gz</loc></sitemap><sitemap><loc>/2.xml</loc></sitemap></sitemapindex>"
    assert read(index) == Sitemap((), ("https://site.example/1.xml.gz", "https://site.example/2.xml"))


def test_lines_are_pages() -> None:
    assert read("https://site.example/1\r\nhttps://site.example/2\n\n").pages == (
        "https://site.example/1",
        "https://site.example/2",
    )


@pytest.mark.parametrize(
    "feed",
    [
        "<rss><channel><link>/</link><item><title>x</title><link>/1</link></item></channel></rss>",
        '<feed xmlns="http://www.w3.org/2005/Atom"><link href="/"/><entry><link rel="alternate" href="/1"/>'
        '<link rel="edit" href="/e"/></entry></feed>',
    ],
    ids=["RSS", "Atom"],
)
def test_a_feed_lists_pages(feed: str) -> None:
    assert read(feed).pages == ("https://site.example/1",)


def test_pictures_of_a_page_are_no_pages() -> None:
    picture = "<image:image xmlns:image='i'><image:loc>/p.png</image:loc></image:image></url>"
    assert read(ONE.replace("</url>", picture)) == READ


def test_an_address_counts_once_and_in_one_spelling() -> None:
    twice = f"{HEAD}<url><loc>/a</loc></url><url><loc>HTTPS://SITE.example:443/a#x</loc></url></urlset>"
    assert read(twice).pages == ("https://site.example/a",)


@pytest.mark.parametrize(
    ("name", "body", "problem", "pages"),
    [
        ("nothing", b"", "empty", 0),
        ("a web page", b"<!doctype html><html><body>404</body></html>", "web page", 0),
        ("an & that is not escaped", ONE.replace("&amp;", "&").encode(), "invalid XML", 1),
        ("cut off", (ONE[: ONE.index("</url>")]).encode(), "invalid XML", 1),
        ("cut off gzip", gzip.compress(ONE.encode())[:-12], "cannot be decompressed", 1),
        ("gzip that is none", b"\x1f\x8b" + b"nonsense" * 20, "cannot be decompressed", 0),
        ("an unknown charset", ONE.replace("UTF-8", "klingon").encode(), "charset", 1),
        ("a codec that is no charset", ONE.replace("UTF-8", "zip").encode(), "invalid XML", 1),
        ("another kind of XML", b"<svg><url><loc>/a</loc></url></svg>", "not a sitemap", 0),
        ("addresses that are none", f"{HEAD}<url><loc>javascript:x</loc></url></urlset>".encode(), "not URLs", 0),
        ("lines that are none", b"hello\nworld\n", "not URLs", 0),
        ("bytes that are none", ONE.encode() + b"\xff\xff", "invalid XML", 1),
        ("a document type", b"<!DOCTYPE urlset><urlset><url><loc>/a</loc></url></urlset>", "document type", 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_one_is_read_as_far_as_it_can_be(name: str, body: bytes, problem: str, pages: int) -> None:
    found = read(body)
    assert problem in found.problem, name
    assert len(found.pages) == pages, name


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
BOMBS = {
    "a billion laughs": lambda: (
        f'<?xml version="1.0"?><!DOCTYPE u [<!ENTITY l0 "ha">{LAUGHS}]><urlset>&l11;</urlset>'.encode()
    ),
    "a file of the machine": lambda: (
        b'<!DOCTYPE u [<!ENTITY x SYSTEM "file:///etc/passwd">]><urlset><url><loc>&x;</loc></url></urlset>'
    ),
    "200 MB of zeros in gzip": lambda: gzip.compress(bytes(200_000_000), 1),
    "gzip in gzip": lambda: gzip.compress(gzip.compress(bytes(1_000_000))),
    "elements a million deep": lambda: b"<urlset>" * 1_000_000,
    "elements without end": lambda: b"<urlset>" + b"<a>x</a>" * 500_000,
    "an address without end": lambda: b"<urlset><url><loc>" + b"x" * 20_000_000,
    "attributes without end": lambda: b"<urlset " + b"".join(b"a%d='' " % number for number in range(600_000)),
    "a comment without end": lambda: b"<urlset><!--" + b"x" * 20_000_000,
    "<loc> without end": lambda: b"<urlset>&" + b"<loc>" * 500_000,
    "addresses without end": lambda: (
        b"<urlset>" + b"".join(b"<url><loc>/%d</loc></url>" % number for number in range(70_000))
    ),
    "lines without end": lambda: b"https://site.example/\n" * 100_000,
}


HEAVY = ("addresses without end",)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.chaos] if name in HEAVY else []) for name in BOMBS]
)
def test_a_bomb_does_not_go_off(name: str) -> None:
    began = time.process_time()
    found = read(BOMBS[name]())
    assert time.process_time() - began < 15.0  # while coverage is measured; one or two without
    assert len(found.pages) <= MOST_URLS
    assert "passwd" not in repr(found)
    assert found.problem


def test_no_more_addresses_are_read_than_the_bound_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sitemap, "MOST_URLS", 3)
    found = read(HEAD + "".join(f"<url><loc>/{number}</loc></url>" for number in range(5)) + "</urlset>")
    assert len(found.pages) == 3
    assert "more than 3 URLs" in found.problem


@given(
    st.lists(
        st.sampled_from(
            [
                b"<urlset>",
                b"<url>",
                b"<loc>",
                b"</loc>",
                b"</url>",
                b"/a",
                b"&amp;",
                b"&",
                b"<!--",
                b"-->",
                b"<![CDATA[",
                b"]]>",
                b"<sitemap>",
                b"\xff\xfe",
                b"\0",
                b"<?xml",
                b"?>",
                b"\x1f\x8b",
                b"https://site.example/",
            ]
        )
    ).map(b"".join)
)
def test_no_mixture_of_pieces_raises(body: bytes) -> None:
    read(body)
