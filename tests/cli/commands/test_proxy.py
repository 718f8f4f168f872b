"""``headgate proxy`` as people run it: what it prints, whom it asks, how it ends; no secret is in any of it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from headgate.cli import execute
from headgate.cli.commands.proxy import command

PAGE = (Path(__file__).parents[3] / "docs" / "proxy.md").read_text(encoding="utf-8")
SOURCES = Path(__file__).parents[3] / "src" / "headgate" / "proxy"
CANARY = "canary-secret-4711"


@pytest.fixture
def headgate(capsys):
    def call(*arguments):
        code = execute([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return SimpleNamespace(code=code, out=said.out, err=said.err)

    return call


@pytest.fixture
def api():
    """A server of threads: its answers are held while ``hold`` is clear."""
    hold = threading.Event()
    hold.set()
    asked = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked.append((self.path, dict(self.headers)))
            hold.wait(60)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request, client_address):
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", asked=asked, hold=hold)
        hold.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def start():
    """Start the command; gives the process and what it printed first."""
    started = []

    def run(*arguments, **environment):
        process = subprocess.Popen(
            [sys.executable, "-m", "headgate", "proxy", "--port", "0", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        started.append(process)
        return process, process.stdout.readline()

    yield run
    for process in started:
        process.kill()
        process.communicate()


def fetch(url):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60) as answer:
        return answer.status, answer.read()


def is_open(url):
    """Whether it takes calls: one that is stopping does not."""
    try:
        return fetch(f"{url}/-/healthz")[0] == 200
    except OSError:
        return False


def status_once_it_shows_the_proxy():
    """A run is written down for others within a second of its start, not before its first line."""
    command = [sys.executable, "-m", "headgate", "status", "--json"]
    give_up_at = time.monotonic() + 60
    while '"kind": "proxy"' not in (seen := subprocess.run(command, capture_output=True, text=True, timeout=60).stdout):
        assert time.monotonic() < give_up_at
    return seen


def test_from_the_first_line_to_a_drained_end(start, api, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"main={CANARY}\n")
    keys.chmod(0o600)
    process, first = start("--to", f"{api.url}/v1", "--keys", f"file:{keys}", "--report", tmp_path / "report.md")
    base = re.search(r"base URL=(http://127.0.0.1:\d+/v1)\n", first)[1]
    first += process.stdout.readline()
    assert "the proxy adds the key" in first
    assert fetch(f"{base}/x") == (200, b"{}")
    assert fetch(base.replace("/v1", "/-/healthz")) == (200, b"ok\n")
    seen = status_once_it_shows_the_proxy()
    api.hold.clear()
    under_way = []
    caller = threading.Thread(target=lambda: under_way.append(fetch(f"{base}/slow")))
    caller.start()
    while len(api.asked) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert process.poll() is None, "a call is out"
    api.hold.set()
    caller.join()
    out, err = process.communicate(timeout=60)
    assert under_way == [(200, b"{}")]
    assert process.returncode == 0
    assert "Calls: 2 answered.\n" in err
    assert [headers["Authorization"] for _, headers in api.asked] == [f"Bearer {CANARY}"] * 2
    everything = first + out + err + seen + (tmp_path / "report.md").read_text()
    assert CANARY not in everything
    state = [path for path in Path(os.environ["HEADGATE_STATE"]).rglob("*") if path.is_file()]
    assert state
    assert not any(CANARY.encode() in path.read_bytes() for path in state)


def test_a_service_is_healthy_and_ends_cleanly(start, api):
    """As systemd stops it: one SIGTERM; the call in flight is answered, new ones are not, the exit code is 0."""
    process, first = start("--to", api.url, "--json", "--store", "none", "--unseen")
    url = json.loads(first)["url"]
    assert fetch(f"{url}/-/healthz") == (200, b"ok\n")
    api.hold.clear()
    answers = []
    caller = threading.Thread(target=lambda: answers.append(fetch(f"{url}/slow")))
    caller.start()
    while not api.asked:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    while is_open(url):
        time.sleep(0.01)
    assert process.poll() is None
    api.hold.set()
    caller.join()
    out, _ = process.communicate(timeout=60)
    assert answers == [(200, b"{}")]
    assert process.returncode == 0
    last = json.loads(out.splitlines()[-1])
    assert (last["answered"], last["cut_off"]) == (1, 0)


def test_a_second_interrupt_cuts_off(start, api):
    process, first = start("--to", api.url, "--json", "--store", "none", "--unseen")
    told = json.loads(first)
    assert told["targets"][0]["base_url"] == told["url"]
    assert told["targets"][0]["keys"] is False
    api.hold.clear()
    ends = []

    def call():
        try:
            fetch(f"{told['url']}/slow")
        except (OSError, urllib.error.URLError) as error:
            ends.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    while not api.asked:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    while is_open(told["url"]):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    api.hold.set()
    caller.join()
    assert process.returncode == 4
    assert json.loads(out.splitlines()[-1])["cut_off"] == 1
    assert len(ends) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--to"),
        (["--to", "nobody"], "one of openai"),
        (["--to", "openai", "--to", "https://x.example"], "needs a name"),
        (["--to", "https://x.example", "--host", "0.0.0.0"], "HEADGATE_PROXY_TOKEN"),
        (["--to", "https://x.example", "--keys", CANARY], "env:NAME"),
        (["--to", "https://x.example", "--keys", "env:NOT_SET_AT_ALL"], "--keys"),
        (["--to", "a=https://x.example", "--to", "b=https://y.example", "--keys", "env:X"], "NAME=SOURCE"),
        (["--to", "https://x.example", "--limits", "calls=1"], "requests=500/min"),
        (["--to", "https://x.example", "--max-wait", "long"], "--max-wait"),
        (["--to", "https://x.example", "--store", "nowhere"], "store"),
        (["--to", "https://x.example", "--keys", "none", "--keys", "env:X"], "both none and a source"),
    ],
)
def test_command_lines_that_cannot_be(headgate, arguments, words):
    result = headgate("proxy", *arguments)
    assert result.code == 2
    assert words in result.err
    assert CANARY not in result.err + result.out


def test_a_port_that_is_taken_is_told(headgate):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = headgate("proxy", "--to", "https://x.example", "--port", taken.getsockname()[1], "--store", "none")
    assert result.code == 2
    assert "already in use" in result.err


def test_every_option_is_in_the_docs():
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for option in parameter.opts:
                assert f"`{option}" in PAGE, option


def test_every_code_and_bound_is_in_the_docs():
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES.glob("*.py"))
    codes = set(re.findall(r'(?:error_response|RejectedRequestError)\(\s*\d{3},\s*"(\w+)"', text))
    codes |= set(re.findall(r'code = [^"]*"(\w+)"', text))
    assert len(codes) > 15
    assert not [code for code in codes if f"`{code}`" not in PAGE]
