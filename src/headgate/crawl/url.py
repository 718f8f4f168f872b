"""One spelling per page, so that a page is fetched once however it is linked.

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
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

from ..wire.urls import LONGEST_HOST, host_key

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


def host_of(url: str) -> str:
    """Which server's limits count: ``host`` or ``host:port``, the limiter's key."""
    return host_key(url)


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
    host = (name if name.isascii() else _idna(name)).lower().removesuffix(".")
    if len(host) > LONGEST_HOST or not _NAME.fullmatch(host):
        raise _UnfitError("has an invalid host")
    if _ENDS_IN_NUMBER.fullmatch(host) and not _IPV4.fullmatch(host):
        raise _UnfitError("has an IPv4 address in an unusual notation")
    return host


def _idna(name: str) -> str:
    import idna  # aiohttp's own dependency; few hosts need it

    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except UnicodeError:  # symbols, which its rules no longer know but names still have
        try:
            return name.encode("idna").decode("ascii")
        except UnicodeError:
            raise _UnfitError("has a host that cannot be encoded in ASCII") from None


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
