"""Broken pages and pages made to break something: each is read as far as it can be and says what was wrong with it."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.crawl.page.extract import Extracted, extract

pytestmark = pytest.mark.no_cover

SECONDS = 10.0
"""Of the processor, for the worst of them while coverage is measured; two without."""
MEMORY = 1_000_000_000
"""Bytes of address space for all bombs, interpreter and libraries included."""


class Case(NamedTuple):
    name: str
    body: bytes
    problem: str
    """What the result must name; empty: nothing was wrong."""
    text: str = ""
    """What must have been read."""
    links: int = 0


SMALL = [
    Case("empty", b"", "empty"),
    Case("only spaces", b" \n\t ", "empty"),
    Case("no tags", b"just words", "", "just words"),
    Case("nothing is closed", b"<html><body><div><p>one<p>two<ul><li>three<li>four", "", "one\ntwo\nthree\nfour"),
    Case("everything is closed twice", b"<p>one</p></p></div></div></body></html></html>two", "", "two"),
    Case("closed in the wrong order", b"<b><i><p>one</b></i></p><div>two</p></div>", "", "one"),
    Case("a tag without an end", b"<p>one <a href=/x", "", "one"),
    Case("an attribute without an end", b"<p>one</p><a href='/x>two</a><p>three", "", "one"),
    Case("an attribute without quotes", b"<a href=/x?a=1&b=2 title=a'b\">one</a>", "", "one", 1),
    Case("attributes twice", b"<a href=/first href=/second>one</a>", "", "one", 1),
    Case("a comment without an end", b"<p>one</p><!-- <p>two</p>", "", "one"),
    Case("comments in comments", b"<!-- <!-- --> <p>one --></p>", "", "one"),
    Case("a script without an end", b"<p>one</p><script>var x = '<p>two</p>'", "", "one"),
    Case("a title without an end", b"<title>one <p>two", "no readable text"),
    Case("a textarea without an end", b"<p>one</p><textarea><p>two", "", "one"),
    Case("plaintext", b"<p>one</p><plaintext><p>two</plaintext>", "", "one"),
    Case("frames only", b"<frameset><frame src=/a><frame src=/b></frameset>", "no readable text", links=2),
    Case(
        "two bodies and two heads",
        b"<head><title>a</title></head><body>one</body><head></head><body>two</body>",
        "",
        "two",
    ),
    Case("text outside of its table", b"<table>one<tr>two<td>three</table>", "", "three"),
    Case("tables in tables", b"<table><tr><td><table><tr><td>one</table></table>", "", "one"),
    Case("HTML in SVG", b"<svg><p>one</p><title><b>x</b></title></svg><p>two</p>", "", "two"),
    Case("XHTML with CDATA", b"<?xml version='1.0'?><html><body><![CDATA[ no ]]><p>one</p></body></html>", "", "one"),
    Case("tags in capitals", b"<HTML><BODY><A HREF='/X'>one</A></BODY></HTML>", "", "one", 1),
    Case("tags nobody knows", b"<app-root><x-y>one</x-y><1>two</app-root>", "", "one"),
    Case("zero bytes", b"<p>o\0ne</p><a hr\0ef=/x>two</a>" + b"<p>words and words and words</p>" * 10, "", "words"),
    Case("noise", bytes(range(128, 256)) * 30, "read as windows-1252"),
    Case(
        "half a character",
        b"<p>one \xf0\x9f\x98</p>" + b"<p>more and more text</p>" * 10,
        "read as windows-1252",
        "one",
    ),
    Case("cut in the middle of a character", "<p>один</p>".encode()[:-5], "not valid utf-8", "оди"),
    Case(
        "UTF-8 with one bad byte",
        "<p>северная гавань \xff</p>".encode().replace(b"\xc3\xbf", b"\xff"),
        "not valid utf-8",
        "гавань",
    ),
    Case(
        "lone surrogates",
        b"<p>one \xed\xa0\x80 &#xD800; &#x110000;</p>" + b"<p>more text</p>" * 20,
        "read as windows-1252",
        "one",
    ),
    Case("half of UTF-16", "<p>one and two</p>".encode("utf-16")[:-1], "not valid utf-16", "one"),
    Case("a charset that is none", b"<meta charset=base64><p>one</p>", "unknown charset", "one"),
    Case("a charset named late", b"<p>one</p>" + b" " * 9_000 + b"<meta charset=shift_jis>", "", "one"),
    Case("a base that is none", b"<base href='http://['><a href=/x>one</a>", "", "one", 1),
    Case("a base of another kind", b"<base href='javascript:1'><a href=/x>one</a>", "", "one", 1),
    Case(
        "links that are none",
        b"<a href='http://['>a</a><a href='//'>b</a><a href='http://a:b:c/'>c</a><a href>d</a>",
        "",
        "abcd",
    ),
    Case("a refresh without an address", b"<meta http-equiv=refresh content='5;url='><p>one</p>", "", "one"),
    Case("broken JSON about itself", b"<script type='application/ld+json'>{\"a\":</script><p>one</p>", "", "one"),
    Case(
        "strange JSON about itself",
        b'<script type=\'application/ld+json\'>[[1],{"headline":[],"author":[[]]}]</script>one',
        "",
        "one",
    ),
    Case("attributes at the very beginning", b"<p " + b"a " * 5_000 + b">one", "attributes"),
    Case("a PDF", b"%PDF-1.7\n%\xe2\xe3", "a PDF"),
    Case("a picture", b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
    Case("an archive", b"PK\x03\x04\x14\0", "a ZIP archive"),
    Case("compressed twice", b"\x1f\x8b\x08\0\0", "gzip"),
]

BOMBS = [
    Case("100,000 open divs", b"<p>one</p>" + b"<div>" * 100_000 + b"x", "nested", "one"),
    Case("100,000 open and closed divs", b"<p>one</p>" + b"<div>" * 100_000 + b"</div>" * 100_000, "nested", "one"),
    Case("100,000 open lists", b"<p>one</p>" + b"<ul><li>" * 100_000, "nested", "one"),
    Case("ends hidden in comments", b"<p>one</p>" + b"<div><!--</div>-->" * 50_000, "nested", "one"),
    Case("ends hidden in attributes", b"<p>one</p>" + b"<div title='</div>'>" * 50_000, "nested", "one"),
    Case("ends hidden in scripts", b"<p>one</p>" + b"<div><script></div></script>" * 20_000, "nested", "one"),
    Case(
        "ends hidden in scripts in comments",
        b"<p>one</p>" + b"<div><script><!--<script></script></div>--></script>" * 20_000,
        "nested",
        "one",
    ),
    Case("ends hidden in cells", b"<p>one</p>" + b"<div><table><td></div>" * 50_000, "nested", "one"),
    Case("ends hidden in CDATA", b"<p>one</p>" + b"<svg><g><![CDATA[></g></svg>]]>" * 50_000, "nested", "one"),
    Case("ends that end nothing", b"<p>one</p>" + b"<span>" * 20_000 + b"</x>" * 50_000, "nested", "one"),
    Case(
        "bold upon bold in every paragraph",
        b"<p>one</p>" + b"".join(b"<b id=%d>" % n for n in range(3_000)) + b"<p>x" * 30_000,
        "nested",
        "one",
    ),
    Case(
        "2,000 fonts in 900 paragraphs",
        b"<p>one</p>" + b"".join(b"<font size=%d>" % n for n in range(2_000)) + b"<p>x" * 900,
        "",
        "one",
    ),
    Case(
        "100,000 attributes",
        b"<p>one</p><p " + b"".join(b"a%d " % n for n in range(100_000)) + b">two",
        "attributes",
        "one",
    ),
    Case(
        "attributes with > in quotes",
        b"<p>one</p><p " + b"".join(b"a%d='>' " % n for n in range(100_000)) + b">two",
        "attributes",
        "one",
    ),
    Case(
        "attributes everywhere",
        b"<p>one</p>" + (b"<p " + b"".join(b"a%d " % n for n in range(300)) + b">") * 4_000,
        "attributes",
        "one",
    ),
    Case("200,000 tags", b"<p>one</p>" + b"<i>x</i>" * 100_000, "tags", "xxx"),
    Case("a million <", b"<p>one</p>" + b"<" * 1_000_000, "characters of text", "<<<"),
    Case("a million <a without >", b"<p>one</p>" + b"<a " * 300_000, "attributes", "one"),
    Case("quotes without end", b"<p>one</p>" + b"<a b='" * 200_000 + b'<c d="' * 200_000, "attributes", "one"),
    Case("comments without end", b"<p>one</p>" + b"<!--" * 500_000, "", "one"),
    Case("a million entities", b"<p>one</p>" + b"&amp;" * 1_000_000, "characters of text", "&&&"),
    Case(
        "12,000 links",
        b"<p>one</p>" + b"".join(b"<a href=/%d>x</a>" % n for n in range(12_000)),
        "links",
        "one",
        10_000,
    ),
    Case(
        "a link around everything, nested",
        b"<p>one</p>" + b"<a href=/x><table><td>" * 3_000 + b"w" * 5_000_000,
        "",
        "",
        1,
    ),
    Case("an address of a megabyte", b"<p>one</p><a href=/" + b"x" * 1_000_000 + b">two</a>", "", "one"),
    Case("a heading of 5,000 words", b"<h1>" + b"<i>w </i>" * 5_000 + b"</h1><p>one</p>", "", "one"),
    Case("a class of a megabyte", b"<div class='" + b"nav " * 250_000 + b"'>one</div>", "", "one"),
    Case("10,000 metas", b"<meta name=author content=x>" * 10_000 + b"<p>one</p>", "", "one"),
    Case("4 MB of text", b"<p>one</p>" + b"<p>some words in a row</p>" * 150_000, "tags", "one"),
    Case("10 MB in one line", b"<p>one " + b"word " * 2_000_000, "characters of text", "one"),
    Case("10 MB of spaces", b"<p>one</p>" + b" " * 10_000_000, "", "one"),
    Case(
        "JSON without end", b"<script type='application/ld+json'>" + b"[" * 60_000 + b"</script><p>one</p>", "", "one"
    ),
    Case("SVG without end", b"<p>one</p><svg>" + b"<g>" * 300_000, "", "one"),
    Case("tables without end", b"<p>one</p>" + b"<table><tr><td>" * 100_000, "nested", "one"),
    Case("selects without end", b"<p>one</p>" + b"<select><option>" * 100_000, "", "one"),
    Case("templates without end", b"<p>one</p>" + b"<template>" * 100_000, "nested", "one"),
    Case("forms in a sidebar in a form", b"<p>one</p>" + b"<div class=sidebar><article>" * 20_000, "nested", "one"),
]


def read(body: bytes) -> Extracted:
    return extract(body, "text/html", None, "https://site.example/x/page.html")


HEAVY = (
    "4 MB of text",
    "attributes everywhere",
    "10 MB in one line",
    "ends hidden in scripts",
    "100,000 open and closed divs",
    "100,000 open lists",
    "ends hidden in attributes",
    "ends hidden in cells",
    "ends hidden in CDATA",
    "forms in a sidebar in a form",
    "tables without end",
    "templates without end",
    "a link around everything, nested",
)
"""What takes longest; the way in which it is bounded has a lighter case beside it."""
CASES = [
    pytest.param(case, marks=[pytest.mark.chaos] if case.name in HEAVY else [], id=case.name)
    for case in (*SMALL, *BOMBS)
]


@pytest.mark.parametrize("case", CASES)
def test_a_broken_page_is_read_as_far_as_it_can_be(case: Case) -> None:
    began = time.process_time()
    found = read(case.body)
    assert time.process_time() - began < SECONDS
    assert case.text in found.text
    assert case.problem in found.problem
    if case.problem == "" and case in SMALL:
        assert found.problem == ""
    assert len(found.links) == case.links
    assert len(found.text) <= 1_000_000
    assert len(found.problem) < 500


def test_there_are_enough_of_them() -> None:
    assert len(SMALL) + len(BOMBS) >= 70
    assert len({case.name for case in [*SMALL, *BOMBS]}) == len(SMALL) + len(BOMBS)


@pytest.mark.chaos
def test_all_bombs_together_stay_within_a_gigabyte() -> None:
    """In a process of its own, which is killed by the kernel's word if it wants more."""
    pytest.importorskip("resource")
    code = f"""
import resource, runpy
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
module = runpy.run_path({__file__!r})
for case in module["BOMBS"]:
    module["read"](case.body)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-500:]


TAGS = (
    "a b p div table tr td th ul li select option svg g title style script template form button h1 z font nobr "
    "foreignobject math mi"
)
PIECES = [
    *(f"<{tag}>".encode() for tag in TAGS.split()),
    *(f"</{tag}>".encode() for tag in TAGS.split()),
    b"<!--",
    b"-->",
    b"<![CDATA[",
    b"]]>",
    b"<g/>",
    b"<br>",
    b"words ",
    b"<a href='",
    b"'>",
    b'"',
    b"<",
    b">",
    b"&#",
    b"\0",
    b"\xff",
    b"<div class=nav>",
    b"<main>",
    b"<article>",
    b"<meta charset=",
    b"<base href=",
    b"<plaintext>",
    b"<frameset>",
]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join))
def test_no_mixture_of_pieces_raises(body: bytes) -> None:
    read(body)


@given(
    st.binary(max_size=300), st.sampled_from(["text/html", "text/plain", "", "application/xml"]), st.text(max_size=12)
)
def test_no_bytes_raise(body: bytes, content_type: str, charset: str) -> None:
    extract(body, content_type, charset, "https://site.example/")
