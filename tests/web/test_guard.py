"""What must not be asked, even with the token: paths that lead elsewhere, nonsense, too much, and what is hardly HTTP.

Each request is refused, learns nothing, and the run goes on.
"""

import json

import pytest
from tests.web.requests_of import get, raw, with_token


def act(body, *fields, kind="application/json"):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return with_token("/api/act", f"Content-Type: {kind}", *fields, method="POST", body=raw)


CASES = {}


def cases(group, **named):
    CASES.update({f"{group}: {name.replace('_', ' ')}": one for name, one in named.items()})


# Paths that lead elsewhere, all with the token.
TRICKS = """/../ /.. /static/ /static /static/../app.py /static/..%2fapp.py /static/%2e%2e/app.py
/static/%2e%2e%2fapp.py /static/..%5capp.py /static/....//app.py /static//etc/passwd /static/%2fetc/passwd
/static/..%c0%afapp.py /static/%00 /static/page.js%00 /static/page.js/ /static/page.js/..
/static/.%2fpage.js /static/./page.js /static/vendor /static/vendor/../../app.py /static/C:%5cwindows /static/~root
/static/%252e%252e/app.py /static/__pycache__ /static/.git/config //api/snapshot /api//snapshot /api/snapshot/
/API/SNAPSHOT /api/snapshot%20 /api/snapshot%0a /api/snapshot;x /api /api/ /api/.. /.env /.git/config /index.html
/favicon.ico /wp-login.php /docs /openapi.json /console /debug /healthz/ /healthz/../api/act /metrics/
/static/con"""
for one in [*TRICKS.split(), "/static/" + "a/" * 2_000, "/" + "%41" * 3_000, "/static/" + "a" * 5_000]:
    cases("path", **{one[:40]: with_token(one)})
cases("path", healthz_is_no_way_in=get("/healthz/../api/snapshot"), healthz_in_the_query=get("/api/snapshot?/healthz"))

for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "FOO", "get"):
    cases("method", **{f"{method} {one}": with_token(one, method=method) for one in ("/", "/api/act")})
cases(
    "method",
    GET_act=with_token("/api/act"),
    POST_snapshot=with_token("/api/snapshot", method="POST", body=b"{}"),
    HEAD_stream=with_token("/api/stream", method="HEAD"),
    POST_stream=with_token("/api/stream", method="POST", body=b"{}"),
    overridden=with_token("/api/act", "X-HTTP-Method-Override: POST"),
)

# What an operator's page would never send: nothing is done.
BODIES = {
    "empty": b"",
    "no json": b"pause",
    "half": b'{"kind":"pause"',
    "two": b'{"kind":"pause"}{"kind":"pause"}',
    "list": b'["pause"]',
    "text": b'"pause"',
    "null": b"null",
    "not utf8": b'{"kind":"\xff\xfe"}',
    "utf16": '{"kind":"nothing"}'.encode("utf-16"),
    "deep": b"[" * 4_000,
    "deep objects": b'{"a":' * 800,
    "nan": b'{"kind":"limit","target":"k","value":NaN}',
    "infinite": b'{"kind":"limit","target":"k","value":Infinity}',
    "too large a number": b'{"kind":"limit","target":"k","value":1e999}',
    "endless digits": b'{"kind":"limit","target":"k","value":' + b"9" * 3_900 + b"}",
    "large body": b'{"kind":"pause","target":"' + b"a" * 5_000 + b'"}',
    "huge body": b"a" * 1_000_000,
}
for name, one in BODIES.items():
    cases("body", **{name: act(one)})
