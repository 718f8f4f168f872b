"""Which addresses may be connected to, and that nothing is sent to any other."""

import asyncio
import pickle
import socket
from collections import deque

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver
from bench.ports import free_port

from headgate.crawl.fetch.http import fetch, new_session
from headgate.crawl.fetch.response import FetchError, FetchLimits
from headgate.crawl.fetch.ssrf_guard import GuardedConnector, RefusedAddress, SsrfGuard, kind_of
from headgate.errors import ConfigError, Refused

LIMITS = FetchLimits(total=20.0, connect=10.0, first_byte=10.0)
"""Nothing here waits; the time is what a busy machine may need."""

KINDS = {
    "public": "1.1.1.1 8.8.8.8 93.184.215.14 172.15.0.1 172.32.0.1 192.0.1.1 100.63.0.1 100.128.0.1 223.255.255.255 "
    "2606:4700:4700::1111 2a00:1450::1 64:ff9b::8.8.8.8 ::ffff:8.8.8.8 2002:808:808::1",
    "loopback": "127.0.0.1 127.8.8.8 ::1 ::ffff:127.0.0.1 64:ff9b::127.0.0.1 2002:7f00:1:: 2002:7fff:ffff:1:2:3:4:5",
    "private": "10.0.0.0 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 fc00::1 fdff::1 fec0::1 ::ffff:10.1.1.1",
    "link-local": "169.254.0.1 169.254.255.255 fe80::1 fe80::1%eth0 febf::1",
    "metadata": "169.254.169.254 100.100.100.200 192.0.0.192 168.63.129.16 fd00:ec2::254 fd20:ce::254 "
    "::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::",
    "carrier-grade NAT": "100.64.0.0 100.127.255.255",
    "unspecified": "0.0.0.0 0.1.2.3 ::",
    "multicast": "224.0.0.1 239.255.255.255 ff02::1",
    "documentation": "192.0.2.1 198.51.100.1 203.0.113.1 2001:db8::1 3fff::1",
    "benchmark": "198.18.0.1 198.19.255.255",
    "reserved": "240.0.0.1 255.255.255.255 192.0.0.8 192.88.99.1 2001::1 2001:10::1 100::1 ::127.0.0.1 "
    "::ffff:0:127.0.0.1 64:ff9b:1::1 5f00::1 4000::1 8000::1",
    "no address": "example.com 127.1 0x7f.0.0.1 2130706433 127.0.0.01 256.1.1.1 ::g",
}


@pytest.mark.parametrize(("kind", "addresses"), KINDS.items())
def test_every_address_is_of_one_kind(kind, addresses):
    assert {address: kind_of(address) for address in addresses.split()} == dict.fromkeys(addresses.split(), kind)
    assert kind_of("") == "no address"


def test_by_default_only_public_addresses_may_be_asked():
    guard = SsrfGuard()
    for kind, addresses in KINDS.items():
        for address in addresses.split():
            assert (guard.why_not("host", address) is None) is (kind == "public"), address


def test_the_reason_is_a_sentence():
    assert SsrfGuard().why_not("host", "::ffff:127.0.0.1") == (
        "is at ::ffff:127.0.0.1 (loopback), which is not allowed"
    )


@pytest.mark.parametrize(
    "guard", [SsrfGuard(allow_private=True), SsrfGuard(allowed_hosts=("Host.",))], ids=["all", "a name"]
)
def test_private_networks_can_be_allowed_but_not_metadata(guard):
    lifted = {"public", "private", "loopback", "link-local", "carrier-grade NAT"}
    for kind, addresses in KINDS.items():
        for address in addresses.split():
            assert (guard.why_not("host", address) is None) is (kind in lifted), address


def test_an_allowed_name_opens_nothing_for_other_names():
    guard = SsrfGuard(allowed_hosts=("intranet.example",))
    assert guard.why_not("INTRANET.example.", "10.0.0.1") is None
    assert guard.why_not("evil.example", "10.0.0.1") is not None
    assert guard.why_not("10.0.0.1", "10.0.0.1") is not None


