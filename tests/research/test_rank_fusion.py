"""When two results are one work, and which stands first."""

import random
import time
from datetime import UTC, datetime

import pytest

from headgate.providers import SearchResult
from headgate.research import merge
from headgate.research.rank_fusion import address_key, doi_key, title_key

TITLE = "Adaptive rate limiting of distributed systems"


def found(provider, url, title="", year=None, **extra):
    published_at = datetime(year, 6, 1, tzinfo=UTC) if year else None
    return SearchResult(title=title, url=url, provider=provider, published_at=published_at, extra=extra)


def urls(findings):
    return [finding.url for finding in findings]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://example.org/a", "https://example.org/a"),
        ("https://www.Example.org:443/a/", "https://example.org/a"),
        ("https://example.org/a?utm_source=x&utm_medium=y&gclid=1&fbclid=2", "https://example.org/a"),
        ("https://example.org/a?b=2&a=1", "https://example.org/a?a=1&b=2"),
        ("https://example.org/a#part", "https://example.org/a"),
        ("https://example.org/%7Eme/%C3%A9", "https://example.org/~me/é"),
        ("https://bücher.example/a", "https://xn--bcher-kva.example/a"),
        ("https://doi.org/10.5555/ABC", "http://dx.doi.org/10.5555/abc"),
        ("https://arxiv.org/pdf/1706.03762v5", "https://arxiv.org/abs/1706.03762"),
        ("https://arxiv.org/pdf/1706.03762.pdf", "https://doi.org/10.48550/arXiv.1706.03762"),
        ("https://arxiv.org/abs/hep-th/9901001v2", "https://export.arxiv.org/pdf/hep-th/9901001"),
    ],
)
def test_one_page_has_one_spelling(one, other):
    assert address_key(one) == address_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://example.org/a", "https://example.org/A"),
        ("https://example.org/a", "https://example.com/a"),
        ("https://example.org/a?page=1", "https://example.org/a?page=2"),
        ("https://example.org:8080/a", "https://example.org/a"),
        ("https://arxiv.org/abs/1706.03762", "https://arxiv.org/abs/1706.03763"),
        ("https://arxiv.org/list/cs/new", "https://arxiv.org/list/math/new"),
    ],
)
def test_two_pages_have_two(one, other):
    assert address_key(one) != address_key(other)


@pytest.mark.parametrize("odd", ["https://[", "https://" + "a" * 9000, "https://example.org/%zz", "https://x/?%"])
def test_odd_addresses_are_names_too(odd):
    assert address_key(odd)


def test_a_doi_is_found_wherever_it_stands():
    assert doi_key("https://doi.org/10.5555/ABC.1") == doi_key("doi:10.5555/abc.1") == "doi:10.5555/abc.1"
    assert doi_key("version 10.5") == ""


@pytest.mark.parametrize(
    "title",
    [
        "ADAPTIVE Rate-Limiting of Distributed Systems.",
        "[PDF] Adaptive rate limiting of distributed systems",
        "The adaptive rate limiting of distributed systems",
        "Ádaptive rate limiting\u00a0of distributed systems",
        "Adaptive rate limiting of distributed systems | Example",
    ],
)
def test_a_title_is_the_same_however_it_is_written(title):
    plain = found("a", "https://example.org/1", TITLE)
    assert title_key(found("b", "https://example.org/2", title)) == title_key(plain)


def test_the_name_of_another_site_belongs_to_the_title():
    one, other = (
        title_key(found("a", f"https://{host}/", f"{TITLE} - BBC")) for host in ("bbc.example", "cnn.example")
    )
    assert one != other


