"""The keys of a limiter: found in one look-up, put away when idle, forgotten when old.

    in use ──10 s without a call──> packed (under 1 KB) ──ttl──> forgotten
       ^────────── next call ──────────┘

Both maps are kept in the order of last use, so looking for what to put away starts at its
oldest end and costs nothing where there is nothing to do. There is no background
thread: opening a key and reporting an answer each do a little of the tidying.

A key with a permit out, a waiter, a circuit that is not closed, a bucket that is not
full or a not-before is never forgotten: forgetting it would let calls through that it holds back.
"""

from __future__ import annotations

import marshal
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from ..config import RateLimitConfig
from ..core.breaker import Breaker
from ..core.decision import CircuitState
from ..core.gate_policy import GatePolicy
from ..errors import ConfigError, TooManyKeysError
from ..wire.urls import group_key, host_key
from .key_gate import KeyGate, OpenGate

if TYPE_CHECKING:
    from .serving import Serving
    from .sharing import Sharing

PACK_AFTER = 10.0
"""Seconds without a call after which a key is packed."""
LONGEST_KEY = 1024
MOST_CEILINGS = 10_000
"""Keys for which an operator may set a limit."""
MOST_ALIASES = 4096
"""Other spellings of keys that are remembered."""
TIDY_STEPS = 64
"""Keys that one tidying may put away or forget."""
OPENING_STEPS = 2
"""... and those that opening a key does by the way."""
TIDY_EVERY = 0.01
TIDY_SELDOM = 1.0
"""Seconds between two tidyings, while there is work and when there is none."""


_HEAD = struct.Struct("ddq")
"""What a packed key must tell without being unpacked: ``used_at``, ``idle_from`` and its calls."""


def pack(gate: KeyGate, now: float) -> bytes | None:
    """A gate as one small string; None if it is in use."""
    gate.controller.rest()
    state = gate.to_state()
    if state is None or len(gate.flight):
        return None
    told = marshal.dumps((state, gate.refused, gate.failed))
    return _HEAD.pack(gate.used_at, gate.idle_from(now), gate.seq) + zlib.compress(told, 1)


def unpack(gate: KeyGate, packed: bytes, now: float) -> None:
    told = marshal.loads(zlib.decompress(packed[_HEAD.size :]))  # noqa: S302 - written by this very process
    state, gate.refused, gate.failed = told
    gate.load_state(state, now)


