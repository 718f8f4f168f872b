"""The mock as a process: it says where it is, answers, and ends cleanly."""

import json
import signal
import socket
import urllib.error
import urllib.request

import pytest

from headgate.sim.providers import PROVIDER_APIS
from headgate.sim.quota import ALGORITHMS


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
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
    out, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert "4 calls: 2 answered, 2 rate limited, 0 failed." in out
    assert err == ""


def test_a_polite_kill_ends_it_as_cleanly_as_ctrl_c(headgate_process):
    process = headgate_process("mock", "--latency", "0ms")
    url = process.stdout.readline().split()[3]
    assert get(url)[0] == 200
    process.terminate()
    out, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, "")
    assert "1 calls: 1 answered" in out


def test_it_ends_with_its_standard_input_and_speaks_json(headgate_process):
    process = headgate_process("mock", "--json", "--stop-with-stdin", "--outage", "0s+1h")
    url = json.loads(process.stdout.readline())["url"]
    assert get(f"{url}/v1/x")[0] == 503
    out, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert json.loads(out)["down_answers"] == 1
    assert err == ""


@pytest.mark.parametrize(("extra", "word"), [([], "Ctrl-C stops it"), (["--json"], '"url"')])
def test_with_nothing_on_its_standard_input_it_ends_at_once(headgate, monkeypatch, extra, word):
    monkeypatch.setattr("os.read", lambda *_: b"")
    result = headgate("mock", "--stop-with-stdin", *extra)
    assert result.code == 0
    assert word in result.out


def test_a_taken_port_is_one_sentence_and_exit_code_3(headgate):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = headgate("mock", "--port", taken.getsockname()[1])
    assert result.code == 3
    assert result.err.count("\n") == 1
    assert "is already in use; choose another --port, or 0." in result.err


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "192.0.2.1"])
def test_a_host_nobody_can_listen_on_needs_another_host(headgate, host):
    result = headgate("mock", "--host", host)
    assert result.code == 3
    assert result.err.endswith("choose another --host.\n")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_can_be_served(headgate_process, algorithm):
    process = headgate_process("mock", "--json", "--stop-with-stdin", "--algorithm", algorithm)
    url = json.loads(process.stdout.readline())["url"]
    assert get(f"{url}/v1/x")[0] == 200
    assert get(f"{url}/_truth")[2]["algorithm"] == algorithm


def test_the_help_names_every_algorithm(headgate):
    page = " ".join(headgate("mock", "--help").out.split())
    for words in ("token bucket", "GCRA", "fixed windows", "sliding log", "strict log", "concurrency"):
        assert words in page


@pytest.mark.parametrize(
    ("algorithm", "option", "word"),
    [
        ("concurrency", "--rate=5/s", "--rate is for --algorithm bucket or gcra"),
        ("concurrency", "--burst=5", "--burst is for --algorithm bucket or gcra; this one is concurrency."),
        ("bucket", "--at-once=5", "--at-once is for --algorithm concurrency; this one is bucket."),
    ],
)
def test_what_an_algorithm_does_not_need_is_refused(headgate, algorithm, option, word):
    result = headgate("mock", "--algorithm", algorithm, option)
    assert result.code == 2
    assert word in result.err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--key", "5/s", "--rate", "5/s"], "--rate is for an API without --key"),
        (
            ["--key", "5/s", "--step", "0.5@1s"],
            "--step is for an API without --key; write a key's own as --key 50/s,0.5@",
        ),
        (["--key", "5/s", "--provider", "tavily"], "--provider is for an API without --key"),
        (["--key", "5/s", "--algorithm", "concurrency"], "--key is for --algorithm bucket"),
        (["--key", "5/s,x"], "'x' is not a step; write 0.5@10s"),
        (["--key", "5/s,burst=0"], "burst must be within 1 and 1,000,000, not 0"),
        (["--key", "5/s,bust=9"], "'bust' is nothing a key has; write burst=20"),
        (["--key", "5/s,burst=9", "--algorithm", "window"], "--burst is for --algorithm bucket or gcra"),
        (["--key", "fast"], "write 50/s"),
    ],
)
def test_keys_are_written_with_their_own_quota_and_steps(headgate, options, word):
    result = headgate("mock", *options)
    assert result.code == 2
    assert word in result.err


def test_keys_are_served_with_a_quota_each(headgate_process):
    process = headgate_process("mock", "--json", "--stop-with-stdin", "--key", "1/min", "--key", "5/s,burst=9,0.5@10s")
    url = json.loads(process.stdout.readline())["url"]
    keys = get(f"{url}/_truth")[2]["keys"]
    assert [(key["quota_per_second"], key["remaining"]) for key in keys] == [(pytest.approx(1 / 60), 1), (5.0, 9)]


def test_gcra_has_a_burst(headgate, monkeypatch):
    monkeypatch.setattr("os.read", lambda *_: b"")
    assert headgate("mock", "--stop-with-stdin", "--algorithm", "gcra", "--burst", "5").code == 0


def test_it_speaks_a_search_api_and_counts_it(headgate_process):
    process = headgate_process("mock", "--provider", "google", "--latency", "0ms", "--per-day", "1")
    lines = [process.stdout.readline() for _ in range(3)]
    base = lines[2].split("base_url=")[1].strip()
    url = f"{base}/customsearch/v1?key=a-key&cx=engine&q=gates"
    assert get(url)[2]["items"][0]["link"] == "https://example.org/gates/1"
    assert get(url)[2]["error"]["status"] == "RESOURCE_EXHAUSTED"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert "google: 2 asked, 1 answered, 1 out of quota" in out
    assert err == ""


def test_all_search_apis_can_be_spoken_at_once(headgate_process):
    process = headgate_process("mock", "--json", "--stop-with-stdin", "--provider", "all")
    said = json.loads(process.stdout.readline())
    assert list(said["providers"]) == list(PROVIDER_APIS)
    assert get(f"{said['providers']['semantic_scholar']}/graph/v1/paper/search?query=x")[2]["total"] == 130
    out, _ = process.communicate(timeout=10)
    assert json.loads(out)["providers"]["semantic_scholar"]["answered"] == 1


def test_a_day_without_a_provider_is_refused(headgate):
    result = headgate("mock", "--per-day", "5")
    assert result.code == 2
    assert "--per-day is for the keys of a --provider; name one." in result.err
