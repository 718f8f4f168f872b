"""One spelling per page, so that a page is fetched once however it is linked; and which URLs belong to a crawl.

    written as                                          stands for
    --------------------------------------------------  --------------------------------
    HTTP://Example.COM:80/%7ejo/./a/../b#part           http://example.com/~jo/b
    /x?utm_source=mail&b=2&a=1  (on http://host/)       http://host/x?b=2&a=1
    https://BÜCHER.example/x;jsessionid=0F3A            https://xn--bcher-kva.example/x
    mailto:jo@host, http://jo:pw@host/, http://0x7f.1/  nothing: ``unfit`` says why

The form is RFC 3986's, with what browsers do where links are written carelessly: spaces around them and line breaks in
them do not count, a backslash is a slash, ``%2e`` is a dot. Parameters keep their order, for servers may care; those
that only say where a visitor comes from (tracking, sessions) are dropped, or every visit would find new URLs for
old pages.

``Scope`` says which URLs belong to a crawl. Its refusal is a clause for people, so that a page that is missing can be
explained. Patterns are globs, over the whole URL or, if they begin with a slash, over path and query: ``*`` is any
text, ``?`` any one character. ``re:`` before one makes it a regular expression that is searched for in the URL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

from ..checks import check, is_whole
from ..errors import ConfigError
from ..wire.urls import LONGEST_HOST, ascii_host, host_key

LONGEST_URL = 2_048
"""Characters; what is longer is a trap or a mistake far more often than a page."""
HOSTS_REMEMBERED = 4_096

_DEFAULT_PORTS = {"http": 80, "https": 443}
_EDGES = "".join(map(chr, range(33)))
_NOT_COUNTED = str.maketrans("", "", "\t\r\n")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PARTS = re.compile(r"(?s)(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?]*))?([^?]*)(?:\?(.*))?")
_LOCATION = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]+)(?::([0-9]{0,5}))?")
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")

_UNRESERVED = r"A-Za-z0-9._~-"
_IN_PATH = rf"!$&'()*+,;=:@/{_UNRESERVED}"
_PLAIN_PATH = re.compile(rf"[{_IN_PATH}]*")
_PLAIN_QUERY = re.compile(rf"[?{_IN_PATH}]*")
_TO_ESCAPE_IN_PATH = re.compile(rf"%[0-9A-Fa-f]{{2}}|[^{_IN_PATH}]")
_TO_ESCAPE_IN_QUERY = re.compile(rf"%[0-9A-Fa-f]{{2}}|[^?{_IN_PATH}]")
_IS_UNRESERVED = re.compile(rf"[{_UNRESERVED}]")

_SESSION_IN_PATH = re.compile(r"(?i);(?:jsessionid|phpsessid|sid)=[^/;]*|/\((?:[a-z]\([0-9a-z]{24}\))+\)(?=/)")
_TRACKING = re.compile(
    r"(?i)utm_\w*|(?:g|d|fb|tw|tt|y|ys|epi)clid|gclsrc|[gw]braid|msclkid|srsltid|igshid|_ga|_gl|mc_[ce]id|"
    r"li_fat_id|_hsenc|_hsmi|__hs\w{2,3}|mkt_tok|vero_id|oly_(?:anon|enc)_id|wickedid|rb_clickid|_openstat|ref_src"
)
_SESSION = re.compile(r"(?i)jsessionid|phpsessid|aspsessionid\w*|oscsid|zenid|cftoken")
_PERHAPS_SESSION = re.compile(r"(?i)(?:s|sid|session|session_?id|sess|sessid)=[0-9a-z_-]{16,}")

_LONG_ID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,}|[0-9]+")
_REPEATED = re.compile(r"((?:/[^/]+){1,4}?)\1+(?=/|$)")


class _UnfitError(Exception):
    """The message says why, without a word of the URL: it may hold a password."""


def canonical(url: str, base: str | None = None) -> str | None:
    """The one spelling of a URL that a page at ``base`` links to; None if it is none that can be crawled."""
    try:
        return _normal(url, base)
    except _UnfitError:
        return None


def unfit(url: str, base: str | None = None) -> str | None:
    """Why ``canonical`` has nothing to say, in a clause about the URL; None if it has."""
    try:
        _normal(url, base)
    except _UnfitError as why:
        return str(why)
    return None


host_of = host_key
"""Which server's limits count: ``host`` or ``host:port``, the limiter's key."""


def origin_of(url: str) -> str:
    """Scheme, host and port of a canonical URL: what may share a credential."""
    return "/".join(url.split("/", 3)[:3])


def trap_shape(url: str) -> str:
    """What endless pages of one kind have in common: numbers and long ids are ``#``, and repeated segments count once.

    ``/calendar/2031/02?day=3`` is ``/calendar/#/#?day=#``; ``/a/b/a/b/c`` is ``/a/b/+/c``. Of a canonical URL;
    without its host.
    """
    path, _, query = url[len(origin_of(url)) :].partition("?")
    shape = _LONG_ID.sub("#", _REPEATED.sub(r"\1/+", path))
    return f"{shape}?{'&'.join(sorted(_LONG_ID.sub('#', query).split('&')))}" if query else shape


def _normal(url: str, base: str | None) -> str:
    if len(url) > LONGEST_URL:
        raise _UnfitError(f"is longer than {LONGEST_URL:,} characters")
    text = url.strip(_EDGES).translate(_NOT_COUNTED).partition("#")[0]
    if _CONTROL.search(text):
        raise _UnfitError("contains control characters")
    scheme, authority, path, query = _split(text)
    if scheme is None:
        if base is None:
            raise _UnfitError("has no scheme")
        base_scheme, base_authority, base_path, base_query = _split(base.partition("#")[0])
        scheme = base_scheme or ""
        if authority is None:
            authority = base_authority
            if not path:
                path, query = base_path, base_query if query is None else query
            elif not path.startswith("/"):
                path = f"{base_path.rpartition('/')[0]}/{path}"
    scheme = scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise _UnfitError("is not http or https")
    place = _location(authority or "", _DEFAULT_PORTS[scheme])
    normal = f"{scheme}://{place}{_path(path)}{_query(query)}"
    if len(normal) > LONGEST_URL:
        raise _UnfitError(f"is longer than {LONGEST_URL:,} characters")
    return normal


def _split(text: str) -> tuple[str | None, str | None, str, str | None]:
    """Scheme, authority, path and query; a backslash before the query is a slash, as browsers have it."""
    if "\\" in text:
        before, mark, query = text.partition("?")
        text = before.replace("\\", "/") + mark + query
    found = _PARTS.fullmatch(text)
    assert found is not None  # the pattern takes any text
    return found[1], found[2], found[3], found[4]


@lru_cache(maxsize=HOSTS_REMEMBERED)
def _location(authority: str, default_port: int) -> str:
    """Host and port in one spelling."""
    if "@" in authority:
        raise _UnfitError("contains a user name or password")
    found = _LOCATION.fullmatch(authority)
    if found is None:
        raise _UnfitError("has no host" if not authority.strip(":") else "has an invalid host or port")
    host = _ipv6(found[1][1:-1]) if found[1].startswith("[") else _name(found[1])
    port = int(found[2]) if found[2] else default_port
    if not 1 <= port <= 65_535:
        raise _UnfitError("has an invalid port")
    return host if port == default_port else f"{host}:{port}"


def _ipv6(text: str) -> str:
    try:
        if "%" not in text:
            return f"[{IPv6Address(text).compressed}]"
    except AddressValueError:
        pass
    raise _UnfitError("has an invalid IPv6 address")


def _name(name: str) -> str:
    host = name if name.isascii() else ascii_host(name)
    if host is None:
        raise _UnfitError("has a host that cannot be encoded in ASCII")
    host = host.lower().removesuffix(".")
    if len(host) > LONGEST_HOST or not _NAME.fullmatch(host):
        raise _UnfitError("has an invalid host")
    if _ENDS_IN_NUMBER.fullmatch(host) and not _IPV4.fullmatch(host):
        raise _UnfitError("has an IPv4 address in an unusual notation")
    return host


def _path(path: str) -> str:
    if not _PLAIN_PATH.fullmatch(path):
        path = _TO_ESCAPE_IN_PATH.sub(_escape, path)
    path = _SESSION_IN_PATH.sub("", path)
    return _without_dots(path) if "/." in path else path or "/"


def _without_dots(path: str) -> str:
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def _query(query: str | None) -> str:
    if not query:
        return ""
    if not _PLAIN_QUERY.fullmatch(query):
        query = _TO_ESCAPE_IN_QUERY.sub(_escape, query)
    kept = "&".join(part for part in query.split("&") if part and not _is_about_the_visitor(part))
    return f"?{kept}" if kept else ""


def _is_about_the_visitor(parameter: str) -> bool:
    name = parameter.partition("=")[0]
    return bool(_TRACKING.fullmatch(name) or _SESSION.fullmatch(name) or _PERHAPS_SESSION.fullmatch(parameter))


def _escape(found: re.Match[str]) -> str:
    """One escape in its normal form, or one character that has to be escaped."""
    text = found[0]
    if len(text) == 3:
        character = chr(int(text[1:], 16))
        return character if _IS_UNRESERVED.fullmatch(character) else text.upper()
    try:
        return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise _UnfitError("contains an incomplete character") from None


DEEPEST_PATH = 20
"""Segments; real sites stay far below, folders that link to themselves do not."""
MOST_HOSTS = 1_000_000
MOST_PATTERNS = 1_000
LONGEST_PATTERN = 2_048
DEEPEST_SITEMAP = 5
"""Sitemaps in a row that name one another; the protocol knows two."""

_CYCLE = re.compile(r"((?:/[^/]+){1,5}?)\1\1(?=/|$)")
"""/a/b/a/b/a/b: a relative link that should have been absolute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Hosts, patterns and bounds. Whatever it ``refuses`` is not fetched."""

    hosts: frozenset[str] | None = None
    """``host`` or ``host:port``; with and without ``www.`` they are one. None: every host."""
    subdomains: bool = False
    """Whether hosts below these count too."""
    include: tuple[str, ...] = ()
    """Where there are any, a URL must match one; seeds (depth 0) need not."""
    exclude: tuple[str, ...] = ()
    max_depth: int | None = None
    """Links from a seed."""
    _wanted: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)
    _unwanted: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.hosts is not None:
            check("hosts", len(self.hosts), 1 <= len(self.hosts) <= MOST_HOSTS, f"1 to {MOST_HOSTS:,} hosts, or None")
            object.__setattr__(self, "hosts", frozenset(_plain(host_of(host)) for host in self.hosts))
        fine = self.max_depth is None or is_whole(self.max_depth, 0)
        check("max_depth", self.max_depth, fine, "a whole number, 0 or more, or None")
        object.__setattr__(self, "_wanted", _compiled("include", self.include))
        object.__setattr__(self, "_unwanted", _compiled("exclude", self.exclude))

    def refuses(self, url: str, depth: int) -> str | None:
        """Why this canonical URL is left out, in a clause about it, or None. Of a sitemap the depth is below 0."""
        if not self._has(host_of(url)):
            return "is on another host"
        if self.max_depth is not None and depth > self.max_depth:
            return f"is {depth} links from a start URL (limit {self.max_depth})"
        if any(pattern.search(url) for pattern in self._unwanted):
            return "matches an exclude pattern"
        if depth > 0 and self._wanted and not any(pattern.search(url) for pattern in self._wanted):
            return "matches no include pattern"
        if depth < -DEEPEST_SITEMAP:
            return f"is a sitemap nested more than {DEEPEST_SITEMAP} levels deep"
        return _trapped(url)

    def _has(self, host: str) -> bool:
        if self.hosts is None or _plain(host) in self.hosts:
            return True
        if not self.subdomains:
            return False
        labels = host.split(".")
        return any(".".join(labels[first:]) in self.hosts for first in range(1, len(labels)))


def _trapped(url: str) -> str | None:
    path = url[len(origin_of(url)) :].partition("?")[0]
    if path.count("/") > DEEPEST_PATH:
        return f"is more than {DEEPEST_PATH} folders deep"
    if _CYCLE.search(path):
        return "repeats the same folders three times in a row"
    return None


def _plain(host: str) -> str:
    return host.removeprefix("www.")


def _compiled(name: str, patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    check(
        name,
        len(patterns),
        not isinstance(patterns, str) and len(patterns) <= MOST_PATTERNS,
        f"at most {MOST_PATTERNS:,} patterns",
    )
    return tuple(_pattern(name, pattern) for pattern in patterns)


def _pattern(name: str, pattern: str) -> re.Pattern[str]:
    if not 1 <= len(pattern) <= LONGEST_PATTERN:
        raise ConfigError(f"{name}: pattern of {len(pattern):,} characters; expected 1 to {LONGEST_PATTERN:,}")
    if not pattern.startswith("re:"):
        anywhere = r"\Ahttps?://[^/]*" if pattern.startswith("/") else r"\A"
        return re.compile(anywhere + translate(pattern.replace("[", "[[]")))
    try:
        return re.compile(pattern[3:])
    except re.error as error:
        raise ConfigError(f"{name}: {pattern!r} is not a valid regular expression: {error}") from None