def test_an_address_or_a_network_can_be_allowed_whatever_it_is():
    guard = SsrfGuard(allowed_hosts=("169.254.169.254", "10.1.0.0/16", "[::1]"))
    for address in ("169.254.169.254", "10.1.2.3", "::1"):
        assert guard.why_not("any", address) is None
    for address in ("169.254.169.253", "10.2.0.1", "127.0.0.1"):
        assert guard.why_not("any", address) is not None


@pytest.mark.parametrize("entry", ["http://host/", "host:80", "a b", "10.0.0.0/33", "", "0x7f.1", "user@host"])
def test_allowed_hosts_are_names_addresses_and_networks(entry):
    with pytest.raises(ConfigError, match="allowed_hosts"):
        SsrfGuard(allowed_hosts=(entry,))


def test_one_text_is_no_list_of_hosts():
    with pytest.raises(ConfigError, match="must be a list"):
        SsrfGuard(allowed_hosts="localhost")


def test_a_refusal_is_one_and_can_travel():
    refusal = pickle.loads(pickle.dumps(RefusedAddress("host", "is at 10.0.0.1 (private)")))
    assert isinstance(refusal, Refused)
    assert str(refusal) == "host: is at 10.0.0.1 (private)"


class Names(AbstractResolver):
    """Answers in turn; the last answer stays."""

    def __init__(self, *answers):
        self._answers, self.asked = deque(answers), 0

    async def resolve(self, host, port=0, family=socket.AF_UNSPEC):
        self.asked += 1
        addresses = self._answers.popleft() if len(self._answers) > 1 else self._answers[0]
        return [
            {"hostname": host, "host": address, "port": port, "family": family, "proto": 0, "flags": 0}
            for address in addresses
        ]

    async def close(self):
        pass


class Place:
    """A server on one address that counts who connects and who asks."""

    def __init__(self, address, port=None):
        self._address, self.connected, self.asked, self._open = address, 0, 0, []
        self.port = port or free_port(address)

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, self._address, self.port)
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await asyncio.gather(*self._open)

    async def _serve(self, reader, writer):
        self.connected += 1
        self._open.append(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


GUARD = SsrfGuard(allowed_hosts=("127.0.0.2",))


async def ask(session, host, port):
    try:
        return (await fetch(session, f"http://{host}:{port}/", limits=LIMITS)).body
    except FetchError as problem:
        return problem.kind


def test_a_name_that_moves_inside_between_two_lookups_is_refused_then():
    async def main():
        names = Names(["127.0.0.2"], ["127.0.0.1"])
        async with Place("127.0.0.2") as good, Place("127.0.0.1", good.port) as inside:
            async with new_session(GUARD, agent="test", resolver=names) as session:
                first = await ask(session, "rebinding.test", good.port)
                again = await ask(session, "rebinding.test", good.port)
                session.connector.clear_dns_cache()
                moved = await ask(session, "rebinding.test", good.port)
            return first, again, moved, names.asked, good.asked, inside.connected

    assert asyncio.run(main()) == (b"ok", b"ok", "refused_address", 2, 2, 0)


def test_between_the_check_and_the_connection_there_is_no_second_lookup():
    async def main():
        names = Names(["127.0.0.2"], ["127.0.0.1"])
        async with Place("127.0.0.2") as good, Place("127.0.0.1", good.port) as inside:
            async with new_session(GUARD, agent="test", resolver=names) as session:
                await ask(session, "rebinding.test", good.port)
            return names.asked, inside.connected

    assert asyncio.run(main()) == (1, 0)


@pytest.mark.parametrize("answers", [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "10.0.0.1"], ["::1", "127.0.0.2"]])
def test_of_several_addresses_only_the_good_ones_are_tried(answers):
    async def main():
        names = Names(answers)
        async with (
            Place("127.0.0.2") as good,
            Place("127.0.0.1", good.port) as inside,
            new_session(GUARD, agent="test", resolver=names) as session,
        ):
            return await ask(session, "both.test", good.port), inside.connected

    assert asyncio.run(main()) == (b"ok", 0)