class Keys:
    def __init__(
        self,
        config: RateLimitConfig,
        limiter: Serving,
        for_key: Callable[[str], RateLimitConfig],
        sharing: Sharing | None = None,
    ) -> None:
        self.config = config
        self.sharing = sharing
        self.for_key = for_key
        self.limiter = limiter
        self.gates: OrderedDict[str, KeyGate] = OrderedDict()
        self.packed: OrderedDict[str, bytes] = OrderedDict()
        self.forgotten = 0
        """Calls that were let through under keys since forgotten."""
        self._packed_calls = 0
        self.tidy_at = 0.0
        self._aliases: dict[str, str] = {}
        self.ceilings: dict[str, float] = {}
        """What an operator has set; it outlives the gates."""
        self._policies: dict[int, GatePolicy] = {}

    def __len__(self) -> int:
        return len(self.gates) + len(self.packed)

    def open(self, key: str, now: float) -> KeyGate:
        """The gate of a key, made or unpacked if need be."""
        gate = self.gates.get(key)
        if gate is None:
            name = self._aliases.get(key) or self._name(key)
            gate = self.gates.get(name)
        if gate is None:
            packed = self.packed.get(name)
            if packed is not None:
                used_at, idle_from, _ = _HEAD.unpack_from(packed)
                if used_at + self.config.domain_state_ttl <= now and idle_from <= now:
                    self._forget(name, now)
                packed = self.packed.pop(name, None)
            if packed is None and len(self) >= self.config.max_keys:
                self._make_room(name, now)
            gate = self.gates[name] = self._make(name, packed, now)
            if packed is not None:
                self._packed_calls -= gate.seq
            self.tidy(now, OPENING_STEPS)
        else:
            self.touch(gate, now)
        return gate

    def part(self, key: str, pace_key: str, config: RateLimitConfig, now: float) -> None:
        """The gate of a key goes to another key; its circuit stays behind, in a new gate with these settings."""
        if (key not in self.gates and key not in self.packed) or pace_key in self.gates or pace_key in self.packed:
            return
        moved = self.open(key, now)
        if key in self.ceilings:
            self.ceilings[pace_key] = self.ceilings.pop(key)
        if self.sharing is not None:  # what was learned lies in the store, under each of the two names
            self.gates[key], self.gates[pace_key] = self._gate(key, config, now), moved
            self.sharing.move(moved, pace_key)
            return
        fresh = self._gate(key, config, now)
        fresh.breaker, moved.breaker = moved.breaker, Breaker(self._policy(self.for_key(pace_key)).breaker)
        fresh.circuit_told, moved.circuit_told = moved.circuit_told, fresh.circuit_told
        fresh.seq = moved.seq  # a circuit knows its calls by their numbers
        fresh.check_at = max(fresh.check_at, fresh.seq + 1)
        moved.key = pace_key
        self.gates[key], self.gates[pace_key] = fresh, moved
        for gate in (fresh, moved):
            gate.follow(now)

    def touch(self, gate: KeyGate, now: float) -> None:
        """The key was used just now."""
        gate.used_at = now
        self.gates.move_to_end(gate.key)

    def calls(self) -> int:
        """Calls let through so far, under whatever key."""
        return self.forgotten + sum(gate.seq for gate in self.gates.values()) + self._packed_calls

    def _name(self, key: str) -> str:
        """What a key is filed under: hosts in one spelling, everything else as it is."""
        if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
            what = f"a string of {len(key)}" if isinstance(key, str) else f"{type(key).__name__}"
            raise ConfigError(f"key={what} must be a string of 1 to {LONGEST_KEY} characters")  # it may hold a secret
        name = host_key(key)
        if self.config.group_subdomains:
            name = group_key(name)
        if name != key:
            if len(self._aliases) >= MOST_ALIASES:
                self._aliases.clear()
            self._aliases[key] = name
        return name

    def look(self, key: str, now: float) -> KeyGate | None:
        """The gate of a key as it is; None if there is none. It is not touched, and a packed one stays packed."""
        if key in self.gates:
            return self.gates[key]
        name = self._aliases.get(key) or self._name(key)
        packed = self.packed.get(name)
        return self.gates.get(name) if packed is None else self._make(name, packed, now)

    def names(self, most: int) -> list[str]:
        """Of the keys used last, packed ones included, newest first."""
        used = nlargest(most, reversed(self.gates.values()), key=lambda gate: max(gate.used_at, gate.last_sent_at))
        return [gate.key for gate in used] + list(islice(reversed(self.packed), most - len(used)))

    def newest(self, most: int, now: float) -> list[KeyGate]:
        """The keys used last, packed ones included, newest first."""
        gates = nlargest(most, reversed(self.gates.values()), key=lambda gate: max(gate.used_at, gate.last_sent_at))
        for name, packed in reversed(self.packed.items()):
            if len(gates) >= most:
                break
            gates.append(self._make(name, packed, now))
        return gates

    def tidy(self, now: float, steps: int = TIDY_STEPS) -> None:
        """Pack what was idle for a while and forget what was for long, a few keys at a time."""
        packing, forgetting = self._pack_idle(now, steps), self._forget_old(now, steps)
        self.tidy_at = now + (TIDY_EVERY if packing or forgetting else TIDY_SELDOM)

    def _pack_idle(self, now: float, steps: int) -> bool:
        done = 0
        for oldest in list(islice(self.gates.values(), steps)):
            if oldest.used_at + min(PACK_AFTER, self.config.domain_state_ttl) > now:
                return False
            if oldest.used_at + self.config.domain_state_ttl <= now and self._is_idle(oldest, now):
                self._forget(oldest.key, now)
                done += 1
                continue
            closed = oldest.breaker.state is CircuitState.CLOSED
            packed = pack(oldest, now) if closed and not len(oldest.flight) and not oldest.waited_for else None
            if packed is None:  # out of the way of those behind it
                self.gates.move_to_end(oldest.key)
            else:
                del self.gates[oldest.key]
                self._packed_calls += oldest.seq
                self.packed[oldest.key] = packed
                done += 1
        return done > 0

    def _forget_old(self, now: float, steps: int) -> bool:
        for _ in range(steps):
            name = next(iter(self.packed), None)
            if name is None:
                return False
            used_at, idle_from, _ = _HEAD.unpack_from(self.packed[name])
            if used_at + self.config.domain_state_ttl > now:
                return False
            if idle_from > now:
                self.packed.move_to_end(name)
            else:
                self._forget(name, now)
        return True

    def _make_room(self, name: str, now: float) -> None:
        """Forget the key that was not used for longest, of those that hold nothing back."""
        for candidate, packed in self.packed.items():
            if _HEAD.unpack_from(packed)[1] <= now:
                return self._forget(candidate, now)
        for gate in self.gates.values():
            if self._is_idle(gate, now):
                return self._forget(gate.key, now)
        raise TooManyKeysError(
            name, f"all of max_keys={self.config.max_keys} keys are in use; raise max_keys or group keys together"
        )

    def _is_idle(self, gate: KeyGate, now: float) -> bool:
        return not gate.waited_for and gate.idle_from(now) <= now

    def _forget(self, name: str, now: float) -> None:
        packed = self.packed.pop(name, None)
        gate: KeyGate | None
        if packed is None:
            gate = self.gates.pop(name)
            calls = gate.seq
        else:
            gate = self._make(name, packed, now) if self.limiter.tell.is_watched else None
            calls = _HEAD.unpack_from(packed)[2]
            self._packed_calls -= calls
        self.forgotten += calls
        if gate is not None:
            self.limiter.tell.note("key_evicted", gate, now, "not used for a while")

    def _make(self, name: str, packed: bytes | None, now: float) -> KeyGate:
        gate = self._gate(name, self.for_key(name), now)
        if packed is not None:
            unpack(gate, packed, now)
        if name in self.ceilings:
            gate.limit(self.ceilings[name], now)
        return gate

    def limit(self, key: str, ceiling: float | None, now: float) -> None:
        """An operator's word on the pace of a key, whether it is in use or will be."""
        gate = self.open(key, now)
        if not gate.learns:
            raise ConfigError(f"{gate.key}: its limiting is switched off, so no limit can be set")
        if ceiling is None:
            self.ceilings.pop(gate.key, None)
        elif gate.key not in self.ceilings and len(self.ceilings) >= MOST_CEILINGS:
            raise ConfigError(f"{gate.key}: limits are set for {MOST_CEILINGS:,} keys already; lift some of them")
        else:
            self.ceilings[gate.key] = ceiling
        gate.limit(ceiling, now)

    def _gate(self, name: str, config: RateLimitConfig, now: float) -> KeyGate:
        if self.sharing is not None and config.enabled:
            return self.sharing.gate(name, self._policy(config), config, now)
        return (KeyGate if config.enabled else OpenGate)(name, self.limiter, self._policy(config), now)

    def _policy(self, config: RateLimitConfig) -> GatePolicy:
        policy = self._policies.get(id(config))
        if policy is None:
            policy = self._policies[id(config)] = config.gate_policy()
        return policy
