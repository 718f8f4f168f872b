"""The keys of a limiter: found in one lookup, packed when idle, evicted when old.

    in use ──10 s without a call──> packed (under 1 KB) ──ttl──> evicted
       ^────────── next call ──────────┘

Both maps are kept in the order of last use, so the search for idle keys starts at the oldest end and costs nothing
where there is nothing to do. There is no background thread: opening a key and reporting an answer each do a little of
the tidying.

A key with a call in flight, a call that waits, a circuit that is not closed, a bucket that is not full or a hold is
never evicted: that would let calls through that it holds back.
"""

from __future__ import annotations

import marshal
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, cast

from ..config import RateLimitConfig
from ..core.circuit_breaker import Breaker
from ..core.decision import CircuitState
from ..core.gate import Gate
from ..core.gate_config import GateConfig
from ..core.quota import QuotaPolicy
from ..errors import ConfigError, TooManyKeysError
from ..wire.urls import group_key, host_key
from .events import LimiterEvents
from .key_entry import KeyEntry, OpenGate

if TYPE_CHECKING:
    from ..distributed.sync_loop import SyncLoop
    from .completion import Completion

PACK_AFTER = 10.0
"""Seconds without a call after which a key is packed."""
LONGEST_KEY = 1024
MOST_CEILINGS = 10_000
"""Keys for which an operator may set a limit, and those that share known limits."""
MOST_ALIASES = 4096
"""Other spellings of keys that are remembered."""
TIDY_STEPS = 64
"""Keys that one tidying may pack or evict."""
OPENING_STEPS = 2
"""... and those that opening a key may."""
TIDY_EVERY = 0.01
TIDY_SELDOM = 1.0
"""Seconds between two tidyings, while there is work and when there is none."""
_HEAD = struct.Struct("ddq")
"""What can be read of a packed key without unpacking it: ``used_at``, ``idle_from`` and its calls."""
_RAW = -zlib.MAX_WBITS
"""Compressed without a header and a checksum: what is packed never leaves the process."""


def pack(entry: KeyEntry, now: float) -> bytes | None:
    """An entry as one small string; None if it is in use."""
    gate = entry.gate
    gate.controller.rest()
    state = gate.to_state()
    if state is None or len(gate.in_flight) or _shares_limits(entry):
        return None
    packed = marshal.dumps((state, entry.refused, entry.failed))
    return _HEAD.pack(entry.used_at, gate.idle_from(now), gate.seq) + zlib.compress(packed, wbits=_RAW)


def unpack(entry: KeyEntry, packed: bytes, now: float) -> None:
    found = marshal.loads(zlib.decompress(packed[_HEAD.size :], _RAW))  # noqa: S302 - written by this very process
    state, entry.refused, entry.failed = found
    entry.gate.load_state(state, now)


