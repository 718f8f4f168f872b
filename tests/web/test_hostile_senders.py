"""Who must not be let in: other names, other sites, no token, a wrong one, or the right one in the wrong place.

Each request is refused, learns nothing, and the run goes on.
"""

import base64

import pytest
from tests.web.requests_of import get, raw, with_token


def act_as(kind):
    return with_token("/api/act", f"Content-Type: {kind}", method="POST", body=b'{"kind":"pause"}')


CASES = {}


def cases(group, **named):
    CASES.update({f"{group}: {name.replace('_', ' ')}": one for name, one in named.items()})


# Under another name: somebody else's page leads here. Every one of these has the right token.
HOSTS = """evil.example evil.example:80 localhost.evil.example 127.0.0.1.evil.example 127.0.0.1.nip.io 2130706433
0x7f000001 0177.0.0.1 127.1 127.0.0.2 0.0.0.0 10.0.0.1 192.168.1.1 169.254.169.254 [::] [::ffff:127.0.0.1]
[fe80::1] localhost. localhost.localdomain user@localhost localhost@evil.example * null localhost:80:80
localhost:9999999 127.0.0.1%00.evil.example 127.0.0.1,evil.example 127.0.0.1;evil [127.0.0.1] [localhost] ::1
.localhost localhost/evil localhost#evil"""
for one in HOSTS.split():
    cases("host", **{one: with_token("/api/snapshot", host=one)})
cases(
    "host",
    page_by_another_name=lambda page: page.ask(f"GET /?token={page.token}", host="evil.example"),
    cookie_by_another_name=get("/api/snapshot", "Cookie: {p.cookie}", host="evil.example"),
    act_by_another_name=get(
        "/api/act",
        "Cookie: {p.cookie}",
        "Origin: http://evil.example",
        "Content-Type: application/json",
        host="evil.example",
        method="POST",
        body=b'{"kind":"pause"}',
    ),
    health_by_another_name=get("/healthz", host="evil.example"),
    forwarded=with_token("/api/snapshot", "X-Forwarded-Host: localhost", host="evil.example"),
    forwarded_for=with_token("/api/snapshot", "Forwarded: host=localhost", host="evil.example"),
    twice=raw(b"GET /api/snapshot HTTP/1.1\r\nHost: <HOST>\r\nHost: evil\r\nAuthorization: Bearer <TOKEN>\r\n\r\n"),
    missing=raw(b"GET /api/snapshot HTTP/1.1\r\nAuthorization: Bearer <TOKEN>\r\n\r\n"),
    missing_of_old=raw(b"GET /api/snapshot HTTP/1.0\r\nAuthorization: Bearer <TOKEN>\r\n\r\n", ends=False),
    empty=raw(b"GET /api/snapshot HTTP/1.1\r\nHost:\r\nAuthorization: Bearer <TOKEN>\r\n\r\n", ends=False),
    space=raw(b"GET /api/snapshot HTTP/1.1\r\nHost: <HOST> x\r\nAuthorization: Bearer <TOKEN>\r\n\r\n", ends=False),
    absolute=raw(
        b"GET http://evil.example/api/snapshot HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer <TOKEN>\r\n\r\n",
        ends=False,
    ),
)

# From another site's page, through the operator's browser: it sends the cookie along.
ORIGINS = """null http://evil.example https://127.0.0.1 http://127.0.0.1 http://127.0.0.1:1 http://localhost:{p.port}
http://{p.host}.evil.example http://{p.host}@evil.example http://{p.host}/ http://{p.host}:1 file://
ftp://{p.host} chrome-extension://abcdefgh //{p.host} {p.host} http://user@{p.host}"""
for one in ORIGINS.split():
    act_from = ("Cookie: {p.cookie}", f"Origin: {one}", "Content-Type: application/json")
    cases("origin", **{one: get("/api/act", *act_from, method="POST", body=b'{"kind":"pause"}')})
cases(
    "origin",
    empty=get("/api/snapshot", "Cookie: {p.cookie}", "Origin: "),
    two=get("/api/snapshot", "Cookie: {p.cookie}", "Origin: http://{p.host}", "Origin: http://evil.example"),
    reads=get("/api/snapshot", "Cookie: {p.cookie}", "Origin: http://evil.example"),
    listens=get("/api/stream", "Cookie: {p.cookie}", "Origin: http://evil.example"),
    with_the_token_even=with_token("/api/snapshot", "Origin: http://evil.example"),
    act_from_nowhere=get(
        "/api/act", "Cookie: {p.cookie}", "Content-Type: application/json", method="POST", body=b'{"kind":"pause"}'
    ),
    act_as_a_form=get(
        "/api/act",
        "Cookie: {p.cookie}",
        "Origin: http://{p.host}",
        "Content-Type: application/x-www-form-urlencoded",
        method="POST",
        body=b"kind=pause",
    ),
    act_as_text=act_as("text/plain"),
    act_as_multipart=act_as("multipart/form-data; boundary=x"),
    act_as_nothing=act_as(""),
    preflight=get("/api/act", "Origin: http://evil.example", "Access-Control-Request-Method: POST", method="OPTIONS"),
)
for site in ("cross-site", "same-site", "elsewhere"):
    cases(
        "fetch",
        **{
            f"snapshot {site}": get("/api/snapshot", "Cookie: {p.cookie}", f"Sec-Fetch-Site: {site}"),
            f"stream {site}": get("/api/stream", "Cookie: {p.cookie}", f"Sec-Fetch-Site: {site}"),
            f"script {site}": get("/static/page.js", "Cookie: {p.cookie}", f"Sec-Fetch-Site: {site}"),
            f"frame {site}": get(
                "/",
                "Cookie: {p.cookie}",
                f"Sec-Fetch-Site: {site}",
                "Sec-Fetch-Mode: navigate",
                "Sec-Fetch-Dest: iframe",
            ),
            f"link to the api {site}": get(
                "/api/snapshot",
                "Cookie: {p.cookie}",
                f"Sec-Fetch-Site: {site}",
                "Sec-Fetch-Mode: navigate",
                "Sec-Fetch-Dest: document",
            ),
        },
    )
