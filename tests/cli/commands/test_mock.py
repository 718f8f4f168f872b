"""``headgate mock`` prints its address, answers, and ends cleanly."""

import asyncio
import json
import re
import signal
import socket
import urllib.error
import urllib.request

import pytest

from headgate.cli.commands import mock as mock_command
from headgate.mock.providers import PROVIDER_APIS
from headgate.mock.quota import ALGORITHMS


@pytest.fixture
def serve(headgate, monkeypatch):
    """``serve(visit, *options)`` is ``headgate mock`` in this process; its input closes when ``visit(server)`` is over.

    ``visited`` of the result is what ``visit`` has returned.
    """
    servers, visited, announce = [], [], mock_command.announce

    def announce_and_keep(server, as_json):
        servers.append(server)
        announce(server, as_json)

    def run(visit, *options):
        async def visit_is_over():
            visited.append(await asyncio.to_thread(visit, servers[-1]))

        monkeypatch.setattr(mock_command, "stdin_closed", visit_is_over)
        result = headgate("mock", "--stop-with-stdin", "--latency", "0ms", *options)
        (result.visited,) = visited
        return result

    monkeypatch.setattr(mock_command, "announce", announce_and_keep)
    return run


def get(url, body=None, **headers):
    try:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as response:
            return response.status, dict(response.headers), json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), json.load(error)


def test_it_prints_its_address_serves_and_ends_with_ctrl_c(headgate_process):
    process = headgate_process("mock", "--rate", "2/min", "--headers", "retry-after", "--latency", "0ms")
    url = process.stdout.readline().split()[3]
    assert url.startswith("http://127.0.0.1:")
    statuses = [get(url)[0] for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert get(url)[1]["Retry-After"] == "30"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "4 calls: 2 answered, 2 rate limited, 0 failed." in out
    assert err == ""


def test_a_polite_kill_ends_it_as_cleanly_as_ctrl_c(headgate_process):
    process = headgate_process("mock", "--latency", "0ms")
    url = process.stdout.readline().split()[3]
    assert get(url)[0] == 200
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "1 calls: 1 answered" in out


def test_it_ends_with_its_standard_input_and_speaks_json(headgate_process):
    process = headgate_process("mock", "--json", "--stop-with-stdin", "--outage", "0s+1h")
    url = json.loads(process.stdout.readline())["url"]
    assert get(f"{url}/v1/x")[0] == 503
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["down_answers"] == 1
    assert err == ""


@pytest.mark.parametrize(("extra", "word"), [([], "Ctrl-C stops it"), (["--json"], '"url"')])
def test_with_nothing_on_its_standard_input_it_ends_at_once(headgate, monkeypatch, extra, word):
    monkeypatch.setattr("os.read", lambda *_: b"")
    result = headgate("mock", "--stop-with-stdin", *extra)
    assert result.code == 0
    assert word in result.out


def test_a_taken_port_is_one_sentence_and_a_wrong_usage(headgate):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = headgate("mock", "--port", taken.getsockname()[1])
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "is already in use; choose another --port, or 0." in result.err


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "192.0.2.1"])
def test_a_host_nobody_can_listen_on_needs_another_host(headgate, host):
    result = headgate("mock", "--host", host)
    assert result.code == 2
    assert result.err.endswith("choose another --host.\n")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_can_be_served(serve, algorithm):
    def visit(server):
        return get(f"{server.url}/v1/x")[0], get(f"{server.url}/_truth")[2]["algorithm"]

    assert serve(visit, "--algorithm", algorithm).visited == (200, algorithm)


def test_the_help_names_every_algorithm(headgate):
    page = " ".join(headgate("mock", "--help").out.split())
    for words in ("token bucket", "GCRA", "fixed windows", "sliding log", "strict log", "concurrency"):
        assert words in page


@pytest.mark.parametrize(
    ("algorithm", "option", "word"),
    [
        ("concurrency", "--rate=5/s", "--rate is for --algorithm bucket or gcra"),
        ("concurrency", "--burst=5", "--burst is for --algorithm bucket or gcra, not concurrency."),
        ("bucket", "--at-once=5", "--at-once is for --algorithm concurrency, not bucket."),
    ],
)
def test_what_an_algorithm_does_not_need_is_refused(headgate, algorithm, option, word):
    result = headgate("mock", "--algorithm", algorithm, option)
    assert result.code == 2
    assert word in result.err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--key", "5/s", "--rate", "5/s"], "--rate cannot be combined with --key"),
        (
            ["--key", "5/s", "--step", "0.5@1s"],
            "--step cannot be combined with --key; each key has its own quota: --key 50/s,0.5@",
        ),
        (["--key", "5/s", "--provider", "tavily"], "--provider cannot be combined with --key"),
        (["--key", "5/s", "--algorithm", "concurrency"], "--key is for --algorithm bucket"),
        (["--key", "5/s,x"], "'x' is not a step; write 0.5@10s"),
        (["--key", "5/s,burst=0"], "burst must be within 1 and 1,000,000, not 0"),
        (["--key", "5/s,bust=9"], "'bust' is not a setting of a key; write burst=20"),
        (["--key", "5/s,burst=9", "--algorithm", "window"], "--burst is for --algorithm bucket or gcra"),
        (["--key", "fast"], "write 50/s"),
    ],
)
def test_keys_are_written_with_their_own_quota_and_steps(headgate, options, word):
    result = headgate("mock", *options)
    assert result.code == 2
    assert word in result.err