class TestOneWork:
    def test_by_doi_under_two_addresses(self):
        papers = [found("s2", "https://s2.example/1", doi="10.5555/1")], [found("cr", "https://doi.org/10.5555/1")]
        (only,) = merge(papers)
        assert dict(only.places) == {"s2": 1, "cr": 1}

    def test_by_title_if_one_is_a_published_work(self):
        web = found("web", "https://example.org/", TITLE)
        assert len(merge([[web], [found("s2", "https://s2.example/1", TITLE, authors=["A. Smith"])]])) == 1

    def test_not_by_title_alone(self):
        assert len(merge([[found("a", "https://a.example/", TITLE)], [found("b", "https://b.example/", TITLE)]])) == 2

    def test_not_by_a_title_that_many_works_have(self):
        papers = [found(name, f"https://{name}.example/", "Introduction", authors=["A. Smith"]) for name in "ab"]
        assert len(merge([[paper] for paper in papers])) == 2

    @pytest.mark.parametrize(
        ("one", "other", "works"),
        [
            ({"year": 2019, "doi": "10.5555/1"}, {"year": 2020}, 1),
            ({"year": 2017, "doi": "10.5555/1"}, {"year": 2020}, 2),
            ({"authors": ["Ann Smith"]}, {"authors": ["A. Smith", "B. Jones"]}, 1),
            ({"authors": ["Ann Smith"]}, {"authors": ["B. Jones"]}, 2),
            ({"doi": "10.5555/1"}, {"doi": "10.5555/2"}, 2),
            ({"doi": "10.5555/1", "authors": ["A. Smith"]}, {"doi": "10.48550/arXiv.1", "authors": ["A. Smith"]}, 1),
            ({"authors": "no list"}, {"doi": 5}, 2),
        ],
    )
    def test_by_title_unless_something_speaks_against_it(self, one, other, works):
        papers = [[found("a", "https://a.example/", TITLE, **one)], [found("b", "https://b.example/", TITLE, **other)]]
        assert len(merge(papers)) == works

    def test_a_page_between_two_works_of_one_title_does_not_make_them_one(self):
        papers = [found("s2", f"https://s2.example/{year}", TITLE, year, authors=["A. Smith"]) for year in (2010, 2020)]
        assert len(merge([papers, [found("web", "https://example.org/", TITLE)]])) == 2

    def test_what_two_share_with_a_third_is_one(self):
        one, other = found("a", "https://example.org/x"), found("b", "https://other.example/", doi="10.5555/1")
        both = found("c", "https://example.org/x", doi="10.5555/1")
        assert len(merge([[one], [other], [both]])) == 1


class TestOrder:
    def test_two_that_agree_beat_one_that_is_sure(self):
        a = [found("a", "https://only-a.example/"), found("a", "https://both.example/")]
        b = [found("b", "https://only-b.example/"), found("b", "https://both.example/")]
        best, *rest = merge([a, b])
        assert best.url == "https://both.example/"
        assert best.score == pytest.approx(2 / 62)
        assert urls(rest) == ["https://only-a.example/", "https://only-b.example/"]

    def test_a_provider_that_repeats_itself_counts_once(self):
        twice = [found("a", "https://x.example/"), found("a", "https://x.example/#again")]
        (only,) = merge([twice])
        assert (dict(only.places), only.score) == ({"a": 1}, pytest.approx(1 / 61))

    def test_no_provider_is_ahead_by_finding_more(self):
        many = [found("many", f"https://many.example/{number}") for number in range(50)]
        few = [found("few", "https://few.example/")]
        assert "https://few.example/" in urls(merge([many, few]))[:2]

    @pytest.mark.parametrize("seed", range(20))
    def test_the_same_results_give_the_same_works_in_the_same_order(self, seed):
        draw = random.Random(seed)
        lists = [
            [
                found(name, f"https://example.org/{draw.randrange(12)}", f"{TITLE} {draw.randrange(6)}", doi=doi)
                for doi in draw.sample(["10.5555/1", "10.5555/2", "", None, "10.5555/3"], 5)
            ]
            for name in "abcdef"
        ]
        findings = merge(lists)
        assert merge([list(results) for results in lists]) == findings
        assert sum(len(finding.results) for finding in findings) == 30
        assert len({finding.url for finding in findings}) == len(findings)
        assert [finding.score for finding in findings] == sorted((one.score for one in findings), reverse=True)

    @pytest.mark.no_cover
    def test_thousands_of_one_title_are_no_more_work_than_others(self):
        lists = [
            [found(name, f"https://{name}.example/{number}", TITLE, authors=["A. Smith"]) for number in range(1000)]
            for name in "abcdef"
        ]
        started_at = time.perf_counter()
        assert len(merge(lists)) == 1
        assert time.perf_counter() - started_at < 10.0  # real time: about half a second, and minutes if it were squared

    def test_nothing_is_nothing(self):
        assert merge([]) == merge([[], []]) == []


def test_a_finding_takes_each_word_from_the_first_that_has_it():
    bare = found("a", "https://x.example/")
    full = SearchResult(
        title="A title",
        url="https://x.example/",
        provider="b",
        snippet="About it.",
        content="It.",
        published_at=datetime(2020, 1, 1, tzinfo=UTC),
    )
    (only,) = merge([[bare], [full]])
    assert (only.title, only.snippet, only.content, only.published_at.year) == ("A title", "About it.", "It.", 2020)
    assert merge([[bare]])[0].title == "https://x.example/"
