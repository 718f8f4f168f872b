"""The wheel in clean environments: alone, with each extra, by pipx and by uvx."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from .conftest import PROJECT, run, tool

METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
NOT_FOR_USERS = {"bench", "check", "docs", "heavy", "release", "test"}
EXTRAS = sorted(set(METADATA["optional-dependencies"]) - NOT_FOR_USERS)
IMPORTS = {
    "all": "headgate.web, headgate.crawl, redis, trafilatura, uvloop",
    "anthropic": "headgate.integrations.anthropic",
    "crawl": "headgate.crawl, protego, trafilatura, warcio",
    "httpx2": "headgate.integrations.httpx2",
    "metrics": "headgate.observe.exporters.prometheus",
    "openai": "headgate.integrations.openai",
    "otel": "headgate.observe.exporters.otel",
    "png": "headgate.lab.charts, PIL",
    "prices": "genai_prices",
    "ray": "headgate.integrations.ray, ray, fsspec",
    "redis": "headgate.credentials.redis_store",
    "scrapy": "headgate.integrations.scrapy",
    "spark": "headgate.integrations.spark, pyspark, fsspec",
    "speed": "orjson, uvloop",
    "web": "headgate.web",
    "zstd": "headgate.batch.input",
}
MOST_PACKAGES, MOST_BYTES = 22, 30_000_000
"""Of the base install, Headgate included: 20 packages and 23 MB when this was written."""


def test_the_metadata_is_complete(wheel, sdist):
    assert "WARNING" not in run(tool("twine"), "check", "--strict", wheel, sdist)


def test_the_base_install_is_small(install, clean):
    scripts = install()
    packages = json.loads(run(tool("uv"), "pip", "list", "--format", "json", "--python", scripts / "python", env=clean))
    assert len(packages) <= MOST_PACKAGES, [each["name"] for each in packages]
    files = [path for path in (scripts.parent / "lib").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_a_batch_with_the_base_install(install, clean, tmp_path):
    headgate, port = install() / "headgate", free_port()
    rows = [
        {"custom_id": f"r{n}", "method": "POST", "url": "/v1/responses", "body": {"model": "m", "input": "Hello"}}
        for n in range(20)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [headgate, "mock", "--provider", "openai", "--rate", "100/s", "--port", str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=clean, cwd=tmp_path) as mock:
        try:
            assert b"mock API on" in mock.stdout.readline()
            to = f"http://127.0.0.1:{port}/openai/v1"
            said = [headgate, "run", "rows.jsonl", "-o", "out.jsonl", "--to", to, "--keys", "env:KEY", "--quiet"]
            run(*said, env=clean | {"KEY": "any"}, cwd=tmp_path)
            run(headgate, "verify", "out.jsonl", env=clean, cwd=tmp_path)
        finally:
            mock.terminate()
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 20


def test_every_extra_is_tried():
    assert set(IMPORTS) == set(EXTRAS)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_it_is_for(install, clean, tmp_path, extra):
    run(
        install(extra) / "python",
        "-W",
        "error::ImportWarning",
        "-c",
        f"import {IMPORTS[extra]}",
        env=clean,
        cwd=tmp_path,
    )


def test_pipx_runs_it(wheel, clean, tmp_path):
    said = run(
        tool("pipx"),
        "run",
        "--python",
        sys.executable,
        "--spec",
        wheel,
        "headgate",
        "--version",
        env=clean,
        cwd=tmp_path,
    )
    assert said.startswith("headgate ")


def test_uvx_runs_it(wheel, clean, tmp_path):
    said = run(
        tool("uvx"), "--python", sys.executable, "--from", wheel, "headgate", "--version", env=clean, cwd=tmp_path
    )
    assert said.startswith("headgate ")


def test_a_plugin_is_installed_and_used(install, clean, tmp_path):
    scripts = install("", PROJECT / "examples" / "plugin")
    said = run(
        scripts / "headgate",
        "simulate",
        "tb50",
        "--strategy",
        "example",
        "--seeds",
        "1",
        "--json",
        env=clean,
        cwd=tmp_path,
    )
    assert '"example"' in said
    code = "from headgate.batch.endpoints import endpoint_of; print(endpoint_of('example').base_url)"
    assert run(scripts / "python", "-c", code, env=clean, cwd=tmp_path) == "https://api.example.com/v1\n"
    code = (
        "import sys; from headgate import AdaptiveRateLimiter\n"
        "print('headgate_example' in sys.modules)\n"
        "limiter = AdaptiveRateLimiter(store='example://a')\n"
        "limiter.acquire('api').report(status_code=200)\n"
        "print('headgate_example.store' in sys.modules, 'headgate_example.vendor' in sys.modules)\n"
        "limiter.close()"
    )
    assert run(scripts / "python", "-c", code, env=clean, cwd=tmp_path) == "False\nTrue False\n"
    assert Path(
        run(scripts / "python", "-c", "import headgate; print(headgate.__file__)", env=clean, cwd=tmp_path).strip()
    ).is_relative_to(scripts.parent)
