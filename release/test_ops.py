"""What operators get: every query of dashboard and alerts, asked of a real Prometheus that scrapes real runs.

Three runs against `headgate mock` get into all the trouble that the alerts are for: an outage, a revoked key, rows that
can never succeed and a store that is lost; one whose only key has used up the quota of the day; and one beside a
program that uses the same key without any limit.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from bench.redis_server import RedisServer

from headgate.cli import group

from .conftest import PROJECT, run, tool

OPS = PROJECT / "ops"
HEADGATE = [sys.executable, "-m", "headgate"]
TOKEN = "a-token-of-the-release-test"
WITHIN = 240.0
"""Seconds in which every query must have had a result; most have one after twenty."""


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def queries() -> dict[str, str]:
    """Every expression of the alerts and the dashboard, as Grafana would send it."""
    rules = yaml.safe_load((OPS / "headgate.rules.yml").read_text())
    found = {f"alert {rule['alert']}": rule["expr"] for each in rules["groups"] for rule in each["rules"]}
    for panel in json.loads((OPS / "grafana-dashboard.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$run", ".*")
            found[f"panel {panel['title']} {target['refId']}"] = expression
    assert len(found) > 30
    return found


def write_rows(path: Path) -> None:
    """Three thousand; of the first thirty every third one goes to a path that the API does not have."""
    with open(path, "w") as file:
        for number in range(3000):
            url = "/v1/no/such/path" if number < 30 and number % 3 == 0 else "/v1/chat/completions"
            body = {"model": "gpt-4o-mini", "max_tokens": 20, "messages": [{"role": "user", "content": "Hello"}]}
            row = {"custom_id": f"r{number}", "method": "POST", "url": url, "body": body}
            file.write(json.dumps(row) + "\n")


@pytest.fixture(scope="module")
def prometheus(clean: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that scrapes three runs and a port where nothing listens."""
    folder = tmp_path_factory.mktemp("ops")
    mock, poor_mock, busy_mock, page, poor_page, busy_page, nothing, server = free_ports(8)
    write_rows(folder / "rows.jsonl")
    store = RedisServer().start()
    to, poor_to, busy_to = (f"http://127.0.0.1:{port}/openai/v1" for port in (mock, poor_mock, busy_mock))
    batch = ["--config", "none", "--wait", "--price", "*=0.15/0.60"]
    keys = {"GOOD": "any", "DEAD": "revoked-key", "HEADGATE_WEB_TOKEN": TOKEN}
    shutil.copy(OPS / "headgate.rules.yml", folder)
    (folder / "headgate-web-token").write_text(TOKEN)
    config = yaml.safe_load((OPS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job["scrape_interval"] = "1s"
    job["static_configs"][0]["targets"] = [f"127.0.0.1:{port}" for port in (page, poor_page, busy_page, nothing)]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    rich = ["--to", to, "--keys", "env:GOOD", "--keys", "env:DEAD", "--web", str(page), "--store", store.url]
    poor = ["--to", poor_to, "--keys", "env:GOOD", "--web", str(poor_page), "--store", "none"]
    busy = ["--to", busy_to, "--keys", "env:GOOD", "--web", str(busy_page), "--store", "none"]
    mock_api = [*HEADGATE, "mock", "--provider", "openai"]
    outages = [word for each in ("15s+10s", "45s+15s", "90s+25s", "150s+40s") for word in ("--outage", each)]
    commands = [
        [*mock_api, "--rate", "20/s", *outages, "--port", str(mock)],
        [*mock_api, "--rate", "20/s", "--per-day", "5", "--port", str(poor_mock)],
        [*mock_api, "--rate", "2/s", "--port", str(busy_mock)],
        [tool("prometheus"), f"--web.listen-address=127.0.0.1:{server}", "--config.file=prometheus.yml"],
        [*HEADGATE, "run", "rows.jsonl", "-o", "a.jsonl", *batch, *rich],
        [*HEADGATE, "run", "rows.jsonl", "-o", "b.jsonl", *batch, *poor],
        [*HEADGATE, "run", "rows.jsonl", "-o", "c.jsonl", *batch, *busy],
    ]
    started, over = [], threading.Event()
    try:
        for number, words in enumerate(commands):
            with open(folder / f"{number}.log", "wb") as log:
                started.append(subprocess.Popen(words, cwd=folder, env=clean | keys, stdout=log, stderr=log))
            wait_until_open((mock, poor_mock, busy_mock, server, page, poor_page, busy_page)[number])
        threading.Thread(target=use_up, args=(busy_to, keys["GOOD"], over), daemon=True).start()
        address = f"http://127.0.0.1:{server}"
        while not ask(address, "query", query="headgate_calls_total")["result"]:
            time.sleep(0.5)
        store.stop()
        yield address
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGKILL)
            process.wait()
        store.stop()
        over.set()


def use_up(to: str, key: str, over: threading.Event) -> None:
    """Another program with the same key, which knows no limits."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    body = json.dumps({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}]}).encode()
    while not over.wait(0.05):
        with suppress(OSError):
            request = urllib.request.Request(f"{to}/chat/completions", body, headers)
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10).close()


def wait_until_open(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"nothing listens on port {port}")


def ask(address: str, path: str, **values: str) -> object:
    url = f"{address}/api/v1/{path}?{urllib.parse.urlencode(values)}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(60):
        with suppress(urllib.error.HTTPError), opener.open(url, timeout=30) as answer:
            return json.load(answer)["data"]
        time.sleep(0.5)  # Prometheus listens before it is ready
    pytest.fail(f"{path} is not answered")


@pytest.mark.timeout(2 * WITHIN)
def test_no_query_is_empty(prometheus):
    left, until = queries(), time.monotonic() + WITHIN
    while left and time.monotonic() < until:
        for name, expression in list(left.items()):
            result = ask(prometheus, "query", query=expression)["result"]
            if any(sample["value"][1] != "NaN" for sample in result):
                del left[name]
        time.sleep(1.0)
    assert left == {}, list(left)
    alerts = {rule["name"] for each in ask(prometheus, "rules")["groups"] for rule in each["rules"]}
    assert len(alerts) == 9


def test_promtool_accepts_rules_and_settings(tmp_path):
    for name in ("headgate.rules.yml", "prometheus.yml"):
        shutil.copy(OPS / name, tmp_path)
    (tmp_path / "headgate-web-token").touch()
    assert "SUCCESS" in run(tool("promtool"), "check", "rules", tmp_path / "headgate.rules.yml")
    assert "SUCCESS" in run(tool("promtool"), "check", "config", tmp_path / "prometheus.yml")


def test_every_metric_that_is_asked_for_exists():
    from headgate.observe.exporters.metrics import METRICS

    known = {each.name + "_total" * (each.kind == "counter") for each in METRICS}
    known |= {f"{each.name}_bucket" for each in METRICS if each.kind == "histogram"}
    assert {name for text in queries().values() for name in re.findall(r"headgate_\w+", text)} <= known


@pytest.mark.parametrize("name", ["headgate-proxy.service", "headgate-web.service"])
def test_a_unit_starts_a_command_that_is(name, install, clean, tmp_path):
    text = (OPS / name).read_text()
    (line,) = re.findall(r"^ExecStart=/usr/local/bin/headgate (\w+) (.+)$", text, re.MULTILINE)
    command = group.get_command(None, line[0])
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in shlex.split(line[1]) if word.startswith("--")} <= known
    verify = shutil.which("systemd-analyze")
    if verify:
        real = text.replace("/usr/local/bin/headgate", str(install() / "headgate"))
        real = re.sub(r"^EnvironmentFile=", "EnvironmentFile=-", real, flags=re.MULTILINE)
        (tmp_path / name).write_text(real)
        run(
            verify,
            *(["--user"] if "web" in name else []),
            "--man=no",
            "verify",
            tmp_path / name,
            env=clean | {"XDG_RUNTIME_DIR": str(tmp_path)},
        )