ASKED = {
    "no kind": {},
    "other kind": {"kind": "explode"},
    "kind of kinds": {"kind": ["pause"]},
    "private": {"kind": "__class__"},
    "unknown field": {"kind": "pause", "extra": 1},
    "proto": {"kind": "pause", "__proto__": {"admin": True}},
    "target is a number": {"kind": "park", "target": 5},
    "target is null": {"kind": "park", "target": None},
    "target too long": {"kind": "park", "target": "a" * 501},
    "value is text": {"kind": "limit", "target": "k", "value": "5"},
    "value is true": {"kind": "limit", "target": "k", "value": True},
    "value below 0": {"kind": "limit", "target": "k", "value": -1},
    "value too large": {"kind": "limit", "target": "k", "value": 1e16},
    "value is a list": {"kind": "limit", "target": "k", "value": [1]},
    "another run": {"kind": "pause", "run": "no such run"},
    "run is a path": {"kind": "pause", "run": "../../etc/passwd"},
    "run is a number": {"kind": "pause", "run": 1},
    "run too long": {"kind": "pause", "run": "r" * 501},
}
for name, one in ASKED.items():
    cases("act", **{name: act(one)})

QUERIES = """snapshot?run=other snapshot?run=..%2f..%2fetc snapshot?run=%00 snapshot?run=a&run=b snapshot?unknown=1
snapshot?run snapshot?&& snapshot?run=%ff events?after=-1 events?after=x events?after=1e3
events?after=99999999999999999999 events?most=201 events?most=-5 events?after=1&after=2 events?after=%D9%A1
events?run=other timelines?since=nan timelines?since=inf timelines?since=-1 timelines?since=1e300
timelines?since= timelines?run=other stream?run=a&run=b stream?after=x stream?since=nan stream?unknown=1
stream?keys"""
for one in QUERIES.split():
    cases("query", **{one: with_token(f"/api/{one}")})
cases(
    "query",
    many_keys=with_token("/api/timelines?" + "&".join(f"keys=k{n}" for n in range(25))),
    too_many=with_token("/api/timelines?" + "&".join(f"keys=k{n}" for n in range(2_000))),
    long_key=with_token("/api/timelines?keys=" + "k" * 501),
    long_query=with_token("/api/snapshot?run=" + "r" * 15_900),
)