def test_keys_are_served_with_a_quota_each(serve):
    served = serve(lambda server: server.truth()["keys"], "--key", "1/min", "--key", "5/s,burst=9,0.5@10s")
    quotas = [(key["quota_per_second"], key["remaining"]) for key in served.visited]
    assert quotas == [(pytest.approx(1 / 60), 1), (5.0, 9)]


def test_gcra_has_a_burst(headgate, monkeypatch):
    monkeypatch.setattr("os.read", lambda *_: b"")
    assert headgate("mock", "--stop-with-stdin", "--algorithm", "gcra", "--burst", "5").code == 0


def test_it_speaks_a_search_api_and_counts_it(serve):
    def visit(server):
        return [get(f"{server.base_url('google')}/customsearch/v1?key=a-key&cx=engine&q=gates")[2] for _ in range(2)]

    served = serve(visit, "--provider", "google", "--per-day", "1")
    assert served.visited[0]["items"][0]["link"] == "https://example.org/gates/1"
    assert served.visited[1]["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert re.search(r"^google +base_url=http://127\.0\.0\.1:", served.out, re.MULTILINE)
    assert "google: 2 asked, 1 answered, 1 out of quota" in served.out
    assert served.err == ""


def test_all_search_apis_can_be_spoken_at_once(serve):
    def visit(server):
        return get(f"{server.base_url('semantic_scholar')}/graph/v1/paper/search?query=x")[2]["total"]

    served = serve(visit, "--json", "--provider", "all")
    assert served.visited == 130
    first, last = map(json.loads, served.out.splitlines())
    assert list(first["providers"]) == list(PROVIDER_APIS)
    assert last["providers"]["semantic_scholar"]["answered"] == 1


def test_a_day_without_a_provider_is_refused(headgate):
    result = headgate("mock", "--per-day", "5")
    assert result.code == 2
    assert "--per-day needs a --provider." in result.err


class TestLanguageModels:
    def ask(self, server, key):
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "abcd"}]}
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        return get(f"{server.base_url('openai')}/chat/completions", body, **headers)[0]

    def test_keys_have_calls_tokens_and_days_of_their_own(self, serve):
        keys = ("--key", "9/min,tokens=15/min", "--key", "9/min,per-day=2,0.5@1h")
        order = (1, 1, 2, 2, 2, 3)
        served = serve(
            lambda server: [self.ask(server, f"mock-key-{number}") for number in order],
            "--json", "--provider", "openai", *keys,
        )  # fmt: skip
        assert (served.code, served.err) == (0, "")
        assert served.visited == [200, 429, 200, 200, 429, 401]
        truth = json.loads(served.out.splitlines()[-1])["providers"]["openai"]
        assert [truth[name] for name in ("answered", "rate_limited", "out_of_quota", "refused")] == [3, 1, 1, 1]

    def test_every_key_has_the_same_tokens_if_none_is_named(self, serve):
        served = serve(
            lambda server: [self.ask(server, key) for key in "aab"],
            "--provider", "openai", "--provider", "anthropic", "--tokens", "15/min",
        )  # fmt: skip
        assert served.visited == [200, 429, 200]
        assert "openai: 3 asked, 2 answered" in served.out
        assert re.search(r"^anthropic +base_url=\S+/anthropic$", served.out, re.MULTILINE)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--tokens", "5/s"], "add --provider openai or anthropic"),
            (["--key", "5/s,tokens=9/s"], "add --provider openai or anthropic"),
            (["--key", "5/s,per-day=0", "--provider", "openai"], "per_day must be from 1"),
            (["--key", "5/s,colour=red", "--provider", "openai"], "'colour' is not a setting of a key"),
            (["--key", "5/s", "--provider", "openai", "--tokens", "5/s"], "--tokens cannot be combined with --key"),
        ],
    )
    def test_what_makes_no_sense_is_one_sentence(self, headgate, arguments, words):
        said = headgate("mock", *arguments)
        assert said.code == 2
        assert words in " ".join(said.err.split())
