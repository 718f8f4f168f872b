"""What is known of a key belongs to an origin, and ``headgate keys`` finds it by label, id and origin."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headgate import ConfigError, Credential, CredentialCoordinator
from headgate.cli import execute
from headgate.cli.commands.research import build
from headgate.cli.ui.terminal import DONE, USAGE
from headgate.credentials import FileStore

ROW = '{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": []}}\n'


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MY_KEY", "sk-of-mine-0001")


@pytest.fixture
def addresses() -> Iterator[list[str]]:
    """Two APIs: the first refuses every key, the second takes any."""
    servers = []
    for status in (401, 200):

        class Answer(BaseHTTPRequestHandler):
            code = status

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = b'{"choices": []}' if self.code == 200 else b'{"error": {"code": "invalid_api_key"}}'
                self.send_response(self.code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Answer))
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in servers]
    for thread in threads:
        thread.start()
    yield [f"127.0.0.1:{server.server_port}" for server in servers]
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    capsys.readouterr()
    assert execute(["keys", *words, "--json"]) == DONE
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_key_refused_at_one_address_is_used_at_another(
    addresses: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("rows.jsonl").write_text(ROW)
    refusing, taking = addresses
    run = ["run", "rows.jsonl", "--keys", "env:MY_KEY", "--store", "machine"]
    assert execute([*run, "-o", "refused.jsonl", "--to", f"http://{refusing}/v1"]) != DONE
    assert execute([*run, "-o", "taken.jsonl", "--to", f"http://{taking}/v1"]) == DONE
    found = listed(capsys)
    assert {row["provider"]: row["state"] for row in found} == {refusing: "retired", taking: "free"}
    assert {row["label"] for row in found} == {"MY_KEY"}
    assert len({row["shown"] for row in found}) == 1
    assert listed(capsys, "--from", "env:MY_KEY") == found
    assert execute(["keys", "free", f"{refusing}/MY_KEY"]) == DONE
    assert {row["state"] for row in listed(capsys)} == {"free"}


@pytest.mark.parametrize("name", ["{label}", "{shown}", "{provider}/{label}", "{provider}/{shown}", "{label}/{shown}"])
def test_every_name_of_the_list_works(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = [Credential("alice", "sk-of-alice"), Credential("bob", "sk-of-bob")]
    keys = CredentialCoordinator(given, provider="search", store=FileStore())
    keys.retire("alice")
    retired = next(row for row in listed(capsys) if row["state"] == "retired")
    assert execute(["keys", "free", name.format(**retired)]) == DONE
    assert {row["state"] for row in listed(capsys)} == {"free"}


def test_after_a_rotation_the_names_that_are_offered_work(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        CredentialCoordinator([f"sk-rotated-{number}"], provider="search", store=FileStore()).retire("key-1")
    assert execute(["keys", "free", "key-1"]) == USAGE
    said = capsys.readouterr().err
    ids = [row["shown"] for row in listed(capsys)]
    assert len(set(ids)) == 4
    offered = [word.strip(",.") for word in said.split() if any(one in word for one in ids)]
    assert len(set(offered)) == 4
    for name in offered:
        assert execute(["keys", "free", name]) == DONE
    assert {row["state"] for row in listed(capsys)} == {"free"}


def test_a_word_reaches_the_program_of_its_origin_alone() -> None:
    one, other = (CredentialCoordinator(["sk-shared"], provider=name, store=FileStore()) for name in ("one", "other"))
    assert execute(["keys", "retire", "one/key-1"]) == DONE
    one.check_store()
    other.check_store()
    assert [keys.states()[0].state for keys in (one, other)] == ["retired", "free"]


def test_a_key_parked_before_its_first_use_rests_at_every_origin(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["keys", "park", "MY_KEY", "--for", "1h", "--from", "env:MY_KEY"]) == DONE
    keys = CredentialCoordinator(["sk-of-mine-0001"], provider="search", store=FileStore())
    assert keys.states()[0].state == "resting"
    assert [row["provider"] for row in listed(capsys)] == ["search"]
    assert execute(["keys", "free", "key-1"]) == DONE
    keys.check_store()
    assert keys.states()[0].state == "free"
    elsewhere = CredentialCoordinator(["sk-of-mine-0001"], provider="another", store=FileStore())
    assert elsewhere.states()[0].state == "free"


def test_a_provider_cannot_be_named_as_any_provider_is() -> None:
    with pytest.raises(ConfigError):
        CredentialCoordinator(["sk-of-mine-0001"], provider="*")


def test_a_provider_at_another_address_is_another_origin(capsys: pytest.CaptureFixture[str]) -> None:
    keys = [Credential("mine", "sk-of-mine-0001")]
    for address in (None, "http://127.0.0.1:8001/tavily"):
        provider = build("tavily", keys, address, 10.0)
        assert provider.credentials is not None
        provider.credentials.retire("mine")
        if address is None:
            assert execute(["keys", "free", "mine"]) == DONE
    assert {row["provider"]: row["state"] for row in listed(capsys)} == {"127.0.0.1:8001": "retired", "tavily": "free"}


@pytest.mark.parametrize("name", ["until", "written_at", "budget_until"])
def test_a_record_with_an_impossible_number_is_passed_over(name: str, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "keys.json")
    CredentialCoordinator(["sk-mine", "sk-other"], provider="search", store=store).retire("key-1")
    content = json.loads(Path(store.path).read_text())
    content["credentials"].append({**content["credentials"][0], "provider": "another", name: 10**400})
    Path(store.path).write_text(json.dumps(content))
    assert {record.provider for record in store.load()} == {"search"}


def test_what_one_program_without_a_provider_learned_is_not_known_elsewhere() -> None:
    plain = CredentialCoordinator(["sk-shared"], store=FileStore())
    plain.release_credential("sk-shared", rate_limited=True, backoff_seconds=600)
    named = CredentialCoordinator(["sk-shared"], provider="search", store=FileStore())
    assert [keys.states()[0].state for keys in (plain, named)] == ["resting", "free"]


def test_an_origin_of_any_host_is_kept() -> None:
    host = f"{'a' * 60}.{'b' * 60}.example.com:8443"
    CredentialCoordinator(["sk-long"], provider=host, store=FileStore()).retire("key-1")
    assert CredentialCoordinator(["sk-long"], provider=host, store=FileStore()).states()[0].state == "retired"
