"""Clients behind the gate: all their ways lead through it, once; they can be pickled; closing them leaves nothing."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import time

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3
from requests.adapters import BaseAdapter, HTTPAdapter
from tests.integrations.logged_site import Site

import headgate.integrations.httpx
import headgate.integrations.httpx2
import headgate.integrations.requests
import headgate.integrations.urllib3
from headgate import AdaptiveRateLimiter, CredentialCoordinator
from headgate.errors import ConfigError
from headgate.integrations.aiohttp import Middleware
from headgate.integrations.client_gate import Passing

GATES = headgate.integrations
CLIENTS = ("aiohttp", "httpx", "httpx-async", "httpx2", "requests", "urllib3")


@pytest.fixture(scope="module")
def site():
    with Site(lambda *_: (200,)) as site:
        yield site


class Own(HTTPAdapter):
    """A user's, with something of its own to keep."""

    __attrs__ = (*HTTPAdapter.__attrs__, "name")

    def __init__(self, name, **options):
        self.name, self.sends = name, 0
        super().__init__(**options)

    def send(self, *args, **options):
        self.sends = getattr(self, "sends", 0) + 1
        return super().send(*args, **options)


def gated_session(**settings):
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", Own("all", pool_maxsize=37))
    session.mount("http://127.0.0.1", HTTPAdapter(pool_maxsize=41))
    return GATES.requests.gate(session, **settings)


def sent_through(session):
    passings = {id(one): one for one in (session.adapters[prefix].passing for prefix in session.adapters)}
    return sum(key.sent for one in passings.values() for key in one.limiter.snapshot().keys)


# ---------------------------------------------------------------------- requests' adapters


def test_every_adapter_of_a_session_is_behind_the_gate(site):
    with gated_session() as session:
        for url in (site.url(), site.url(host="localhost"), site.url("/again")):
            assert session.get(url).ok
        assert sent_through(session) == 3
        assert len({id(adapter.passing) for adapter in session.adapters.values()}) == 1


def test_an_adapter_of_the_users_stays_what_it_is(site):
    with gated_session() as session:
        session.get(site.url(host="localhost"))
        own = session.get_adapter(site.url(host="localhost"))
        pool = own.poolmanager.connection_from_url(site.url(host="localhost")).pool
        assert (isinstance(own, Own), own.name, own.sends, pool.maxsize) == (True, "all", 1, 37)
        assert session.get_adapter(site.url())._pool_maxsize == 41


def test_an_adapter_without_a_pool_is_refused_by_its_prefix():
    session = requests.Session()
    session.mount("https://api.example.com", BaseAdapter())
    with pytest.raises(ConfigError, match=r"https://api\.example\.com"):
        GATES.requests.gate(session)
    assert type(session.get_adapter("https://other.example")) is HTTPAdapter, "it is left as it was"


# ---------------------------------------------------------------------- pickled


def test_a_pickled_session_goes_through_the_same_gate(site):
    session = gated_session(limits={"requests": "1000/s"})
    session.headers["X-Own"] = "kept"
    copy = pickle.loads(pickle.dumps(session))
    copy.get(site.url(host="localhost"))
    own = copy.get_adapter(site.url(host="localhost"))
    assert (own.name, own._pool_maxsize, copy.headers["X-Own"]) == ("all", 37, "kept")
    assert own.passing is session.get_adapter(site.url()).passing
    assert sent_through(session) == 1


def test_a_pickled_session_is_gated_in_another_process(site):
    session = GATES.requests.gate(requests.Session(), limits={"requests": "1000/s"}, retries=5)
    program = (
        "import pickle, sys; session = pickle.load(sys.stdin.buffer); session.trust_env = False\n"
        "assert session.get(sys.argv[1]).ok\n"
        "adapters = list(session.adapters.values()); passing = adapters[0].passing\n"
        "print(passing.limiter.snapshot().total, passing.retries, adapters[1].passing is passing)"
    )
    words = [sys.executable, "-c", program, site.url()]
    told = subprocess.run(words, input=pickle.dumps(session), capture_output=True, timeout=60, check=True)
    assert told.stdout.split() == [b"1", b"5", b"True"]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("credentials", {"credentials": {"https://a.example": CredentialCoordinator(["sk-canary"])}}),
        ("limiter", {"limiter": AdaptiveRateLimiter()}),
    ],
)
def test_what_belongs_to_this_process_is_not_pickled_and_named(name, settings):
    with pytest.raises(pickle.PicklingError, match=name) as caught:
        pickle.dumps(gated_session(**settings))
    assert "canary" not in str(caught.value)


# ---------------------------------------------------------------------- twice


