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
from collections.abc import Callable, Mapping
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from ..config import RateLimitConfig
from ..core.breaker import Breaker
from ..core.decision import UNKNOWN, CircuitState
from ..core.gate import Gate, GatePolicy
from ..core.signal import Signal
from ..core.ticket import Ticket
from ..errors import ConfigError, TooManyKeysError
from ..wire.urls import group_key, host_key
from .permit import LongPermit, Permit

if TYPE_CHECKING:
    from .line import Line
    from .serving import Serving
    from .sharing import Sharing

PACK_AFTER = 10.0
"""Seconds without a call after which a key is packed."""
LONGEST_KEY = 1024
MOST_ALIASES = 4096
"""Other spellings of keys that are remembered."""
TIDY_STEPS = 64
"""Keys that one tidying may put away or forget."""
OPENING_STEPS = 2
"""... and those that opening a key does by the way."""
TIDY_EVERY = 0.01
TIDY_SELDOM = 1.0
"""Seconds between two tidyings, while there is work and when there is none."""


class KeyGate(Gate):
    """The gate of one key, with its name, its limiter and the line in front of it."""

    __slots__ = ("key", "limiter", "line", "used_at")
    learns = True

    def __init__(self, key: str, limiter: Serving, policy: GatePolicy, now: float) -> None:
        super().__init__(policy, Permit, LongPermit)
        self.key = key
        self.used_at = now
        """When it was opened, or a call of it last ended."""
        self.limiter = limiter
        self.line: Line | None = None

    if TYPE_CHECKING:  # its tickets are permits

        def ask_plainly(self, now: float) -> Permit | None: ...
        def admit(self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None) -> Permit: ...


class OpenGate(KeyGate):
    """The gate of a key whose limiting is switched off: it opens for everybody and learns nothing."""

    __slots__ = ()
    learns = False

    def __init__(self, key: str, limiter: Serving, policy: GatePolicy, now: float) -> None:
        super().__init__(key, limiter, policy, now)
        self.buckets = None

    def objection(self, *_: object) -> None:
        return None

    def follow(self, now: float) -> None:
        """Whatever was taken, the next call may start too."""
        self.tokens, self.rate, self.easy_from = self.burst, self.controller.rate, UNKNOWN

    def _learn(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        self.answers += 1


_HEAD = struct.Struct("ddq")
"""What a packed key must tell without being unpacked: ``used_at``, ``idle_from`` and its calls."""


def pack(gate: KeyGate, now: float) -> bytes | None:
    """A gate as one small string; None if it is in use."""
    gate.controller.rest()
    state = gate.to_state()
    if state is None or len(gate.flight):
        return None
    return _HEAD.pack(gate.used_at, gate.idle_from(now), gate.seq) + zlib.compress(marshal.dumps(state), 1)


def unpack(gate: KeyGate, packed: bytes, now: float) -> None:
    state = marshal.loads(zlib.decompress(packed[_HEAD.size :]))  # noqa: S302 - written by this very process
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
        if self.sharing is not None:
            self.gates[key] = self._gate(key, config, now)
            return
        moved = self.open(key, now)
        fresh = self._gate(key, config, now)
        fresh.breaker, moved.breaker = moved.breaker, Breaker(self._policy(self.for_key(pace_key)).breaker)
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
        name = self._aliases.get(key) or self._name(key)
        packed = self.packed.get(name)
        return self.gates.get(name) if packed is None else self._make(name, packed, now)

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
        return gate

    def _gate(self, name: str, config: RateLimitConfig, now: float) -> KeyGate:
        if self.sharing is not None and config.enabled:
            return self.sharing.gate(name, self._policy(config), config, now)
        return (KeyGate if config.enabled else OpenGate)(name, self.limiter, self._policy(config), now)

    def _policy(self, config: RateLimitConfig) -> GatePolicy:
        policy = self._policies.get(id(config))
        if policy is None:
            policy = self._policies[id(config)] = config.gate_policy()
        return policy