# What is hardly HTTP.
SNAPSHOT = b"GET /api/snapshot HTTP/1.1\r\nHost: <HOST>\r\nAuthorization: Bearer <TOKEN>\r\n"
ACT = b"POST /api/act HTTP/1.1\r\nHost: <HOST>\r\nAuthorization: Bearer <TOKEN>\r\nContent-Type: application/json\r\n"
PAUSE = b'{"kind":"pause"}'
cases(
    "wire",
    nothing=raw(b""),
    a_line_end=raw(b"\r\n"),
    garbage=raw(bytes(range(256)) * 8),
    zeros=raw(b"\x00" * 10_000),
    tls=raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200),
    http2=raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    http09=raw(b"GET /api/snapshot\r\n"),
    other_version=raw(b"GET / HTTP/9.9\r\nHost: <HOST>\r\n\r\n"),
    ssh=raw(b"SSH-2.0-OpenSSH_9.0\r\n"),
    redis=raw(b"*1\r\n$4\r\nINFO\r\n"),
    half_a_head=raw(SNAPSHOT),
    long_line=raw(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: <HOST>\r\n\r\n"),
    long_field=raw(SNAPSHOT + b"X: " + b"a" * 100_000 + b"\r\n\r\n"),
    endless_field=raw(SNAPSHOT + b"X: " + b"a" * 1_000_000),
    many_fields=raw(SNAPSHOT + b"".join(b"X-%d: y\r\n" % n for n in range(5_000)) + b"\r\n"),
    empty_name=raw(SNAPSHOT + b": x\r\n\r\n"),
    space_in_a_name=raw(SNAPSHOT + b"X Y: z\r\n\r\n"),
    space_before_the_colon=raw(SNAPSHOT + b"Origin : http://evil.example\r\n\r\n"),
    nul_in_a_field=raw(SNAPSHOT + b"X: a\x00b\r\n\r\n"),
    bare_cr=raw(SNAPSHOT + b"X: a\rOrigin: b\r\n\r\n"),
    not_ascii_target=raw(
        b"GET /\xff\xfe HTTP/1.1\r\nHost: <HOST>\r\nAuthorization: Bearer <TOKEN>\r\n\r\n", ends=False
    ),
    spaces_in_the_target=raw(b"GET / api/snapshot HTTP/1.1\r\nHost: <HOST>\r\n\r\n"),
    asterisk=raw(b"OPTIONS * HTTP/1.1\r\nHost: <HOST>\r\nAuthorization: Bearer <TOKEN>\r\n\r\n", ends=False),
    connect=raw(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: <HOST>\r\n\r\n", ends=False),
    absolute=raw(
        b"GET http://<HOST>/api/snapshot HTTP/1.1\r\nHost: <HOST>\r\nAuthorization: Bearer <TOKEN>\r\n\r\n", ends=False
    ),
    websocket_without_token=raw(
        b"GET /api/stream HTTP/1.1\r\nHost: <HOST>\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        ends=False,
    ),
    h2c=raw(
        b"GET /api/snapshot HTTP/1.1\r\nHost: <HOST>\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
        ends=False,
    ),
    negative_length=raw(ACT + b"Content-Length: -1\r\n\r\n" + PAUSE),
    length_of_words=raw(ACT + b"Content-Length: ten\r\n\r\n" + PAUSE),
    length_with_a_plus=raw(ACT + b"Content-Length: +16\r\n\r\n" + PAUSE),
    huge_length=raw(ACT + b"Content-Length: 99999999999\r\n\r\n" + PAUSE, ends=False),
    large_length=raw(ACT + b"Content-Length: 4097\r\n\r\n" + PAUSE, ends=False),
    two_lengths=raw(ACT + b"Content-Length: 16\r\nContent-Length: 5\r\n\r\n" + PAUSE),
    no_length=raw(ACT + b"\r\n" + PAUSE, ends=False),
    shorter_than_said=raw(ACT + b"Content-Length: 30\r\n\r\n" + PAUSE),
    chunked=raw(ACT + b"Transfer-Encoding: chunked\r\n\r\n10\r\n" + PAUSE + b"\r\n0\r\n\r\n", ends=False),
    chunked_and_length=raw(
        ACT + b"Content-Length: 16\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n" + PAUSE + b"\r\n0\r\n\r\n", ends=False
    ),
    bad_chunk=raw(ACT + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n" + PAUSE),
    huge_chunk=raw(ACT + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + PAUSE),
    two_codings=raw(ACT + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    expects_leave_for_much=raw(ACT + b"Expect: 100-continue\r\nContent-Length: 100000000\r\n\r\n", ends=False),
    body_of_a_get=raw(SNAPSHOT + b"Content-Length: 16\r\n\r\n" + PAUSE, ends=False),
    chunks_of_a_get=raw(SNAPSHOT + b"Transfer-Encoding: chunked\r\n\r\n10\r\n" + PAUSE + b"\r\n0\r\n\r\n", ends=False),
    zipped=raw(ACT + b"Content-Encoding: gzip\r\nContent-Length: 20\r\n\r\n" + b"\x1f\x8b" + b"\x00" * 18, ends=False),
    pipelined_without_token=raw(b"GET /api/snapshot HTTP/1.1\r\nHost: <HOST>\r\n\r\n" * 500),
    act_hidden_in_a_body=raw(
        b"POST /api/act HTTP/1.1\r\nHost: <HOST>\r\nContent-Length: 300\r\n\r\n"
        + ACT
        + b"Content-Length: 16\r\n\r\n"
        + PAUSE,
    ),
)


@pytest.mark.parametrize("name", CASES)
def test_refused_silent_and_the_run_goes_on(name, shared_page, check_refused):
    check_refused(shared_page, CASES[name])


def test_there_are_many():
    assert len(CASES) >= 150
