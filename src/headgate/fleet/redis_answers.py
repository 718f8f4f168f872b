"""Remembered answers in a Redis or Valkey: one command a row looks for its answer and claims it.

    headgate:answers:1:(run)                    the target that the run was begun with
    headgate:answers:1:(run):bytes              how much is remembered
    headgate:answers:1:(run):worker:(worker)    lives for LEASE seconds after its last sign of life
    headgate:answers:1:(run):row:(key)          "c" and a worker: claimed;  "a" and bytes: the answer

``SET NX GET`` claims a row or tells what is there. A claim counts for as long as its worker's lease does, which is one
key to renew however many rows it has; the claim of a worker that has died is taken over by comparing and setting.

A run that has as many bytes as it may takes no further rows; what is in flight is still remembered. Nothing is evicted.
All keys are for KEPT_FOR seconds. Each is alone in its command, so a Cluster may keep them anywhere.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from ..distributed.backends.redis import RedisStore, Request
from ..distributed.store import StoreDown
from .answers import KEPT_FOR, Taken, other_target

log = logging.getLogger("headgate.fleet")

ROOT = "headgate:answers:1"
TIMEOUT = 5.0
"""Seconds for one exchange: answers may be large."""
LEASE = 10.0
"""Seconds after which a worker that gives no sign of life has lost its claims."""
AT_ONCE = 500
"""Rows in one exchange, and ..."""
BYTES_AT_ONCE = 8 << 20
"""... bytes."""
KEY_OVERHEAD = 100
"""Bytes that a server needs for a key beside the key and its value, about."""
CLAIM, ANSWER = b"c", b"a"

_TAKE_OVER = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) return 1 end "
    "return 0"
)
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisAnswers:
    def __init__(self, url: str, run: str, *, most_bytes: int) -> None:
        self._store = RedisStore(url, timeout=TIMEOUT)
        self.where = self._store.where
        self._run, self._most_bytes = run, most_bytes
        self._root = f"{ROOT}:{blake2b(run.encode(), digest_size=8).hexdigest()}"
        self._worker = secrets.token_hex(8).encode()
        self._bytes = 0
        """Remembered of this run by all workers, as last heard."""

    def open(self, identity: str) -> None:
        claimed = ("SET", self._root, identity.encode(), "NX", "GET", "EX", KEPT_FOR)
        (before,) = self._store.ask(Request(self._root, claimed))
        if before is not None and before.decode() != identity:
            raise other_target(self._run, before.decode(), identity)
        self.renew()
        self._warn_of_eviction()

    def _warn_of_eviction(self) -> None:
        try:
            (said,) = self._store.ask(Request(self._root, ("INFO", "memory")))
        except StoreDown:  # most likely the user may not ask
            return
        facts = dict(line.partition(":")[::2] for line in said.decode().splitlines())
        policy = facts.get("maxmemory_policy", "noeviction")
        if facts.get("maxmemory", "0") != "0" and policy != "noeviction":
            log.warning(
                "%s evicts keys when its memory is full (maxmemory-policy %s), and would forget answers that were "
                "paid for; set maxmemory-policy noeviction",
                self.where,
                policy,
            )

    def take(self, keys: Sequence[bytes], group: str = "") -> list[bytes | Taken]:
        taken: list[bytes | Taken] = []
        for first in range(0, len(keys), AT_ONCE):
            taken += self._take(keys[first : first + AT_ONCE])
        return taken

    def _take(self, keys: Sequence[bytes]) -> list[bytes | Taken]:
        is_full = self._bytes >= self._most_bytes
        claim = CLAIM + self._worker
        names = [self._name(key) for key in keys]
        asked = [
            Request(name, ("GET", name) if is_full else ("SET", name, claim, "NX", "GET", "EX", KEPT_FOR))
            for name in names
        ]
        *found, used = self._store.ask(*asked, Request(self._bytes_key, ("GET", self._bytes_key)))
        self._bytes = int(used or 0)
        others = {value for value in found if value is not None and value[:1] == CLAIM and value != claim}
        dead = self._dead(others)
        taken: list[bytes | Taken] = []
        for name, value in zip(names, found, strict=True):
            if value is None:
                taken.append(Taken.FULL if is_full else Taken.MINE)
            elif value[:1] == ANSWER:
                taken.append(value[1:])
            elif value == claim:
                taken.append(Taken.MINE)
            elif value in dead and not is_full and self._take_over(name, value, claim):
                taken.append(Taken.REPEATED)
            else:
                taken.append(Taken.HELD)
        return taken

    def put(self, answers: Sequence[tuple[bytes, bytes]]) -> None:
        for some in _portions(answers):
            size = sum(len(packed) + KEY_OVERHEAD + len(self._root) for _, packed in some)
            requests = [
                Request(name, ("SET", name, ANSWER + packed, "EX", KEPT_FOR))
                for name, packed in ((self._name(key), packed) for key, packed in some)
            ]
            counted = Request(self._bytes_key, ("INCRBY", self._bytes_key, size))
            kept = [Request(key, ("EXPIRE", key, KEPT_FOR)) for key in (self._bytes_key, self._root)]
            used = self._store.ask(*requests, counted, *kept)[len(requests)]
            self._bytes = int(used)

    def release(self, keys: Sequence[bytes]) -> None:
        claim = CLAIM + self._worker
        self._store.ask(*(Request(name, ("EVAL", _RELEASE, 1, name, claim)) for name in map(self._name, keys)))

    def renew(self) -> None:
        key = self._worker_key(self._worker)
        self._store.ask(Request(key, ("SET", key, b"1", "PX", int(LEASE * 1000))))

    def close(self) -> None:
        """Give the claims up at once, not when the lease ends."""
        key = self._worker_key(self._worker)
        with contextlib.suppress(StoreDown):
            self._store.ask(Request(key, ("DEL", key)))
        self._store.close()

    def _dead(self, claims: Iterable[bytes]) -> set[bytes]:
        """Those of these claims whose workers have died."""
        claims = list(claims)
        keys = [self._worker_key(claim[1:]) for claim in claims]
        lives = self._store.ask(*(Request(key, ("GET", key)) for key in keys)) if keys else []
        return {claim for claim, is_alive in zip(claims, lives, strict=True) if is_alive is None}

    def _take_over(self, name: str, before: bytes, claim: bytes) -> bool:
        (done,) = self._store.ask(Request(name, ("EVAL", _TAKE_OVER, 1, name, before, claim, KEPT_FOR)))
        return bool(done)

    def _name(self, key: bytes) -> str:
        return f"{self._root}:row:{key.hex()}"

    def _worker_key(self, worker: bytes) -> str:
        return f"{self._root}:worker:{worker.decode()}"

    @property
    def _bytes_key(self) -> str:
        return f"{self._root}:bytes"


def _portions(answers: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
    """Answers that are sent together: not too many bytes at once."""
    portions: list[list[tuple[bytes, bytes]]] = [[]]
    size = 0
    for key, packed in answers:
        if portions[-1] and (size + len(packed) > BYTES_AT_ONCE or len(portions[-1]) >= AT_ONCE):
            portions.append([])
            size = 0
        portions[-1].append((key, packed))
        size += len(packed)
    return portions