cases("fetch", two=get("/", "Cookie: {p.cookie}", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"))

# Without the token, with a wrong one, or with the right one in a place where it would be seen.
PATHS = "/ /index.html /api/snapshot /api/events /api/timelines /api/stream /api/act /metrics /static/page.js /nothing"
for one in PATHS.split():
    cases("no token", **{one: get(one), f"POST {one}": get(one, method="POST", body=b"{}")})
WRONG = {
    "empty": "",
    "short": "a",
    "almost": "{p.token}x",
    "part": "{p.token:.20}",
    "twice": "{p.token}{p.token}",
    "quoted": '"{p.token}"',
    "listed": "{p.token},{p.token}",
    "padded": " {p.token}",
    "upper": "A" * 32,
    "long": "a" * 8_000,
    "not ascii": "\u00e9" * 32,
    "percent": "%41" * 32,
    "true": "true",
    "null": "null",
}
for name, one in WRONG.items():
    cases("wrong token", **{name: get("/api/snapshot", f"Authorization: Bearer {one}")})
for name, one in {**WRONG, "padded": "%20{p.token}", "nul": "%00{p.token}"}.items():
    if name != "long":
        cases("wrong link", **{name: lambda page, one=one: page.ask("GET /?token=" + one.format(p=page))})
cases(
    "token elsewhere",
    api_address=lambda page: page.ask(f"GET /api/snapshot?token={page.token}"),
    stream_address=lambda page: page.ask(f"GET /api/stream?token={page.token}"),
    act_address=lambda page: page.ask(f"POST /api/act?token={page.token}", body=b'{"kind":"pause"}'),
    posted=lambda page: page.ask(f"POST /?token={page.token}", body=b"{}"),
    in_path=lambda page: page.ask(f"GET /{page.token}/api/snapshot"),
    in_matrix=lambda page: page.ask(f"GET /api/snapshot;token={page.token}"),
    twice=lambda page: page.ask(f"GET /?token={page.token}&token={page.token}"),
    other_case=lambda page: page.ask(f"GET /?Token={page.token}"),
    listed=lambda page: page.ask(f"GET /?token[]={page.token}"),
    semicolon=lambda page: page.ask(f"GET /?a=1;token={page.token}"),
    referer=get("/api/snapshot", "Referer: http://{p.host}/?token={p.token}"),
    x_token=get("/api/snapshot", "X-Token: {p.token}"),
    x_api_key=get("/api/snapshot", "X-Api-Key: {p.token}"),
    proxy=get("/api/snapshot", "Proxy-Authorization: Bearer {p.token}"),
    bare=get("/api/snapshot", "Authorization: {p.token}"),
    other_scheme=get("/api/snapshot", "Authorization: Token {p.token}"),
    basic=lambda page: page.ask(
        "GET /api/snapshot", "Authorization: Basic " + base64.b64encode(f"x:{page.token}".encode()).decode()
    ),
    two_fields=get("/api/snapshot", "Authorization: Bearer {p.token}", "Authorization: Bearer wrong"),
    wrong_field_beside_the_cookie=get("/api/snapshot", "Authorization: Bearer wrong", "Cookie: {p.cookie}"),
    cookie_of_the_token=lambda page: page.ask(
        "GET /api/snapshot", f"Cookie: {page.cookie.partition('=')[0]}={page.token}"
    ),
    cookie_named_token=get("/api/snapshot", "Cookie: token={p.token}"),
    cookie_cut=lambda page: page.ask("GET /api/snapshot", f"Cookie: {page.cookie[:-1]}"),
    cookie_longer=get("/api/snapshot", "Cookie: {p.cookie}0"),
    cookie_quoted=lambda page: page.ask("GET /api/snapshot", 'Cookie: {}="{}"'.format(*page.cookie.split("="))),
    cookie_empty=lambda page: page.ask("GET /api/snapshot", f"Cookie: {page.cookie.partition('=')[0]}="),
    cookie_as_bearer=lambda page: page.ask(
        "GET /api/snapshot", f"Authorization: Bearer {page.cookie.partition('=')[2]}"
    ),
    many_cookies=get("/api/snapshot", "Cookie: " + "; ".join(f"c{n}=v" for n in range(900))),
)


@pytest.mark.parametrize("name", CASES)
def test_refused_silent_and_the_run_goes_on(name, shared_page, check_refused):
    check_refused(shared_page, CASES[name])


def test_there_are_many():
    assert len(CASES) >= 150
