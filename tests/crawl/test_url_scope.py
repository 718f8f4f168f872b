"""What belongs to a crawl, and the sentence for what does not."""

import pytest

from headgate.crawl.url import DEEPEST_PATH, DEEPEST_SITEMAP, Scope
from headgate.errors import ConfigError


def test_other_hosts_do_not_belong():
    scope = Scope(hosts=frozenset(("example.com", "other.example:8080")))
    assert scope.refuses("https://example.com/x", 1) is None
    assert scope.refuses("http://other.example:8080/x", 1) is None
    assert scope.refuses("http://other.example/x", 1) == "is on another host"
    assert scope.refuses("http://sub.example.com/x", 1) == "is on another host"
    assert scope.refuses("http://notexample.com/x", 1) == "is on another host"


@pytest.mark.parametrize("host", ["example.com", "www.example.com"])
@pytest.mark.parametrize("url", ["http://example.com/x", "http://www.example.com/x"])
def test_www_is_no_other_host(host, url):
    assert Scope(hosts=frozenset((host,))).refuses(url, 1) is None


def test_subdomains_count_when_asked_for():
    scope = Scope(hosts=frozenset(("example.com:8000",)), subdomains=True)
    assert scope.refuses("http://a.b.example.com:8000/", 1) is None
    assert scope.refuses("http://a.b.example.com/", 1) == "is on another host"
    assert scope.refuses("http://badexample.com:8000/", 1) == "is on another host"


def test_no_hosts_is_every_host():
    assert Scope().refuses("http://anywhere.example/", 5) is None


def test_depth_is_links_from_a_seed():
    scope = Scope(max_depth=2)
    assert scope.refuses("http://h/", 2) is None
    assert scope.refuses("http://h/", 3) == "is 3 links from a start URL (limit 2)"


@pytest.mark.parametrize(
    ("pattern", "url", "fits"),
    [
        ("/blog/*", "http://h/blog/1", True),
        ("/blog/*", "http://h/blog/1?x=2", True),
        ("/blog/*", "http://h/x/blog/1", False),
        ("/blog", "http://h/blog/1", False),
        ("http://h/*", "http://h/blog/1", True),
        ("http://h/*", "https://h/blog/1", False),
        ("*.pdf", "http://h/x/y.pdf", True),
        ("*.pdf", "http://h/x/y.pdf?v=1", False),
        ("/page?", "http://h/page7", True),
        ("/a[b]", "http://h/ab", False),
        ("re:/[0-9]{4}/", "http://h/x/2024/y", True),
        ("re:/[0-9]{4}/", "http://h/x/202/y", False),
        ("re:^https:", "http://h/", False),
    ],
)
def test_patterns_say_what_to_include_and_what_to_exclude(pattern, url, fits):
    assert (Scope(include=(pattern,)).refuses(url, 1) is None) is fits
    assert (Scope(exclude=(pattern,)).refuses(url, 1) == "matches an exclude pattern") is fits


def test_a_seed_needs_to_match_no_pattern_but_may_be_excluded():
    scope = Scope(include=("/blog/*",), exclude=("/private*",))
    assert scope.refuses("http://h/", 0) is None
    assert scope.refuses("http://h/", 1) == "matches no include pattern"
    assert scope.refuses("http://h/private", 0) == "matches an exclude pattern"


@pytest.mark.parametrize("path", ["/a/a/a", "/a/b/a/b/a/b", "/x/a/b/c/a/b/c/a/b/c/y", "/a/b/c/d/e" * 3])
def test_folders_that_link_to_themselves_are_a_trap(path):
    assert Scope().refuses(f"http://h{path}", 1) == "repeats the same folders three times in a row"


@pytest.mark.parametrize("path", ["/a/a", "/a/b/a/b", "/a/ab/abc", "/2011/11/11", "/aaa/aa/a", "/a/b/a/c/a/d"])
def test_folders_that_only_look_alike_are_none(path):
    assert Scope().refuses(f"http://h{path}", 1) is None


def test_a_path_is_not_deeper_than_folders_are():
    def path(depth):
        return "http://h" + "".join(f"/{name:c}" for name in range(97, 97 + depth))

    assert Scope().refuses(path(DEEPEST_PATH), 1) is None
    assert Scope().refuses(path(DEEPEST_PATH + 1), 1) == "is more than 20 folders deep"


def test_sitemaps_that_name_one_another_are_not_followed_for_ever():
    assert Scope().refuses("http://h/map.xml", -DEEPEST_SITEMAP) is None
    assert Scope().refuses("http://h/map.xml", -DEEPEST_SITEMAP - 1) == "is a sitemap nested more than 5 levels deep"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"max_depth": -1}, "max_depth=-1"),
        ({"max_depth": True}, "max_depth=True"),
        ({"hosts": frozenset()}, "hosts=0"),
        ({"include": ("re:(",)}, "is not a valid regular expression"),
        ({"exclude": ("",)}, "pattern of 0 characters"),
        ({"exclude": ("x" * 3000,)}, "pattern of 3,000 characters"),
        ({"include": "/blog/*"}, "include"),
    ],
)
def test_settings_are_checked(settings, says):
    with pytest.raises(ConfigError, match=says.replace("(", r"\(")):
        Scope(**settings)