class KeyRegistry:
    """The keys of one limiter. Its methods are called under the limiter's lock."""

    def __init__(
        self,
        config: RateLimitConfig,
        for_key: Callable[[str], RateLimitConfig],
        events: LimiterEvents,
        sync: SyncLoop | None = None,
    ) -> None:
        """With a ``sync`` loop, the quotas of all keys are shared through its store."""
        self.config = config
        self.entries: OrderedDict[str, KeyEntry] = OrderedDict()
        self.packed: OrderedDict[str, bytes] = OrderedDict()
        self.find: Callable[[str], KeyEntry | None] = self.entries.get
        """The entry of a key for the fast path; None while no call may take it."""
        self.sink = cast("Completion", None)
        """What the permits of keys opened from now on end at; must be set before one is given."""
        self.tidy_at = 0.0
        self._for_key = for_key
        self._events = events
        self._note_change = events.note_change  # one bound method for all keys
        self._sync = sync
        self._evicted_calls = self._packed_calls = 0
        """Calls that were let through under keys that are evicted, or packed."""
        self._aliases: dict[str, str] = {}
        self._ceilings: dict[str, float] = {}
        """What an operator has set; it outlives the entries."""
        self._limit_groups: dict[str, set[str]] = {}
        """By key: all keys that spend of the same known limits; it outlives the entries too."""
        self._gate_configs: dict[int, GateConfig] = {}

    def __len__(self) -> int:
        return len(self.entries) + len(self.packed)

    # ------------------------------------------------------------------ finding

    def allow_fast_path(self, is_allowed: bool) -> None:
        self.find = self.entries.get if is_allowed else _find_none

    def open(self, key: str, now: float) -> KeyEntry:
        """The entry of a key, made or unpacked if need be."""
        entry = self.entries.get(key)
        if entry is None:
            name = self._aliases.get(key) or self._name(key)
            entry = self.entries.get(name)
        if entry is None:
            packed = self.packed.get(name)
            if packed is not None:
                used_at, idle_from, _ = _HEAD.unpack_from(packed)
                if used_at + self.config.domain_state_ttl <= now and idle_from <= now:
                    self._evict(name, now)
                packed = self.packed.pop(name, None)
            if packed is None and len(self) >= self.config.max_keys:
                self._make_room(name, now)
            entry = self.entries[name] = self._make(name, packed, now)
            if packed is not None:
                self._packed_calls -= entry.gate.seq
            self.tidy(now, OPENING_STEPS)
        else:
            entry.used_at = now
            self.entries.move_to_end(entry.key)
        return entry

    def open_all(self, key: str, also: tuple[str, ...], now: float) -> list[KeyEntry]:
        """The entries of a call's keys: its own first, the others in sorted order."""
        entry = self.open(key, now)
        more = {other.key: other for other in (self.open(name, now) for name in also) if other is not entry}
        entries = [entry, *(more[name] for name in sorted(more))]
        if any(one.key not in self.entries for one in entries):  # the last to be opened took the place of the first
            raise TooManyKeysError(
                entry.key, f"one call uses more keys than max_keys={self.config.max_keys}; raise max_keys"
            )
        return entries

    def peek(self, key: str, now: float) -> KeyEntry | None:
        """The entry of a key as it is; None if there is none. It does not count as used, and stays packed."""
        if key in self.entries:
            return self.entries[key]
        name = key if key in self.packed else self._aliases.get(key) or self._name(key)
        packed = self.packed.get(name)
        return self.entries.get(name) if packed is None else self._make(name, packed, now)

    def recent_names(self, most: int) -> list[str]:
        """The names of the keys used last, packed ones included, the most recent first."""
        used = nlargest(most, reversed(self.entries.values()), key=_last_use)
        return [entry.key for entry in used] + list(islice(reversed(self.packed), most - len(used)))

    def touch(self, entry: KeyEntry, now: float) -> None:
        """The key was used just now."""
        entry.used_at = now
        self.entries.move_to_end(entry.key)

    def calls(self) -> int:
        """Calls let through so far, under all keys."""
        return self._evicted_calls + sum(entry.gate.seq for entry in self.entries.values()) + self._packed_calls

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

    # ------------------------------------------------------------------ packing and evicting

    def tidy(self, now: float, steps: int = TIDY_STEPS) -> None:
        """Pack what was idle for a while and evict what was for long, a few keys at a time."""
        packed, evicted = self._pack_idle(now, steps), self._evict_old(now, steps)
        self.tidy_at = now + (TIDY_EVERY if packed or evicted else TIDY_SELDOM)

    def _pack_idle(self, now: float, steps: int) -> bool:
        done = 0
        for oldest in list(islice(self.entries.values(), steps)):
            if oldest.used_at + min(PACK_AFTER, self.config.domain_state_ttl) > now:
                return False
            if oldest.used_at + self.config.domain_state_ttl <= now and _is_idle(oldest, now):
                self._evict(oldest.key, now)
                done += 1
                continue
            gate = oldest.gate
            is_closed = gate.breaker.state is CircuitState.CLOSED
            packed = pack(oldest, now) if is_closed and not len(gate.in_flight) and not gate.has_waiters else None
            if packed is None:  # out of the way of those behind it
                self.entries.move_to_end(oldest.key)
            else:
                del self.entries[oldest.key]
                self._packed_calls += gate.seq
                self.packed[oldest.key] = packed
                done += 1
        return done > 0

    def _evict_old(self, now: float, steps: int) -> bool:
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
                self._evict(name, now)
        return True

    def _make_room(self, name: str, now: float) -> None:
        """Evict the least recently used key of those that hold nothing back."""
        for candidate, packed in self.packed.items():
            if _HEAD.unpack_from(packed)[1] <= now:
                return self._evict(candidate, now)
        for entry in self.entries.values():
            if _is_idle(entry, now):
                return self._evict(entry.key, now)
        raise TooManyKeysError(
            name, f"all max_keys={self.config.max_keys} keys are in use; raise max_keys or group keys"
        )

    def _evict(self, name: str, now: float) -> None:
        packed = self.packed.pop(name, None)
        entry: KeyEntry | None
        if packed is None:
            entry = self.entries.pop(name)
            calls = entry.gate.seq
        else:
            entry = self._make(name, packed, now) if self._events.is_heard else None
            calls = _HEAD.unpack_from(packed)[2]
            self._packed_calls -= calls
        self._evicted_calls += calls
        if entry is not None:
            self._events.note("key_evicted", entry, now, "idle")

    # ------------------------------------------------------------------ making

    def set_ceiling(self, key: str, ceiling: float | None, now: float) -> KeyEntry:
        """Let no more calls a second start under a key, now and whenever it is opened again; None lifts that."""
        entry = self.open(key, now)
        if not entry.learns:
            raise ConfigError(f"{entry.key}: limiting is disabled for this key, so no limit can be set")
        if ceiling is None:
            self._ceilings.pop(entry.key, None)
        elif entry.key not in self._ceilings and len(self._ceilings) >= MOST_CEILINGS:
            raise ConfigError(
                f"{entry.key}: {MOST_CEILINGS:,} keys already have an operator's limit; remove some first"
            )
        else:
            self._ceilings[entry.key] = ceiling
        entry.gate.set_ceiling(ceiling, now)
        return entry

    def share_limits(self, key: str, owner: str, now: float) -> bool:
        """Let a key spend of the known limits of another, where both have the same. False: a store keeps them, so the
        key has its own."""
        spends, owns = self.open(key, now), self.open(owner, now)
        if spends is owns:
            return True
        if spends.key not in self._limit_groups:
            if len(self._limit_groups) >= MOST_CEILINGS:
                self._limit_groups.clear()
            group = self._limit_groups[spends.key] = self._limit_groups.setdefault(owns.key, {owns.key})
            group.add(spends.key)
        _share_limits(spends, owns)
        is_same = spends.gate.config.quotas == owns.gate.config.quotas
        return spends.client is None or not (spends.has_quotas and is_same)

    def split_pace(self, key: str, pace_key: str, config: RateLimitConfig, now: float) -> None:
        """Move the gate of a key to ``pace_key``; the key keeps its circuit, in a new gate with these settings."""
        if self._is_known(pace_key) or not self._is_known(key):
            return
        moved = self.open(key, now)
        if key in self._ceilings:
            self._ceilings[pace_key] = self._ceilings.pop(key)
        fresh = self._new(key, config, now)
        moved.key = pace_key
        self.entries[key], self.entries[pace_key] = fresh, moved
        if self._sync is not None:  # what was learned lies in the store, under each of the two names
            if moved.client is not None:
                self._sync.move(moved.client, pace_key)
            return
        breaker = moved.gate.breaker
        moved.gate.replace_breaker(Breaker(self._gate_config(self._for_key(pace_key)).breaker))
        fresh.gate.replace_breaker(breaker)
        fresh.circuit_noted, moved.circuit_noted = moved.circuit_noted, fresh.circuit_noted
        fresh.gate.seq = moved.gate.seq  # a circuit knows its calls by their numbers
        fresh.gate.check_at_seq = max(fresh.gate.check_at_seq, fresh.gate.seq + 1)
        for entry in (fresh, moved):
            entry.gate.apply_limits(now)

    def _is_known(self, name: str) -> bool:
        return name in self.entries or name in self.packed

    def _make(self, name: str, packed: bytes | None, now: float) -> KeyEntry:
        entry = self._new(name, self._for_key(name), now)
        if packed is not None:
            unpack(entry, packed, now)
        for other in self._limit_groups.get(name, ()):
            if other in self.entries:
                _share_limits(entry, self.entries[other])
        if name in self._ceilings:
            entry.gate.set_ceiling(self._ceilings[name], now)
        entry.rate_noted = entry.gate.pacer.learned_rate
        return entry

    def _new(self, name: str, config: RateLimitConfig, now: float) -> KeyEntry:
        gate_config = self._gate_config(config)
        gate = (Gate if config.enabled else OpenGate).local(gate_config)
        entry = KeyEntry(name, gate, self.sink, now, learns=config.enabled)
        gate.on_change = partial(self._note_change, entry)
        if self._sync is not None and config.enabled:
            entry.client = self._sync.client(name, entry, gate, config, gate_config, now)
        entry.rate_noted, entry.noted_in = gate.pacer.learned_rate, self._events.listenings
        return entry

    def _gate_config(self, config: RateLimitConfig) -> GateConfig:
        found = self._gate_configs.get(id(config))
        if found is None:
            found = self._gate_configs[id(config)] = config.gate_config()
        return found


def _find_none(_: str) -> None:
    return None


def _last_use(entry: KeyEntry) -> float:
    return max(entry.used_at, entry.gate.last_sent_at)


def _is_idle(entry: KeyEntry, now: float) -> bool:
    return not entry.gate.has_waiters and entry.gate.idle_from(now) <= now


def _shares_limits(entry: KeyEntry) -> bool:
    """Whether its limits are another key's too: it cannot be packed alone, only evicted once they are full."""
    quotas = entry.gate.policies.quotas
    return isinstance(quotas, QuotaPolicy) and quotas.queued is not None


def _share_limits(entry: KeyEntry, owner: KeyEntry) -> None:
    mine, theirs = entry.gate.policies.quotas, owner.gate.policies.quotas
    if isinstance(mine, QuotaPolicy) and isinstance(theirs, QuotaPolicy):
        mine.share(theirs)