def test_when_the_good_address_is_dead_the_bad_one_is_no_substitute():
    async def main():
        async with Place("127.0.0.2") as dead:
            port = dead.port
        names = Names(["127.0.0.2", "127.0.0.1"])
        async with Place("127.0.0.1", port) as inside, new_session(GUARD, agent="test", resolver=names) as session:
            return await ask(session, "both.test", port), inside.connected

    assert asyncio.run(main()) == ("connect", 0)


@pytest.mark.parametrize("spelling", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1"])
def test_the_connector_alone_keeps_odd_spellings_out(spelling):
    """For those who use it without the rest."""

    async def main():
        async with Place("127.0.0.1") as inside:
            async with aiohttp.ClientSession(connector=GuardedConnector(SsrfGuard())) as session:
                with pytest.raises(RefusedAddress):
                    await session.get(f"http://{spelling}:{inside.port}/")
            return inside.connected

    assert asyncio.run(main()) == 0


def test_the_peer_itself_is_judged_before_anything_is_sent():
    """Whatever has gone wrong before: here, a guard that changes its mind once the connection stands."""

    class Fickle:
        def __init__(self):
            self.asked = 0

        def why_not(self, host, address):
            self.asked += 1
            return None if self.asked == 1 else f"is at {address}"

    async def main():
        async with Place("127.0.0.1") as inside:
            connector = GuardedConnector(Fickle(), 10, Names(["127.0.0.1"]))
            async with aiohttp.ClientSession(connector=connector) as session:
                with pytest.raises(RefusedAddress, match=r"is at 127\.0\.0\.1"):
                    await session.get(f"http://name.test:{inside.port}/")
                await asyncio.sleep(0.05)  # for what should not come
            return inside.connected, inside.asked

    assert asyncio.run(main()) == (1, 0)


def test_a_name_without_addresses_cannot_be_found():
    async def main():
        async with new_session(GUARD, agent="test", resolver=Names([])) as session:
            return await ask(session, "nobody.test", 80)

    assert asyncio.run(main()) == "dns"


def test_the_systems_own_lookup_is_judged_too():
    async def main():
        async with Place("127.0.0.1") as inside:
            async with new_session(SsrfGuard(), agent="test") as session:
                refused = await ask(session, "localhost", inside.port)
            guard = SsrfGuard(allowed_hosts=("localhost",))
            async with new_session(guard, agent="test") as session:
                return refused, inside.connected, await ask(session, "localhost", inside.port)

    assert asyncio.run(main()) == ("refused_address", 0, b"ok")


def test_a_lookup_that_hangs_holds_up_no_other(monkeypatch):
    """Real threads, so real time: the hanging lookups are let go after the others are through."""
    import threading

    let_go = threading.Event()
    real = socket.getaddrinfo

    def look_up(host, *args, **more):
        if host.startswith("hangs"):
            let_go.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "later")
        return real(host, *args, **more)

    async def main():
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        guard = SsrfGuard(allow_private=True)
        quick = FetchLimits(total=0.3, first_byte=0.3)
        async with Place("127.0.0.1") as place, new_session(guard, agent="test") as session:
            hanging = [asyncio.create_task(fetch(session, f"http://hangs{n}.test/", limits=quick)) for n in range(20)]
            body = await ask(session, "localhost", place.port)
            problems = await asyncio.gather(*hanging, return_exceptions=True)
            let_go.set()
            return body, {problem.kind for problem in problems}

    try:
        assert asyncio.run(main()) == (b"ok", {"timeout"})
    finally:
        let_go.set()
