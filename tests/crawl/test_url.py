"""One spelling per page; what is no page's address is nothing, with a reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.crawl.url import LONGEST_URL, canonical, host_of, origin_of, trap_shape, unfit

BASE = "http://host/a/b/c?q=1"


@pytest.mark.parametrize(
    ("written", "stands_for"),
    [
        ("HTTP://Example.COM/", "http://example.com/"),
        ("http://example.com", "http://example.com/"),
        ("http://example.com.", "http://example.com/"),
        ("http://example.com:80/", "http://example.com/"),
        ("https://example.com:443/", "https://example.com/"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("http://example.com:/", "http://example.com/"),
        ("http://example.com:0080/", "http://example.com/"),
        ("http://example.com:8080/", "http://example.com:8080/"),
        ("http://example.com/#part", "http://example.com/"),
        ("http://example.com?", "http://example.com/"),
        ("http://example.com?b=2&a=1", "http://example.com/?b=2&a=1"),
        ("http://example.com/%7ejo/%c3%a9", "http://example.com/~jo/%C3%A9"),
        ("http://example.com/é ü", "http://example.com/%C3%A9%20%C3%BC"),
        ("http://example.com/?q=é ü", "http://example.com/?q=%C3%A9%20%C3%BC"),
        ("http://example.com/?q=a+b%20c", "http://example.com/?q=a+b%20c"),
        ("http://example.com/100%", "http://example.com/100%25"),
        ("http://example.com/a%2Fb%3Fc", "http://example.com/a%2Fb%3Fc"),
        ("http://example.com/a/./b/../c", "http://example.com/a/c"),
        ("http://example.com/a/%2e%2E/c", "http://example.com/c"),
        ("http://example.com/../../c", "http://example.com/c"),
        ("http://example.com/a/..", "http://example.com/"),
        ("http://example.com/a/.", "http://example.com/a/"),
        ("http://example.com/.well-known/x", "http://example.com/.well-known/x"),
        ("http://example.com//a//b", "http://example.com//a//b"),
        ("  http://exa\nmple.com/a\tb \r\n", "http://example.com/ab"),
        ("http:\\\\example.com\\a\\b?c\\d", "http://example.com/a/b?c%5Cd"),
        ("http://BÜCHER.example/", "http://xn--bcher-kva.example/"),
        ("http://bücher。example/", "http://xn--bcher-kva.example/"),
        ("http://☃.example/", "http://xn--n3h.example/"),
        ("http://a_b-c.example/", "http://a_b-c.example/"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/"),
        ("http://[2001:DB8:0:0::1]:80/", "http://[2001:db8::1]/"),
        ("http://example.com/\udcff", "http://example.com/%FF"),
    ],
)
def test_an_address_has_one_spelling(written, stands_for):
    assert canonical(written) == stands_for
    assert unfit(written) is None


@pytest.mark.parametrize(
    ("link", "stands_for"),
    [
        ("", "http://host/a/b/c?q=1"),
        ("#part", "http://host/a/b/c?q=1"),
        ("?x", "http://host/a/b/c?x"),
        ("?", "http://host/a/b/c"),
        ("d", "http://host/a/b/d"),
        ("d/e", "http://host/a/b/d/e"),
        ("./d", "http://host/a/b/d"),
        (".", "http://host/a/b/"),
        ("..", "http://host/a/"),
        ("../d", "http://host/a/d"),
        ("../../../d", "http://host/d"),
        ("/d", "http://host/d"),
        ("//other/d", "http://other/d"),
        ("https://other/d", "https://other/d"),
        ("d?x=http://y/z", "http://host/a/b/d?x=http://y/z"),
    ],
)
def test_a_link_is_read_on_its_page(link, stands_for):
    assert canonical(link, BASE) == stands_for


def test_a_page_without_a_path_is_a_folder():
    assert canonical("d", "http://host") == "http://host/d"


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("utm_source=a&utm_medium=b&id=7", "?id=7"),
        ("id=7&UTM_Campaign=x", "?id=7"),
        ("gclid=a&fbclid=b&msclkid=c&dclid=d&yclid=e&twclid=f&ttclid=g&gbraid=h&wbraid=i", ""),
        ("mc_cid=1&mc_eid=2&_ga=3&_gl=4&igshid=5&mkt_tok=6&srsltid=7", ""),
        ("PHPSESSID=abc&page=2", "?page=2"),
        ("jsessionid=1&a", "?a"),
        ("sid=0123456789abcdef0123&a=1", "?a=1"),
        ("sid=12&session_id=keynote", "?sid=12&session_id=keynote"),
        ("z=1&a=2&m=3", "?z=1&a=2&m=3"),
        ("a=1&&b=2&", "?a=1&b=2"),
        ("a=1&a=2", "?a=1&a=2"),
        ("clid=3&idclid=4", "?clid=3&idclid=4"),
    ],
)
def test_parameters_about_the_visitor_are_dropped_and_the_others_keep_their_order(query, kept):
    assert canonical(f"http://host/?{query}") == f"http://host/{kept}"


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/x;jsessionid=0F3A", "/x"),
        ("/x;JSESSIONID=0F3A/y", "/x/y"),
        ("/x;v=1;jsessionid=0F3A;w=2", "/x;v=1;w=2"),
        ("/(S(lit3py55t21z5v55vlm25s55))/o.aspx", "/o.aspx"),
        ("/(x)/o", "/(x)/o"),
    ],
)
def test_sessions_in_the_path_are_dropped(path, kept):
    assert canonical(f"http://host{path}") == f"http://host{kept}"


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("mailto:jo@host", "not http or https"),
        ("javascript:void(0)", "not http or https"),
        ("ftp://host/", "not http or https"),
        ("C:\\x", "not http or https"),
        ("//host/", "no scheme"),
        ("page.html", "no scheme"),
        ("", "no scheme"),
        ("http:", "no host"),
        ("http://", "no host"),
        ("http:page", "no host"),
        ("http://:80/", "invalid host or port"),
        ("http://jo:pw@host/", "user name or password"),
        ("http://host:x/", "invalid host or port"),
        ("http://host:-1/", "invalid host or port"),
        ("http://host:99999/", "invalid port"),
        ("http://host:٣/", "invalid host or port"),
        ("http://ho st/", "invalid host"),
        ("http://ho%73t/", "invalid host"),
        ("http://a..b/", "invalid host"),
        ("http://" + "a" * 64 + ".example/", "invalid host"),
        ("http://" + "a." * 130 + "example/", "invalid host"),
        ("http://[::1/", "invalid host"),
        ("http://[::g]/", "invalid IPv6"),
        ("http://0x7f.1/", "unusual notation"),
        ("http://1.2.3/", "unusual notation"),
        ("http://example.08/", "unusual notation"),
        ("http://host/\x00x", "control characters"),
        ("http://host/\ud800", "incomplete character"),
        ("http://host/" + "a" * LONGEST_URL, "longer than"),
        ("http://host/" + "é" * 500, "longer than"),
    ],
)
def test_what_cannot_be_crawled_says_why(written, why):
    assert canonical(written) is None
    assert why in unfit(written)


def test_the_reason_never_holds_the_password():
    assert "hunter2" not in unfit("http://jo:hunter2@host/")


CHARACTERS = st.text(st.sampled_from("http:/\\?#%&=;.@[]()2eEfF0aé\t _-jsessionid"), max_size=60)


@given(CHARACTERS | st.text(max_size=60), st.sampled_from(["http://host/", BASE, "https://[::1]:8/x;y"]))
def test_a_canonical_address_is_its_own_and_is_written_in_plain_ascii(link, base):
    address = canonical(link, base)
    assert (address is None) == (unfit(link, base) is not None)
    if address is not None:
        assert canonical(address) == address
        assert address.isascii()
        assert address.isprintable()
        assert not set(address) & set(' "<>\\^`{|}#')
        assert len(address) <= LONGEST_URL


@given(st.text(max_size=40))
def test_no_link_leaves_the_base_without_saying_so(text):
    """What is no address of its own stays on the host of the page."""
    address = canonical("/x" + text, "http://host/")
    assert address is None or origin_of(address) == "http://host"


@pytest.mark.parametrize(
    ("url", "host", "origin"),
    [
        ("http://host/a/b", "host", "http://host"),
        ("https://host:8443/", "host:8443", "https://host:8443"),
        ("http://[::1]:8000/x?y=/z", "[::1]:8000", "http://[::1]:8000"),
        ("http://host/?u=http://other/", "host", "http://host"),
    ],
)
def test_host_and_origin(url, host, origin):
    assert (host_of(url), origin_of(url)) == (host, origin)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/calendar/2031/02", "/calendar/1999/11"),
        ("/calendar?month=2&year=2031", "/calendar?year=1&month=12"),
        ("/p/3f2504e0-4f89-11d3-9a0c-0305e82c3301", "/p/a3bb189e-8bf9-3888-9912-ace4e6543002"),
        ("/p/0123456789abcdef01", "/p/ffeeddccbbaa99887766"),
        ("/a/b/a/b", "/a/b/a/b/a/b/a/b"),
        ("/x/x/y", "/x/x/x/x/x/y"),
        ("/page-7.html", "/page-12345.html"),
    ],
)
def test_endless_pages_share_a_shape(one, other):
    assert trap_shape(f"http://host{one}") == trap_shape(f"http://host{other}")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/about", "/contact"),
        ("/wiki/Gate", "/wiki/Head"),
        ("/index.php?title=Gate", "/index.php?title=Head"),
        ("/a/b/c", "/a/c/b"),
        ("/ab", "/a/b"),
        ("/aa", "/a"),
        ("/ab/abc", "/ab/c"),
    ],
)
def test_different_pages_have_different_shapes(one, other):
    assert trap_shape(f"http://host{one}") != trap_shape(f"http://host{other}")
