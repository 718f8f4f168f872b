"""Batches on a real Ray cluster of three nodes and a real Spark cluster, ours beside what people write without us.

    python -m bench.clusters                              all scenarios; rewrites their table in bench/fleet.md
    python -m bench.clusters ray ours --rows 1000         one of them; prints a line of JSON
    python -m bench.clusters spark ours --rows 1000 --faults kill,store --answers folder

The API is ``headgate mock``: 100 calls a second, then 60, then 150, and a limit on tokens. What is measured is what the
server counted. Faults: ``kill`` ends a worker with SIGKILL every 5 seconds, ``node`` removes one of Ray's nodes,
``store`` stops the store for 5 seconds and starts it again without its data (with ``--store ray``: ends its actors).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.ports import free_port
from bench.redis_server import RedisServer
from bench.report import between, put_between

RESULTS = Path(__file__).parent / "fleet.md"
RATE, FACTORS = 100.0, (1.0, 0.6, 1.5)
TOKENS = 20_000
"""A second: above what the rate takes, but told in every answer."""
WORKERS, BATCH = 8, 64
KILL_EVERY, STORE_DOWN = 5.0, 5.0
ASIDE = 20.0
"""Seconds at both ends that do not count for the share of the quota."""
TEMPLATE = {"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "{text}"}]}


# ---------------------------------------------------------------------- the API, and what it counted


@dataclass
class Api:
    url: str
    step: float
    """Seconds of each of the three rates."""
    samples: list[tuple[float, int, int, int]]
    """Instant, asked, answered, rate limited."""

    def measured(self) -> dict[str, float]:
        began = next(at for at, asked, *_ in self.samples if asked)
        last = self.samples[-1][2]
        ended = next(at for at, _, answered, _ in self.samples if answered == last)
        aside = min(ASIDE, (ended - began) / 4)
        inside = [one for one in self.samples if began + aside <= one[0] <= ended - aside]
        used = (inside[-1][2] - inside[0][2]) / self._quota(inside[0][0] - began, inside[-1][0] - began)
        _, asked, answered, limited = self.samples[-1]
        return {
            "calls": asked,
            "answered": answered,
            "rate_limited": limited / max(1, asked),
            "quota_used": used,
            "seconds": ended - began,
        }

    def _quota(self, begin: float, end: float) -> float:
        quota = 0.0
        for place, factor in enumerate(FACTORS):
            first, last = place * self.step, (place + 1) * self.step if place < len(FACTORS) - 1 else end
            quota += RATE * factor * max(0.0, min(end, last) - max(begin, first))
        return quota


@contextmanager
def mock_api(rows: int) -> Iterator[Api]:
    step, port = rows / 250, free_port()
    command = [sys.executable, "-m", "headgate", "mock", "--provider", "openai", "--port", str(port)]
    command += ["--rate", f"{RATE:g}/s", "--tokens", f"{TOKENS}/s", "--latency", "50ms", "--stop-with-stdin"]
    for place, factor in enumerate(FACTORS[1:], 1):
        command += ["--step", f"{factor:g}@{place * step:g}s"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    api = Api(f"http://127.0.0.1:{port}", step, [])
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(0.5):
            try:
                with urllib.request.urlopen(f"{api.url}/_truth", timeout=5) as answer:
                    truth = json.load(answer)["providers"]["openai"]
            except OSError:
                continue
            api.samples.append((time.monotonic(), truth["asked"], truth["answered"], truth["rate_limited"]))

    sampling = threading.Thread(target=sample)
    sampling.start()
    try:
        while not api.samples:
            time.sleep(0.1)
        yield api
    finally:
        ended.set()
        sampling.join()
        assert server.stdin is not None
        server.stdin.close()
        server.wait(20)


# ---------------------------------------------------------------------- faults


def descendants(words: str) -> list[tuple[int, int]]:
    """Processes that this one has started, however far down, with these words in their command; with their parents."""
    parents, named = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                named[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                )
            except (OSError, IndexError):
                continue
    found = []
    for process, parent in parents.items():
        above = parent
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if above and words in named.get(process, ""):
            found.append((process, parent))
    return found


def ray_workers() -> list[int]:
    """Those that have started: Ray shows what an actor does as its command."""
    starting = {process for process, _ in descendants(".__init__")}
    return [process for process, _ in descendants("ray::MapWorker") if process not in starting]


def spark_workers() -> list[int]:
    found = descendants("pyspark.daemon")
    daemons = {process for process, _ in found}
    return [process for process, parent in found if parent in daemons]


@dataclass
class Faults:
    kinds: frozenset[str]
    workers: Callable[[], list[int]]
    restart_store: Callable[[], None]
    remove_node: Callable[[], None] | None
    lasts: float
    """Seconds that the run takes, about."""
    kills: int = 0

    def run(self, ended: threading.Event) -> None:
        began, draw = time.monotonic(), random.Random(1)
        node_at, store_at = 0.3 * self.lasts, 0.5 * self.lasts
        while not ended.wait(KILL_EVERY):
            now = time.monotonic() - began
            if "kill" in self.kinds and (alive := self.workers()):
                try:
                    os.kill(draw.choice(alive), signal.SIGKILL)
                    self.kills += 1
                except ProcessLookupError:
                    pass
            if "node" in self.kinds and self.remove_node is not None and now > node_at:
                self.remove_node()
                self.remove_node = None
            if "store" in self.kinds and now > store_at:
                store_at = float("inf")
                self.restart_store()


def restart_server(store: RedisServer) -> None:
    store.stop()
    time.sleep(STORE_DOWN)
    store.start()


def restart_actors() -> None:
    """The actors of ``store="ray"``; Ray starts them again, without what they knew."""
    import ray

    from headgate.distributed.backends.ray_actor import NAMESPACE, STORE
    from headgate.fleet.state_store import RUNS

    for name in (STORE, RUNS):
        ray.kill(ray.get_actor(name, namespace=NAMESPACE), no_restart=False)


@contextmanager
def with_faults(faults: Faults) -> Iterator[Faults]:
    ended = threading.Event()
    thread = threading.Thread(target=faults.run, args=(ended,))
    thread.start()
    try:
        yield faults
    finally:
        ended.set()
        thread.join()


# ---------------------------------------------------------------------- without us: as people write it


class PlainCalls:
    """Calls with exponential backoff, 16 at once in each worker."""

    def __init__(self, url: str, path: str = "/openai/v1/chat/completions") -> None:
        self._url = url + path

    async def texts(self, texts: list[str]) -> list[str]:
        import asyncio

        import aiohttp

        limit = asyncio.Semaphore(16)
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer x"}) as session:

            async def one(text: str) -> str:
                body = {**TEMPLATE, "messages": [{"role": "user", "content": text}]}
                for attempt in range(10):
                    async with limit, session.post(self._url, json=body) as answer:
                        if answer.status == 200:
                            return await answer.text()
                    await asyncio.sleep(min(30.0, 0.5 * 2**attempt) * random.uniform(0.5, 1.0))
                return ""

            return list(await asyncio.gather(*map(one, texts)))


class PlainRows(PlainCalls):
    """For Ray Data."""

    async def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        answers = await self.texts([str(text) for text in batch["text"]])
        return {**batch, "response": answers, "headgate_state": ["done" if one else "failed" for one in answers]}


def plain_frames(url: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def call(frames: Iterator[Any]) -> Iterator[Any]:
        import asyncio

        from bench.clusters import PlainCalls

        for frame in frames:
            answers = asyncio.run(PlainCalls(url).texts(list(frame["text"])))
            states = ["done" if one else "failed" for one in answers]
            yield frame.assign(response=answers, headgate_state=states)

    return call


# ---------------------------------------------------------------------- engines


def run_ray(api: Api, store: RedisServer, options: argparse.Namespace, folder: str) -> dict[str, Any]:
    import ray
    from ray.cluster_utils import Cluster

    from headgate.integrations.ray import map_rows, verify

    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - else its workers, at 15, hardly start beside other work
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=4) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": environment()})
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        rows = ray.data.from_items(
            [{"id": number, "text": f"text {number}"} for number in range(options.rows)],
            override_num_blocks=max(8, options.rows // 250),
        )
        actors = {"num_cpus": 0.25, "concurrency": WORKERS}
        if options.side == "ours":
            answered = map_rows(rows, concurrency=WORKERS, batch_size=BATCH, **ours(api, store, options, folder, "ray"))
        else:
            answered = rows.map_batches(PlainRows, fn_constructor_kwargs={"url": api.url}, batch_size=BATCH, **actors)
        restart = restart_actors if options.store == "ray" else partial(restart_server, store)
        remove_node = partial(cluster.remove_node, nodes[0])
        faults = Faults(options.faults, ray_workers, restart, remove_node, options.rows / 100)
        with with_faults(faults):
            answered = answered.materialize()
        found = verify(rows, answered, id_column="id")
        return {"kills": faults.kills, "missing": found.missing, "surplus": found.surplus, "undone": undone(found)}
    finally:
        ray.shutdown()
        cluster.shutdown()


def run_spark(api: Api, store: RedisServer, options: argparse.Namespace, folder: str) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    from headgate.integrations.spark import map_rows, verify

    os.environ |= {"PYSPARK_PYTHON": sys.executable, **environment()}
    builder = SparkSession.builder.master(f"local-cluster[2,{WORKERS // 2},1024]").appName("headgate")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH),
        "spark.task.maxFailures": "1000",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": folder,
        **{f"spark.executorEnv.{name}": value for name, value in environment().items()},
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("OFF")
        rows = spark.range(options.rows).selectExpr("id", "concat('text ', id) AS text")
        rows = rows.repartition(max(WORKERS, options.rows // 250), "id")
        if options.side == "ours":
            answered = map_rows(rows, **ours(api, store, options, folder, "spark"))
        else:
            schema = "id long, text string, response string, headgate_state string"
            answered = rows.mapInPandas(plain_frames(api.url), schema)
        output = os.path.join(folder, "answers.parquet")
        faults = Faults(options.faults, spark_workers, partial(restart_server, store), None, options.rows / 100)
        with with_faults(faults):
            answered.write.parquet(output)
        found = verify(rows, spark.read.parquet(output), id_column="id")
        return {"kills": faults.kills, "missing": found.missing, "surplus": found.surplus, "undone": undone(found)}
    finally:
        spark.stop()


def ours(api: Api, store: RedisServer, options: argparse.Namespace, folder: str, engine: str) -> dict[str, Any]:
    where = store.url if options.store == "redis" else options.store
    answers = os.path.join(folder, "answers") if options.answers == "folder" else options.answers
    return {
        "to": f"{api.url}/openai/v1",
        "template": TEMPLATE,
        "id_column": "id",
        "store": where,
        "answers": answers,
        "keys": "env:HEADGATE_BENCH_KEY",
        "run": "bench",
    }


def undone(found: Any) -> int:
    return int(found.failed + found.stopped)


def environment() -> dict[str, str]:
    root = str(Path(__file__).parents[1])
    return {"HEADGATE_BENCH_KEY": "bench-key", "PYTHONPATH": root, "PYTHONWARNINGS": "ignore"}


def run_one(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, RedisServer() as store:
        with mock_api(options.rows) as api:
            found = (run_ray if options.engine == "ray" else run_spark)(api, store, options, folder)
            time.sleep(1.5)
            commands = store.carried().commands / options.rows
        measured = api.measured()
    repeated = measured["answered"] - options.rows
    named = {"engine": options.engine, "side": options.side, "rows": options.rows, "faults": sorted(options.faults)}
    return {
        **named,
        "answers": options.answers,
        "store": options.store,
        **found,
        "repeated": repeated,
        "commands": commands,
        **measured,
    }


# ---------------------------------------------------------------------- all of them, as a table

SCENARIOS = [
    "ray ours --rows 20000",
    "ray ours --store ray --answers folder --rows 20000",
    "ray plain --rows 3000",
    "spark ours --rows 20000",
    "spark plain --rows 3000",
    "ray ours --faults kill,node --rows 3000",
    "ray plain --faults kill,node --rows 3000",
    "spark ours --faults kill --rows 3000",
    "spark plain --faults kill --rows 3000",
    "ray ours --faults kill,store --answers folder --rows 3000",
    "ray ours --faults kill,store --store ray --answers folder --rows 3000",
    "spark ours --faults kill,store --answers folder --rows 3000",
]


def write_line(words: str, found: dict[str, Any]) -> None:
    """Put a scenario's line into the table, in the place of an earlier one."""
    name = f"| `{words}` |"
    undone = f"{found['missing']} / {found['surplus']} / {found['undone']}"
    line = f"{name} {found['seconds']:.0f} s | {found['rate_limited']:.2%} | {found['quota_used']:.1%} | {undone} | "
    line += f"{found['kills']} | {found['repeated']:,.0f} | {found['commands']:.1f} |"
    lines = between(RESULTS, "clusters").splitlines()
    places = [place for place, one in enumerate(lines) if one.startswith(name)]
    if places:
        lines[places[0]] = line
    else:
        lines.append(line)
    put_between(RESULTS, "clusters", "\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=("ray", "spark"))
    parser.add_argument("side", nargs="?", choices=("ours", "plain"), default="ours")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--faults", type=lambda text: frozenset(text.split(",")), default=frozenset())
    parser.add_argument("--answers", default="redis", help="redis, folder or none")
    parser.add_argument("--store", default="redis", help="redis or ray")
    parser.add_argument("--write", action="store_true", help="put its line into the table of bench/fleet.md")
    if not sys.argv[1:]:  # each in a process of its own: engines leave things behind
        for scenario in SCENARIOS:
            subprocess.run([sys.executable, "-m", "bench.clusters", *scenario.split(), "--write"], check=False)
        return
    options = parser.parse_args()
    found = run_one(options)
    print(json.dumps(found))
    if options.write:
        write_line(" ".join(word for word in sys.argv[1:] if word != "--write"), found)


if __name__ == "__main__":
    main()
