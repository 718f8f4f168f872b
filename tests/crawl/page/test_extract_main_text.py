"""The main text of a page: found within bounds, and never a reason for a page to fail."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest
from selectolax.lexbor import LexborHTMLParser

from headgate.crawl.page import extract as module
from headgate.crawl.page.extract import extract, main_text
from headgate.crawl.page.tree import walk

LONG = "This sentence is long enough to be taken for the text of a page by any reader, and it says nothing. "
PAGE = f"<html><body><nav><a href=/>Home</a></nav><main><p>{LONG * 4}</p></main><footer>Imprint</footer></body></html>"
ALL = f"Home\n{LONG.strip()} {LONG * 2}{LONG.strip()}\nImprint"


def find(markup: str) -> str:
    root = LexborHTMLParser(markup).root
    assert root is not None
    return main_text(markup, walk(root))


def read(markup: str) -> str:
    found = extract(markup.encode(), "text/html", "utf-8", "https://site.example/")
    assert found.problem == ""
    return found.text


def test_the_text_is_found_without_what_stands_around_it() -> None:
    assert find(PAGE) == read(PAGE) == (LONG * 4).strip()


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("tag", ["div class=entry", "article"])
def test_all_entries_of_a_page_are_kept(tag: str, length: int) -> None:
    entries = "".join(f"<{tag}><h2>Part</h2><p>{n} {LONG * length}</p></{tag.split()[0]}>" for n in range(8))
    text = read(f"<html><body><nav><a href=/>Home</a></nav><div id=content>{entries}</div></body></html>")
    assert [n for n in range(8) if f"{n} {LONG.strip()}" not in text] == []


def test_a_page_without_one_is_all_that_is_visible() -> None:
    assert find("<p>one") == ""
    assert read("<p>one") == "one"


@pytest.mark.parametrize(
    ("bound", "value"), [("LONGEST_MARKUP", 100), ("MOST_TAGS", 5), ("DEEPEST", 2), ("MOST_TOTAL_DEPTH", 10)]
)
def test_out_of_bounds_all_that_is_visible_is_kept(monkeypatch: pytest.MonkeyPatch, bound: str, value: int) -> None:
    monkeypatch.setattr(module, bound, value)
    assert read(PAGE) == ALL


@pytest.mark.parametrize("error", [ValueError("of the page's words"), RecursionError(), MemoryError(), KeyError(1)])
def test_an_extractor_that_raises_costs_no_page(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def broken(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(module, "_trafilatura", lambda: broken)
    with caplog.at_level(logging.DEBUG):
        assert read(PAGE) == ALL
    assert type(error).__name__ in caplog.text
    assert "words" not in caplog.text


def test_it_is_quiet_and_leaves_the_programs_own_use_alone(caplog: pytest.LogCaptureFixture) -> None:
    import trafilatura

    empty = "<html><body></body></html>"
    with caplog.at_level(logging.DEBUG):
        assert find(empty) == ""
        assert caplog.text == ""
        assert trafilatura.extract(empty) is None
        assert "trafilatura" in caplog.text


def test_threads_find_the_same() -> None:
    pages = [PAGE.replace("nothing", f"nothing of number {n}") for n in range(40)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(find, pages)) == [find(page) for page in pages]
