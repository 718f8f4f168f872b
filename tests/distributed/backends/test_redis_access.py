"""Passwords, ACL users and TLS; and that no secret is told when they are wrong."""

import ssl
import traceback
from pathlib import Path

import pytest
import redis
import trustme

from headgate.distributed.protocol import Publication
from headgate.distributed.store import StoreDown

pytestmark = pytest.mark.usefixtures("patient")

RIGHTS = "~headgate:* +evalsha +eval +set +hget +hmget +hset +hdel +expire +time +select +scan"
"""All that a user needs."""


def refusal(member):
    """All that can be seen of it."""
    with pytest.raises(StoreDown) as refused:
        member.sync()
    return str(refused.value), "".join(traceback.format_exception(refused.value)) + repr(refused.value)


class TestPassword:
    @pytest.fixture
    def server(self, own_redis):
        return own_redis("--requirepass", "hunter2")

    def url(self, server, login):
        return f"redis://{login}127.0.0.1:{server.port}"

    def test_right(self, server, open_redis, member):
        assert member(open_redis(self.url(server, ":hunter2@"))).sync().granted == 5

    @pytest.mark.parametrize("login", ["", ":hunter3@", "ann:hunter2@"])
    def test_missing_or_wrong(self, server, open_redis, member, login):
        said, seen = refusal(member(open_redis(self.url(server, login))))
        assert said.endswith("it rejects the user or the password")
        assert "hunter" not in seen

    def test_every_kind_of_address_keeps_it_to_itself(self, server, open_redis, member):
        for kind, rest in (("redis", ""), ("rediss", ""), ("redis+cluster", ""), ("redis+sentinel", "/main")):
            url = f"{kind}://somebody:hunter3@127.0.0.1:{server.port}{rest}"
            _, seen = refusal(member(open_redis(url, timeout=0.5)))
            assert "hunter3" not in seen
            assert "somebody" not in seen


class TestUser:
    @pytest.fixture
    def server(self, own_redis):
        return own_redis()

    def allow(self, server, name, rights):
        with redis.Redis(port=server.port, protocol=2) as client:
            client.execute_command("ACL", "SETUSER", name, "on", ">p@ss/word", *rights.split())
        return f"redis://{name}:p%40ss%2Fword@127.0.0.1:{server.port}"

    def test_few_rights_are_enough(self, server, open_redis, member):
        store = open_redis(self.allow(server, "ann", RIGHTS))
        one = member(store)
        fence = one.sync(note="seen").fence
        assert one.sync(publication=Publication(fence=fence, rate=10.0, learned="much", covers=1)).granted
        assert len(store.snapshot()) == 1

    @pytest.mark.parametrize("missing", ["+evalsha", "+set", "~headgate:*"])
    def test_too_few_are_a_store_that_is_down(self, server, open_redis, member, missing):
        url = self.allow(server, "bob", RIGHTS.replace(missing, ""))
        said, seen = refusal(member(open_redis(url)))
        assert said.endswith("the user may not run scripts or use the keys headgate:*")
        assert "p@ss" not in seen


class TestTls:
    @pytest.fixture
    def authority(self):
        return trustme.CA()

    @pytest.fixture
    def entrance(self, redis_server, authority, in_front_of):
        """The port of a server with a certificate of this authority for 127.0.0.1."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        with in_front_of(redis_server.port, context) as port:
            yield port

    @pytest.fixture
    def trusted(self, authority, tmp_path):
        path = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(path)
        return path

    def test_a_trusted_certificate(self, entrance, trusted, open_redis, member):
        store = open_redis(f"rediss://127.0.0.1:{entrance}?ssl_ca_certs={trusted}")
        assert member(store).sync().granted == 5
        assert "TLS" in store.where

    def test_a_certificate_that_is_not_trusted(self, entrance, open_redis, member):
        said, _ = refusal(member(open_redis(f"rediss://127.0.0.1:{entrance}")))
        assert "its certificate is not trusted" in said

    def test_a_certificate_for_another_host(self, entrance, trusted, open_redis, member):
        said, _ = refusal(member(open_redis(f"rediss://localhost:{entrance}?ssl_ca_certs={trusted}")))
        assert "its certificate is not trusted" in said

    def test_a_server_without_tls(self, redis_server, trusted, open_redis, member):
        url = f"rediss://127.0.0.1:{redis_server.port}?ssl_ca_certs={trusted}"
        said, _ = refusal(member(open_redis(url, timeout=0.5)))
        assert redis_server.url.partition("//")[2] in said

    def test_a_certificate_of_our_own(
        self, redis_server, authority, trusted, in_front_of, open_redis, member, tmp_path
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
        ours = authority.issue_cert("headgate@example.org")
        chain, key = tmp_path / "ours.pem", tmp_path / "ours.key"
        chain.write_bytes(b"".join(part.bytes() for part in ours.cert_chain_pems))
        ours.private_key_pem.write_to_path(key)
        with in_front_of(redis_server.port, context) as port:
            url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={trusted}&ssl_certfile={chain}&ssl_keyfile={key}"
            store = open_redis(url)
            assert member(store).sync().granted == 5
            store.close()

    def test_a_file_that_is_not_there(self, entrance, open_redis, member):
        missing = Path("no") / "such.pem"
        said, _ = refusal(member(open_redis(f"rediss://127.0.0.1:{entrance}?ssl_ca_certs={missing}")))
        assert said.endswith("no such file or directory")
