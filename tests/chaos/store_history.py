"""What happened to all who share a quota while their store failed, and whether it may have happened.

A history is a list of facts from all processes, by the machine's one monotonic clock. The judgements below speak of the
facts alone and know nothing of how they came about. Where one is about time they allow for what the machine did itself:
every process writes down when its event loop was woken too late, and by how much.
"""

from bisect import bisect_left
from collections import defaultdict
from typing import NamedTuple

LEASE_SECONDS = 0.03
OVER = 1.01
WINDOW = 1.0
NEAR = 0.05
"""Seconds before a window in which a delay of the machine's moves permits into it."""
NOTICED = 0.1
"""Seconds within which a fault is noticed by a busy member, and another's refusal heard of."""
BACK_WITHIN = 5.0
LOOK_EVERY = 2.0
"""Seconds between two looks of a coordinator at its store."""


class Permit(NamedTuple):
    given_at: float
    asked_at: float
    member: str
    key: str
    task: str


class Fault(NamedTuple):
    begun_at: float
    ended_at: float


class State(NamedTuple):
    at: float
    alone: bool
    era: int
    count: int


class History:
    def __init__(self, limit, members):
        self.limit, self.count = limit, members
        self.permits, self.faults, self.crashes = [], [], []
        self.events, self.states = defaultdict(list), defaultdict(list)
        self.late = defaultdict(list)
        """By process."""
        self.told, self.handed, self.rested = [], [], []
        self.failures, self.in_step_after = {}, []
        self.gone = {}
        """Members that were killed, and when."""

    def hear(self, line):
        """One line of a process; see ``store_member.py``."""
        match line.split():
            case "permit", member, key, task, asked_at, given_at:
                self.permits.append(Permit(float(given_at), float(asked_at), member, key, task))
            case "event", member, at, kind:
                self.events[member].append((float(at), kind))
            case "state", member, at, alone, era, count:
                self.states[member].append(State(float(at), alone == "1", int(era), int(count)))
            case "late", process, begin, end:
                self.late[process].append((float(begin), float(end)))
            case "told", _, at, seconds:
                self.told.append((float(at), float(seconds)))
            case "handed", member, at, label:
                self.handed.append((float(at), member, label))
            case "rested", member, at, label, seconds:
                self.rested.append((float(at), member, label, float(seconds)))
            case "failures", member, count:
                self.failures[member] = int(count)
            case _:
                self.crashes.append(line)

    def in_step_since(self, after):
        """Since when all are at work together, as of now; None if they are not."""
        latest = [states[-1] for member, states in list(self.states.items()) if member not in self.gone]
        agreed = {(state.alone, state.era, state.count) for state in latest}
        if len(latest) != self.count or len(agreed) != 1:
            return None
        ((alone, _, count),) = agreed
        return max(after, *(state.at for state in latest)) if not alone and count == self.count else None

    # ------------------------------------------------------------------ what the machine did

    def delayed(self, process, begin, end):
        """For how many of these seconds this process's loop was kept waiting."""
        return sum(max(0.0, min(end, to) - max(begin, since)) for since, to in self.late[process])

    def longest_delay(self, begin, end):
        return max((to - since for ones in self.late.values() for since, to in ones if to > begin and since < end), default=0.0)

    # ------------------------------------------------------------------ judgements

    def judge(self, *, felt):
        """All that must hold; returns what was measured. ``felt``: whether members cannot but notice the fault."""
        self.permits.sort()
        assert not self.crashes, self.crashes
        assert self.faults
        measured = {"faults": len(self.faults), "permits": len(self.permits)}
        measured |= self._windows() | self._waits() | self._work() | self._steps() | self._refusals()
        if felt:
            measured |= self._events()
        measured |= self._credentials()
        wrong = [name for name, value in measured.items() if isinstance(value, tuple) and not value[0] <= value[1]]
        return measured, wrong

    def _windows(self):
        """No second holds more than the limit and 1 %, and a lease of each member for each fault that it overlaps."""
        lease = self.limit * LEASE_SECONDS + 1
        instants = [permit.given_at for permit in self.permits if permit.key == "full"]
        worst, fullest, over = -float("inf"), 0, 0.0
        for index, at in enumerate(instants):
            inside = bisect_left(instants, at + WINDOW) - index
            faults = sum(
                fault.begun_at < at + WINDOW and at < fault.ended_at + after
                for fault, after in zip(self.faults, self.in_step_after, strict=True)
            )
            noise = self.limit * self.longest_delay(at - NEAR, at + 0.01)
            allowed = self.limit * WINDOW * OVER + lease * self.count * faults + noise
            worst, fullest = max(worst, inside - allowed), max(fullest, inside)
            over = max(over, inside - noise - self.limit * WINDOW * OVER)
        return {"beyond what is allowed": (worst, 0.0), "fullest window": fullest, "over 1.01 of the limit, less noise": over}

    def _waits(self):
        """While the store is away, a call that is within its share hardly waits."""
        raw = self._calm_waits(lambda at: any(f.begun_at <= at <= f.ended_at for f in self.faults))
        usual = self._calm_waits(lambda at: not any(f.begun_at - 0.1 <= at <= f.ended_at + a for f, a in zip(self.faults, self.in_step_after, strict=True)))
        return {
            "p99 wait while away": (percentile(raw, 0.99), 0.06),
            "p50 wait while away": percentile(raw, 0.5),
            "longest wait while away": max(raw, default=0.0),
            "calls while away": len(raw),
            "p99 wait otherwise": percentile(usual, 0.99),
        }

    def _calm_waits(self, when):
        return [
            permit.given_at
            - permit.asked_at
            - self.delayed(permit.member.partition(".")[0], permit.asked_at, permit.given_at)
            for permit in self.permits
            if permit.key == "calm" and when(permit.asked_at)
        ]

    def _work(self):
        """Work goes on while the store is away, and is back at the limit afterwards."""
        instants = [permit.given_at for permit in self.permits if permit.key == "full"]
        between = lambda begin, end: bisect_left(instants, end) - bisect_left(instants, begin)  # noqa: E731
        long = [(f.begun_at + NOTICED, f.ended_at) for f in self.faults if f.ended_at - f.begun_at > 3 * NOTICED]
        measured = {}
        if long:
            done = sum(between(*one) for one in long) / (self.limit * sum(end - begin for begin, end in long))
            measured = {"share of the limit unused while away": (1 - done, 0.3)}
        used = []
        for fault, after in zip(self.faults, self.in_step_after, strict=True):
            begin = fault.ended_at + after + NOTICED
            end = min([at for at, _ in self.told if at > begin], default=begin)
            if end - begin > 0.5:
                used.append(between(begin, end) / (self.limit * (end - begin)))
        return measured | {"share unused once back": (1 - sum(used) / len(used), 0.1), "least used once back": min(used)}

    def _steps(self):
        return {"longest until back in step": (max(self.in_step_after), BACK_WITHIN)}

    def _refusals(self):
        """One member's 429 holds all of them."""
        instants = [permit.given_at for permit in self.permits if permit.key == "full"]
        early, last = 0, 0.0
        for at, seconds in self.told:
            for given_at in instants[bisect_left(instants, at) : bisect_left(instants, at + seconds)]:
                after = given_at - at - self.longest_delay(at, given_at)
                last = max(last, after)
                early += after > NOTICED
        assert self.told
        return {"started in spite of a refusal": (early, 0), "last start after a refusal": last}

    def _events(self):
        missed = 0
        for member, events in self.events.items():
            for fault, after in zip(self.faults, self.in_step_after, strict=True):
                if member in self.gone:
                    continue
                inside = [kind for at, kind in events if fault.begun_at <= at <= fault.ended_at + after + NOTICED]
                missed += "store_lost" not in inside or "store_back" not in inside
        assert all(self.failures.values()), self.failures
        return {"members who did not say that it was lost and back": (missed, 0)}

    def _credentials(self):
        """A credential that was told to rest is not handed out: by who told it at once, by others once it can be known."""
        own = others = 0
        by_label = defaultdict(list)
        for at, member, label in self.handed:
            by_label[label].append((at, member))
        for rested_at, by, label, seconds in self.rested:
            known_at = rested_at
            for fault, after in zip(self.faults, self.in_step_after, strict=True):
                if fault.begun_at <= rested_at <= fault.ended_at:
                    known_at = fault.ended_at + after
            for at, member in by_label[label]:
                own += member == by and rested_at < at < rested_at + seconds
                others += member != by and known_at + LOOK_EVERY + 1.0 < at < rested_at + seconds
        return {"rested credentials handed out by who knew": (own, 0), "... by others": (others, 0), "rests": len(self.rested)}


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