@pytest.mark.parametrize(
    "twice",
    [
        lambda: GATES.requests.gate(GATES.requests.gate(requests.Session())),
        lambda: GATES.urllib3.gate(GATES.urllib3.gate(urllib3.PoolManager())),
        lambda: GATES.httpx.gate(GATES.httpx.gate(httpx.Client())),
        lambda: GATES.httpx2.gate(GATES.httpx2.gate(httpx2.AsyncClient())),
        lambda: GATES.httpx2.GatedTransport(GATES.httpx2.GatedTransport()),
        lambda: GATES.httpx2.AsyncGatedTransport(GATES.httpx2.AsyncGatedTransport()),
        lambda: GATES.httpx2.gate(httpx2.Client(mounts={"https://": GATES.httpx2.GatedTransport()})),
        lambda: headgate.openai_client(api_key="k", http_client=GATES.httpx2.gate(httpx2.Client())),
    ],
)
def test_a_gate_before_a_gate_is_refused(twice):
    with pytest.raises(ConfigError, match="twice"):
        twice()


def test_two_gates_in_one_session_of_aiohttp_are_refused_and_nothing_is_sent(site):
    async def ask():
        async with aiohttp.ClientSession(middlewares=[Middleware(), Middleware()]) as session:
            await session.get(site.url("/twice"))

    with pytest.raises(ConfigError, match="twice"):
        asyncio.run(ask())
    assert not [one for one in site.log if one.path == "/twice"]


# ---------------------------------------------------------------------- redirected


HEADERS = ("AccessToken", "X-JWT", "X-Bearer", "X-Session-Id", "X-Kept")


@pytest.mark.parametrize("client", CLIENTS)
def test_what_may_hold_a_credential_stays_with_its_origin(client):
    def answer(site, host, path, headers):
        return (302, {"Location": site.url("/landed", host="localhost")}) if path == "/" else (200,)

    with Site(answer) as site:
        ask(client, site.url(), headers=dict.fromkeys(HEADERS, "v"))
        first, landed = site.log
    assert all(name in first.headers for name in HEADERS)
    assert [name for name in HEADERS if name in landed.headers] == ["X-Kept"]


# ---------------------------------------------------------------------- closed


def ask(client, url, headers=None, known=None, **settings):
    """Ask once with a client behind the gate, and close it; returns what it had opened before and after that."""
    known = opened() if known is None else known
    if client in ("aiohttp", "httpx-async"):
        return asyncio.run(_ask_async(client, url, headers, settings, known))
    if client == "requests":
        one = GATES.requests.gate(requests.Session(), **settings)
        one.trust_env = False
        one.get(url, headers=headers)
        close = one.close
    elif client == "urllib3":
        one = GATES.urllib3.gate(urllib3.PoolManager(), **settings)
        one.request("GET", url, headers=headers)
        close = one.clear
    else:
        library = {"httpx": httpx, "httpx2": httpx2}[client]
        one = getattr(GATES, client).gate(library.Client(trust_env=False, follow_redirects=True), **settings)
        one.get(url, headers=headers)
        close = one.close
    before = opened_in_time(known) if settings else set()
    close()
    return before, opened(known)


async def _ask_async(client, url, headers, settings, known):
    if client == "aiohttp":
        one = aiohttp.ClientSession(middlewares=[Middleware(**settings)])
        (await one.get(url, headers=headers)).close()
        close = one.close
    else:
        one = GATES.httpx.gate(httpx.AsyncClient(trust_env=False, follow_redirects=True), **settings)
        await one.get(url, headers=headers)
        close = one.aclose
    before = opened_in_time(known) if settings else set()
    await close()
    return before, opened(known)


def opened(known=None):
    """The threads that talk to stores and the stores' open files; with those ``known``, the kinds of all others."""
    found = {("thread", one) for one in threading.enumerate() if one.name == "headgate-sync"}
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the listing's own
            continue
        if "shared.db" in path:
            found.add(("file", path))
    return found if known is None else {kind for kind, _ in found - known}


ALL = {"thread", "file"}


def opened_in_time(known):
    """What is open once the store has been visited, which its own thread may do a moment after the call."""
    until = time.monotonic() + 20.0
    while (found := opened(known)) != ALL and time.monotonic() < until:
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_is_closed_leaves_no_thread_and_no_file(site, client):
    assert ask(client, site.url(), store="machine") == (ALL, set())


@pytest.mark.parametrize("client", CLIENTS)
def test_a_gate_that_others_use_too_stays_open(site, client):
    known, passing = opened(), Passing(store="machine")
    assert ask(client, site.url(), known=known, passing=passing) == (ALL, ALL)
    passing.close()
    assert opened(known) == set()


def test_a_session_that_is_used_again_shares_again(site):
    known = opened()
    session = GATES.requests.gate(requests.Session(), store="machine")
    session.trust_env = False
    session.get(site.url())
    session.close()
    assert session.get(site.url()).ok
    assert opened_in_time(known) == ALL
    session.close()
    assert opened(known) == set()
