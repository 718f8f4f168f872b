"""What is read of pages as they really are: the text one came for, and nothing around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.crawl.page import extract as extracting
from headgate.crawl.page.extract import Extracted, Link, extract
from headgate.crawl.page.metadata import robots_words

PAGES = Path(__file__).parent / "pages"
WHERE = "https://site.example/x/page.html"


def page(name: str) -> Extracted:
    return extract((PAGES / f"{name}.html").read_bytes(), "text/html", None, WHERE)


def read(markup: str, charset: str | None = "utf-8") -> Extracted:
    return extract(markup.encode(), "text/html", charset, WHERE)


LONG = "This sentence is long enough to be taken for the text of a page by anybody who reads it, and it says nothing. "

# ---------------------------------------------------------------------- whole pages


@pytest.mark.parametrize(
    ("name", "text", "around"),
    [
        (
            "news",
            ["ending nine years of argument over who", "- Two stops: 7 million", "Residents of the quarter"],
            ["cookies", "Sport", "newsletter", "not to be read", "Storm warning", "Imprint", "Share"],
        ),
        (
            "docs",
            ["The wait grows with each attempt", "return get(url)", "| base | 0.2 |", "Wrap the call."],
            ["Installation", "Copyright"],
        ),
        ("forum", ["nine volts", "That is the fuse.", "It was the fuse, thank you!"], []),
        ("product", ["fasst fünf Liter", "900 g"], ["Warenkorb", "Lieferant 77", "Spaten", "AGB"]),
    ],
)
def test_a_page_is_its_text_without_what_stands_around_it(name: str, text: list[str], around: list[str]) -> None:
    found = page(name)
    assert [part for part in text if part not in found.text] == []
    assert [part for part in around if part in found.text] == []
    assert found.problem == ""


def test_a_news_article_says_what_it_is() -> None:
    news = page("news")
    assert news.title == "Harbour line gets two more stops | The Daily Ferry"
    assert news.language == "en-GB"
    assert news.description.startswith("After nine years of argument")
    assert news.canonical == "https://site.example/2026/02/harbour-line"
    assert news.published == "2026-02-03T08:15:00+00:00"
    assert news.author == "Maren Lindqvist"
    assert news.problem == ""


def test_links_are_found_in_every_corner_of_a_page() -> None:
    links = {link.url: link for link in page("news").links}
    assert links["https://site.example/sport"].text == "Sport"
    assert links["https://site.example/privacy"].text == "Privacy policy"
    assert links["https://site.example/imprint"] == Link("https://site.example/imprint", "nofollow", "Imprint")
    assert links["https://site.example/people/maren-lindqvist"].rel == "author"
    assert links["https://site.example/2025/12/fares"].text == "Fares rise again"
    assert len(links) == 17


def test_documentation_leads_on_to_the_next_chapter() -> None:
    links = page("docs").links
    assert Link("https://site.example/x/timeouts.html", "", "Timeouts") in links
    assert "https://site.example/x/limits.html" in [link.url for link in links]


def test_facts_are_found_where_shops_put_them() -> None:
    product = page("product")
    assert product.language == "de-AT"
    assert product.description == "Eine Kanne, die nicht tropft."
    assert product.published == "2025-05-01"
    assert product.author == "Eva Grün"
    assert product.robots_meta == {"noindex"}


# ---------------------------------------------------------------------- charsets

RUSSIAN = "Трамвай пойдёт до северной гавани уже осенью следующего года, решил в среду городской совет."
JAPANESE = "市議会は火曜日、港線を二駅延伸することを決めた。工事は四月に始まり、来年の秋に開業する予定である。"


@pytest.mark.parametrize(
    ("text", "codec", "declared", "written"),
    [
        (RUSSIAN, "windows-1251", None, '<meta charset="windows-1251">'),
        (RUSSIAN, "koi8-r", "koi8-r", ""),
        (RUSSIAN, "utf-16", None, ""),
        (RUSSIAN, "utf-16-be", "utf-16be", ""),
        (RUSSIAN, "utf-8-sig", "windows-1251", ""),
        (
            JAPANESE,
            "shift_jis",
            None,
            '<META http-equiv=Content-Type content="text/html; charset=Shift_JIS">',
        ),
        (JAPANESE, "euc_jp", "EUC-JP", ""),
        (JAPANESE, "iso2022_jp", "iso-2022-jp", ""),
        (JAPANESE, "utf-8", None, ""),
        ("中文网页的正文内容在这里。" * 5, "gbk", None, "<meta charset=gb2312>"),
        ("“Grüße” – für 5 €" * 5, "cp1252", "ISO-8859-1", ""),
    ],
)
def test_a_page_is_read_in_its_own_charset(text: str, codec: str, declared: str | None, written: str) -> None:
    body = f"<!doctype html><html><head>{written}<title>{text[:5]}</title></head><body><p>{text}</p></body></html>"
    found = extract(body.encode(codec), "text/html", declared, WHERE)
    assert (found.title, found.text, found.problem) == (text[:5], text, "")


@pytest.mark.parametrize(
    ("body", "declared", "text", "problem"),
    [
        (
            "<p>Grüße aus dem Norden</p>".encode(),
            "iso-8859-1",
            "Grüße aus dem Norden",
            "declares windows-1252 but is utf-8",
        ),
        (RUSSIAN.encode("cp1251") + b"<meta charset=cp1251>", "utf-8", RUSSIAN, "declares utf-8 but is windows-1251"),
        (b"<p>Gr\xfc\xdfe</p>", "utf-8", "Gr\ufffd\ufffde", "not valid utf-8"),
        (b"<p>Gr\xfc\xdfe</p>", None, "Grüße", "read as windows-1252"),
        (RUSSIAN.encode()[:-2], None, RUSSIAN[:-2], "not valid utf-8"),
        (b"<p>plain words</p>", "klingon", "plain words", "unknown charset, 'klingon'"),
        (b"<p>plain words</p>", "hex", "plain words", "unknown charset, 'hex'"),
        ("<p>wide words</p>".encode("utf-16-le"), None, "wide words", "is UTF-16 without declaring it"),
        (b"<meta charset=utf-16><p>narrow words</p>", None, "narrow words", ""),
    ],
)
def test_a_false_claim_about_the_charset_is_seen_through_and_named(
    body: bytes, declared: str | None, text: str, problem: str
) -> None:
    found = extract(body, "text/html", declared, WHERE)
    assert text in found.text
    assert problem in found.problem
    assert bool(problem) is bool(found.problem)


# ---------------------------------------------------------------------- text


def test_words_in_bold_stay_whole() -> None:
    assert read("<p>un<b>believ</b>able, <font color=red>really</font></p>").text == "unbelievable, really"


def test_line_ends_of_the_source_are_spaces_and_br_is_a_line_end() -> None:
    assert read("<p>one\n  two<br>three</p>").text == "one two\nthree"


def test_entities_are_letters() -> None:
    assert read("<p>Tom &amp; J&eacute;r&#244;me &lt;3 &nonsense;</p>").text == "Tom & Jérôme <3 &nonsense;"


def test_a_page_of_links_is_a_page_of_links() -> None:
    assert (
        read("<ul><li><a href=/1>One</a><li><a href=/2>Two</a><li><a href=/3>Three</a></ul>").text
        == "- One\n- Two\n- Three"
    )


def test_a_page_that_is_all_sidebar_is_read_all_the_same() -> None:
    assert LONG.strip() in read(f'<div class="sidebar"><p>{LONG}</p></div>').text


def test_one_long_article_stands_for_itself_among_teasers() -> None:
    teasers = "".join(f"<article><a href=/{n}>Teaser {n}</a></article>" for n in range(5))
    assert "Teaser" not in read(f"<main><article><p>{LONG * 5}</p></article>{teasers}</main>").text


@pytest.mark.parametrize("hidden", ["hidden", "style='display:none'", "aria-hidden=true", "class='sr-only'"])
def test_what_is_not_shown_is_not_read_but_its_links_are(hidden: str) -> None:
    found = read(f"<p>{LONG}</p><div {hidden}>secret <a href=/s>door</a></div>")
    assert "secret" not in found.text
    assert [link.url for link in found.links] == ["https://site.example/s"]


def test_scripts_styles_and_forms_are_not_text() -> None:
    found = read(
        f"<p>{LONG}</p><script>var a = 1</script><style>p {{}}</style><textarea>t</textarea><select><option>o</select>"
    )
    assert found.text == LONG.strip()


def test_a_class_of_the_whole_page_does_not_hide_it() -> None:
    assert (
        LONG.strip()
        in read(f"<div class='layout with-sidebar has-cookie-notice'><main><p>{LONG}</p></main></div>").text
    )


def test_text_is_bounded() -> None:
    found = read("<p>" + "word " * 400_000 + "</p>")
    assert len(found.text) == 1_000_000
    assert "the rest is dropped" in found.problem


# ---------------------------------------------------------------------- links


def test_links_are_relative_to_the_base_the_page_names() -> None:
    assert read("<base href='/deep/er/'><a href=x>x</a>").links[0].url == "https://site.example/deep/er/x"


@pytest.mark.parametrize(
    "href", ["#top", "mailto:a@b.example", "javascript:void(0)", "tel:1", "data:,x", "http://[", "ftp://a/"]
)
def test_what_cannot_be_crawled_is_no_link(href: str) -> None:
    assert read(f"<a href='{href}'>x</a>").links == ()


def test_an_address_is_one_link_with_the_first_text_and_followed_if_any_may_be() -> None:
    links = read("<a rel=nofollow href=/a><img></a><a href='/a#part'>Text</a><a href=/a>Other</a>").links
    assert links == (Link("https://site.example/a", "", "Text"),)


def test_frames_maps_and_refreshes_are_links() -> None:
    found = read(
        "<meta http-equiv=refresh content='0; url=/new'><map><area href=/m alt=Map></map><iframe src=/f></iframe>"
    )
    assert [(link.url[20:], link.rel) for link in found.links] == [("/m", ""), ("/f", ""), ("/new", "refresh")]


def test_links_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extracting, "MOST_LINKS", 10)
    found = read("".join(f"<a href=/{n}>{n}</a>" for n in range(20)))
    assert len(found.links) == 10
    assert "more than 10 links" in found.problem


# ---------------------------------------------------------------------- facts and other kinds


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("noindex", {"noindex"}),
        ("NONE", {"noindex", "nofollow"}),
        ("index, NoFollow", {"nofollow"}),
        ("all", set()),
        ("", set()),
    ],
)
def test_words_for_robots(value: str, words: set[str]) -> None:
    assert robots_words(value) == words
    assert read(f"<meta name=robots content='{value}'>").robots_meta == words


def test_words_for_this_robot_count_too() -> None:
    assert read("<meta name=headgate content=noindex><meta name=otherbot content=nofollow>").robots_meta == {"noindex"}


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ("<title> A \n title </title>", "A title"),
        ("<title>What <b> does</title>", "What <b> does"),
        ("<title></title><meta property=og:title content='From the graph'>", "From the graph"),
        ("<svg><title>icon</title></svg><h1>From the <i>heading</i></h1>", "From the heading"),
    ],
)
def test_a_title_is_found_somewhere(head: str, title: str) -> None:
    assert read(head).title == title


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "text/csv", ""])
def test_what_is_no_page_is_passed_on(kind: str) -> None:
    found = extract('{"a": "ü <b>"}\n'.encode(), kind, "utf-8", WHERE)
    assert (found.text, found.links, found.title) == ('{"a": "ü <b>"}\n', (), "")


def test_plain_text_is_bounded() -> None:
    found = extract(b"word " * 300_000, "text/plain", "utf-8", WHERE)
    assert len(found.text) == 1_000_000
    assert "1,500,000 characters" in found.problem


def test_no_more_of_a_body_is_looked_at_than_the_bound_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extracting, "LARGEST", 20)
    found = read("<p>one two three four five")
    assert found.text == "one two three fou"
    assert "has 26 bytes; only the first 20 are read" in found.problem


def test_what_is_hardly_text_is_named() -> None:
    assert "is hardly text" in extract(bytes(range(128, 256)) * 9, "text/html", "utf-8", WHERE).problem


def test_xml_is_its_text() -> None:
    assert (
        extract(b"<?xml version='1.0'?><a><b>one</b><c>two</c></a>", "application/xml", None, WHERE).text == "one\ntwo"
    )


@pytest.mark.parametrize("kind", ["text/plain", "", "application/xml", "application/octet-stream"])
def test_a_page_is_known_by_its_beginning(kind: str) -> None:
    assert extract(b"\n<!-- x -->\n<!DOCTYPE html><title>T</title><p>x", kind, None, WHERE).title == "T"
