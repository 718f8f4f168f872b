"""``store="ray"``: a quota in a named actor of a Ray cluster, for clusters without a Redis or Valkey.

    worker ── sync ──> actor "headgate-store" (namespace "headgate") ── MemoryStore

The actor belongs to no job (detached), takes no CPU and is restarted by Ray where its node is lost. It then starts with
nothing: leases end by themselves, and members bring back what was learned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ConfigError
from ..protocol import SyncReply, SyncRequest
from ..store import FormerStoreNames, QuotaView, StoreDown
from .memory import MemoryStore

NAMESPACE = "headgate"
STORE = "headgate-store"
TIMEOUT = 2.0
"""Seconds for one exchange: an actor's answer goes through two processes more than a server's."""
FIRST_TIMEOUT = 30.0
"""... and for the first, for which the actor's process has to start."""


class Held:
    """The actor's class: it holds one object, and calls its methods one by one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._object = make()

    def do(self, method: str, *arguments: Any) -> Any:
        return getattr(self._object, method)(*arguments)


class NamedActor:
    """One object for a whole cluster, made by the first process that asks for it. Safe for threads."""

    def __init__(self, name: str, make: Callable[[], Any], timeout: float = TIMEOUT) -> None:
        try:
            import ray
        except ModuleNotFoundError:
            raise ConfigError('store="ray" needs Ray: pip install "headgate[ray]"') from None
        self._ray: Any = ray
        self.where = f"ray actor {name}"
        self._name, self._make, self._timeout = name, make, timeout
        self._lock = threading.Lock()
        self._actor: Any = None
        self._has_answered = False

    def do(self, method: str, *arguments: Any) -> Any:
        """Raises ``StoreDown``. What was sent may have arrived."""
        try:
            waiting = self._found().do.remote(method, *arguments)
            answer = self._ray.get(waiting, timeout=self._timeout if self._has_answered else FIRST_TIMEOUT)
        except self._ray.exceptions.GetTimeoutError:
            raise StoreDown(f"{self.where}: no answer within {self._timeout:g} s") from None
        except (self._ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
            self._actor = None
            raise StoreDown(f"{self.where}: {type(error).__name__}") from None
        self._has_answered = True
        return answer

    def _found(self) -> Any:
        with self._lock:
            if self._actor is None:
                if not self._ray.is_initialized():
                    self._ray.init(address="auto", log_to_driver=False, namespace=NAMESPACE)
                options = {"name": self._name, "namespace": NAMESPACE, "get_if_exists": True, "lifetime": "detached"}
                held = self._ray.remote(Held).options(**options, num_cpus=0, max_restarts=-1)
                self._actor = held.remote(self._make)
            return self._actor


class RayStore(FormerStoreNames):
    def __init__(self, *, timeout: float = TIMEOUT) -> None:
        self._actor = NamedActor(STORE, MemoryStore, timeout)
        self.where = self._actor.where

    def sync(self, requests: Sequence[tuple[str, SyncRequest]]) -> list[SyncReply]:
        if not requests:
            return []
        replies: list[SyncReply] = self._actor.do("sync", list(requests))
        return replies

    def snapshot(self) -> list[QuotaView]:
        views: list[QuotaView] = self._actor.do("snapshot")
        return views

    def close(self) -> None:
        """The actor stays, for the others."""

    def __repr__(self) -> str:
        return f"<RayStore: {self.where}>"
