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
NEAR, INSTANT = 0.05, 0.01
"""Seconds before and after the beginning of a window in which a delay of the machine's moves permits into it."""
NOTICED = 0.1
"""Seconds within which a fault is noticed by a busy member, and another's refusal heard of."""
BACK_WITHIN = 5.0
FULL_PACE_WITHIN = 1.0
"""Seconds after a fault within which all are together again, and within which the whole limit is used again."""
SPELL, FULL = 0.3, 0.8
"""Seconds over which a pace is measured, and which share of the limit is a full one."""
LONGEST_WAIT = 0.06
NOISY = 0.1
"""A period of which the machine took a larger share says nothing of how much work can be done."""
LOOK_EVERY = 2.0
LATER = 0.5
"""Seconds between two looks of a coordinator at its store, at which it also keeps what could not be kept before; and by
how much a busy machine may delay one."""


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
        self.gone, self.blind = {}, set()
        """Members that were killed, and when; and those that could not look at what is known when they came."""

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
            case "told", member, at, seconds:
                self.told.append((float(at), member, float(seconds)))
            case "handed", member, at, label:
                self.handed.append((float(at), member, label))
            case "rested", member, at, label, seconds:
                self.rested.append((float(at), member, label, float(seconds)))
            case "blind", member:
                self.blind.add(member)
            case "failures", member, count:
                self.failures[member] = int(count)
            case _:
                self.crashes.append(line)

    def in_step_since(self, after):
        """Since when all are at work together, as they say by now; None if they are not."""
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
        return max(
            (to - since for ones in self.late.values() for since, to in ones if to > begin and since < end), default=0.0
        )

    # ------------------------------------------------------------------ judgements

    def judge(self, *, felt):
        """All that must hold: what was measured, and the names of what is beyond its bound.

        ``felt``: whether members cannot but notice the fault.
        """
        self.permits.sort()
        assert not self.crashes, self.crashes
        measured = {"faults": len(self.faults), "permits": len(self.permits), "noise": self.noise()}
        measured |= self._windows() | self._waits() | self._work() | self._steps() | self._refusals()
        if felt:
            measured |= self._events()
        measured |= self._credentials()
        return measured, [name for name, said in measured.items() if isinstance(said, tuple) and said[0] > said[1]]

    def noise(self):
        """Of how much of the time the machine kept one of the processes waiting."""
        begin, end = self.faults[0].begun_at, self.permits[-1].given_at
        return max((self.delayed(process, begin, end) for process in self.late), default=0.0) / (end - begin)

    def _windows(self):
        """No second holds more than the limit and 1 %, and a lease of each member for each time it lost the store.

        A fault counts for all of them, and so does, for the one concerned, a loss that the machine alone brought about.
        """
        lease = self.limit * LEASE_SECONDS + 1
        periods = [
            (fault.begun_at, fault.ended_at + max(after, NOTICED))
            for fault, after in zip(self.faults, self.in_step_after, strict=True)
        ]
        losses = sorted(at for member in self.events for at in self._losses(member, periods))
        instants = [permit.given_at for permit in self.permits if permit.key == "full"]
        worst, over = -float("inf"), 0.0
        for index, at in enumerate(instants):
            inside = bisect_left(instants, at + WINDOW) - index
            times = self.count * sum(begin < at + WINDOW and at < end for begin, end in periods)
            times += bisect_left(losses, at + WINDOW) - bisect_left(losses, at - NOTICED)
            most = self.limit * WINDOW * OVER + self.limit * self.longest_delay(at - NEAR, at + INSTANT)
            worst, over = max(worst, inside - most - lease * times), max(over, inside - most)
        return {"beyond what is allowed": (worst, 0.0), "more than the limit": over}

    def _losses(self, member, periods):
        """When this member lost the store though there was no fault."""
        lost = {at for at, kind in self.events[member] if kind == "store_lost"}
        return [at for at in lost if not any(begin <= at <= end for begin, end in periods)]

    def _waits(self):
        """While the store is away, a call that is within its share hardly waits."""
        away, usual = [], []
        for permit in self.permits:
            if permit.key == "calm":
                process = permit.member.partition(".")[0]
                wait = permit.given_at - permit.asked_at - self.delayed(process, permit.asked_at, permit.given_at)
                (away if any(begin <= permit.asked_at <= end for begin, end in self.faults) else usual).append(wait)
        return {
            "calls while away": len(away),
            "... that waited too long": (sum(wait > LONGEST_WAIT for wait in away), max(1, 0.01 * len(away))),
            "p50 wait while away": percentile(away, 0.5),
            "p99 wait while away": percentile(away, 0.99),
            "p99 wait otherwise": percentile(usual, 0.99),
        }

    def _work(self):
        """Work goes on while the store is away, and is back at the limit afterwards."""
        away = [(f.begun_at + NOTICED, f.ended_at) for f in self.faults if f.ended_at - f.begun_at > 3 * NOTICED]
        back = []
        for fault, after in zip(self.faults, self.in_step_after, strict=True):
            begin = fault.ended_at + after + NOTICED
            back.append((begin, min((at for at, *_ in self.told if at > begin), default=begin)))
        measured = {
            "unused once back": (1 - self._used(back), 0.15),
            "longest until full pace": (max(map(self._until_full_pace, self.faults)), FULL_PACE_WITHIN),
        }
        return {"unused while away": (1 - self._used(away), 0.3), **measured} if away else measured

    def _until_full_pace(self, fault):
        """Seconds from a fault's end to the first spell in which the limit is used, without delays of the machine."""
        instants = [permit.given_at for permit in self.permits if permit.key == "full"]
        at, least = fault.ended_at, FULL * SPELL * self.limit
        while bisect_left(instants, at + SPELL) - bisect_left(instants, at) < least:
            after = bisect_left(instants, at + 1e-6)
            if after == len(instants) or instants[after] > fault.ended_at + BACK_WITHIN:
                return BACK_WITHIN
            at = instants[after]
        delayed = max((self.delayed(process, fault.ended_at, at) for process in self.late), default=0.0)
        return at - fault.ended_at - delayed

    def _used(self, periods):
        """Which share of the limit, in the time that the machine left them."""
        instants = [permit.given_at for permit in self.permits if permit.key == "full"]
        done = had = 0.0
        for begin, end in periods:
            delayed = max((self.delayed(process, begin, end) for process in self.late), default=0.0)
            if delayed <= NOISY * (end - begin):
                done += bisect_left(instants, end) - bisect_left(instants, begin)
                had += end - begin - delayed
        return done / (self.limit * had) if had else 1.0

    def _steps(self):
        return {"longest until back in step": (max(self.in_step_after), BACK_WITHIN)}

    def _refusals(self):
        """One member's 429 holds all of them, but for whom the machine itself kept from the store at that moment."""
        full = [permit for permit in self.permits if permit.key == "full"]
        early, last, heard = 0, 0.0, 0
        for at, by, seconds in self.told:
            if self._was_alone(by, at, at + NOTICED):
                continue
            heard += 1
            for permit in full[bisect_left(full, (at,)) : bisect_left(full, (at + seconds,))]:
                after = permit.given_at - at - self.longest_delay(at, permit.given_at)
                if not self._was_alone(permit.member, at, permit.given_at):
                    last, early = max(last, after), early + (after > NOTICED)
        return {
            "started in spite of a refusal": (early, 0),
            "last start after a refusal": last,
            "refusals that were not passed on": (len(self.told) - heard, 0.2 * len(self.told)),
        }

    def _events(self):
        """Everybody was without the store each time, said so, counted it, and said that it is back."""
        began_at, missed, uncounted = self.faults[0].begun_at, 0, 0
        there = [member for member, states in self.states.items() if states[0].at < began_at]
        for member in there:
            uncounted += max(0, len(self.faults) - self.failures[member])
            for fault, after in zip(self.faults, self.in_step_after, strict=True):
                until = fault.ended_at + after + NOTICED
                came_back = any(k == "store_back" and fault.begun_at <= at <= until for at, k in self.events[member])
                missed += not (came_back and self._was_alone(member, fault.begun_at, fault.ended_at))
        return {"members that did not say so": (missed, 0), "losses that were not counted": (uncounted, 0)}

    def _was_alone(self, member, begin, end):
        """Whether this member was without the store at any moment, by what it said. It takes a while to notice."""
        lost_at = None
        for at, kind in self.events[member]:
            if kind == "store_lost" and lost_at is None:
                lost_at = at - NOTICED
            elif kind == "store_back" and lost_at is not None:
                if lost_at <= end and begin <= at:
                    return True
                lost_at = None
        return lost_at is not None and lost_at <= end

    def _credentials(self):
        """What was told to rest is not handed out by who told it, by newcomers, or by others once they can know."""
        wrong, handed = 0, defaultdict(list)
        came_at = {member: states[0].at for member, states in self.states.items()}
        for at, member, label in self.handed:
            handed[label].append((at, member))
        for rested_at, by, label, seconds in self.rested:
            kept_at = self._looked_at(rested_at)
            for at, member in handed[label]:
                is_new = came_at[member] > kept_at and member not in self.blind
                known_at = came_at[member] if is_new else self._looked_at(max(kept_at, came_at[member]))
                wrong += (rested_at if by == member else known_at) < at < rested_at + seconds
        newcomers = sum(came_at[member] > self.faults[-1].ended_at for _, member, _ in self.handed)
        return {
            "rests": len(self.rested),
            "handed out by newcomers": newcomers,
            "resting credentials that were handed out": (wrong, 0),
        }

    def _looked_at(self, at):
        """By when a coordinator has looked at its store, which it cannot during a fault."""
        by = at + LOOK_EVERY + LATER
        for fault, after in zip(self.faults, self.in_step_after, strict=True):
            if fault.begun_at - NOTICED <= by and fault.ended_at + after >= at:
                by = max(by, fault.ended_at + after) + LOOK_EVERY
        return by


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
