"""Members in virtual time that lease, use, give back, idle, die and come back, around one coordinator.

A member asks again when half of its lease is used, uses a number when the line has reached it by what it was last told,
and listens every 40 ms. Messages take ``trip`` seconds each way and may be lost on the way there or back.
"""

import heapq
import random
from bisect import bisect_left, bisect_right
from dataclasses import replace

import pytest

from headgate.distributed.coordinator import QuotaCoordinator
from headgate.distributed.protocol import QuotaTerms, SyncRequest

LISTEN_EVERY = 0.04
DAY = 1_700_000_000.0


class Member:
    def __init__(self, population, name, demand, trip, cost):
        self.population, self.name, self.trip, self.cost = population, name, trip, cost
        self.demand = demand
        """Calls a second that arrive here."""
        self.arrived_at = population.now
        self.backlog = 0.0
        self.number = 0
        self.held = []
        self.era = 0
        self.back = 0
        self.answered_at = None
        self.line, self.rate, self.told_at, self.hold_until = 0.0, 1.0, 0.0, 0.0
        self.starts = []
        self.flying = []
        """When each call in the air ends."""
        self.latency = 0.0
        self.alive = True
        self.lease = 1
        self.generation = 0
        self.news = {}
        self.replies = []

    def due_at(self, number):
        missing = max(0.0, number + 1 - self.line)
        return max(self.told_at, self.hold_until) + missing / self.rate

    def go_on(self, now):
        """Use every number whose time has come by now."""
        used = 0
        for number in self.held:
            at = max(self.due_at(number), self.told_at)
            if at > now:
                break
            arrived = self.backlog + (at - self.arrived_at) * self.demand
            if arrived < 1 - 1e-9:
                if self.backlog + (now - self.arrived_at) * self.demand < 1 - 1e-9:
                    break
                at = self.arrived_at + (1 - self.backlog) / self.demand
                arrived = 1.0
            self.backlog, self.arrived_at = min(arrived, 1e6) - 1, at
            self.starts.append(at)
            if self.latency:
                self.flying.append(at + self.latency)
            used += 1
        del self.held[:used]
        self.backlog = min(1e6, self.backlog + (now - self.arrived_at) * self.demand)
        self.arrived_at = now
        self.flying = [at for at in self.flying if at > now]

    def sync(self, now, **more):
        self.go_on(now)
        self.number += 1
        idle = self.backlog < 1 and self.demand < 1e-9
        if idle or more.get("leaves"):
            self.back, self.held = self.back + len(self.held), []
        wanted = 0 if more.get("leaves") else max(0, int(min(self.backlog, 1000)) - len(self.held))
        request = SyncRequest(
            member=self.name,
            number=self.number,
            elapsed=0.0 if self.answered_at is None else now - self.answered_at,
            terms=self.population.terms,
            asks=((wanted, self.cost),) if wanted else (),
            span=4 * self.trip,
            era=self.era,
            back=self.back,
            flying=len(self.flying) + len(self.held),
            **{**self.news, **more},
        )
        self.back, self.news = 0, {}
        return request

    def take(self, reply, request, sent_at, now):
        self.go_on(now)
        self.answered_at = sent_at
        self.replies.append(reply)
        if reply.era != self.era:
            self.era, self.held = reply.era, []
        self.line, self.rate, self.told_at = reply.line, reply.rate, now
        self.hold_until = now + reply.hold
        if reply.granted:
            self.lease = reply.granted
            self.held += [reply.first + i for i in range(reply.granted)]
        soonest = now + (min(reply.wait, LISTEN_EVERY) if reply.short_of else LISTEN_EVERY)
        if self.held and not reply.short_of:
            return min(soonest, max(now, self.due_at(self.held[(len(self.held) - 1) // 2])))
        return soonest


class Population:
    """One coordinator and its members. ``clock`` turns true time into the store's."""

    def __init__(self, terms, seed=0, lose=0.0):
        self.terms, self.random, self.lose = terms, random.Random(seed), lose
        self.now = 100.0
        self.clock = lambda now: now
        self.coordinator = QuotaCoordinator(terms, self.clock(self.now))
        self.members = {}
        self.queue = []
        self.count = 0
        self.exchanges = 0

    def at(self, when, what, *arguments):
        self.count += 1
        heapq.heappush(self.queue, (when, self.count, what, arguments))

    def join(self, name, demand=1e9, trip=0.0005, cost=None, latency=0.0):
        member = self.members[name] = Member(self, name, demand, trip, cost or {})
        member.latency = latency
        if demand >= 1e9:
            member.demand, member.backlog = 0.0, 1e6
            member.demand = 1e6
        self.at(self.now + self.random.random() * 0.01, self._send, member, member.generation, {})
        return member

    def send(self, member, **more):
        """A request out of turn; its next regular one follows from it."""
        member.generation += 1
        self._send(member, member.generation, more)

    def die(self, name):
        member = self.members[name]
        member.go_on(self.now)
        member.alive, member.demand = False, 0.0

    def leave(self, name):
        self.send(self.members[name], leaves=True)
        self.members[name].alive = False

    def _send(self, member, generation, more):
        if not member.alive or generation != member.generation:
            return
        request = member.sync(self.now, **more)
        if self.random.random() >= self.lose:
            self.at(self.now + member.trip, self._arrive, member, generation, request, self.now)
        else:
            self.at(self.now + 0.05, self._send_again, member, generation, request)

    def _send_again(self, member, generation, request):
        """The same request, with what has passed since."""
        if member.alive and generation == member.generation:
            elapsed = 0.0 if member.answered_at is None else self.now - member.answered_at
            self._arrive(member, generation, replace(request, elapsed=elapsed), self.now)

    def _arrive(self, member, generation, request, sent_at):
        reply, _ = self.coordinator.sync(request, self.clock(self.now), DAY + self.now)
        self.exchanges += 1
        if self.random.random() >= self.lose:
            self.at(self.now + member.trip, self._answer, member, generation, request, reply, sent_at)
        else:
            self.at(self.now + 0.05, self._send_again, member, generation, request)

    def _answer(self, member, generation, request, reply, sent_at):
        if member.alive and generation == member.generation:
            self.at(member.take(reply, request, sent_at, self.now), self._send, member, generation, {})

    def run(self, seconds):
        until = self.now + seconds
        while self.queue and self.queue[0][0] <= until:
            self.now, _, what, arguments = heapq.heappop(self.queue)
            what(*arguments)
        self.now = until
        for member in self.members.values():
            if member.alive:
                member.go_on(until)

    def starts(self, since=0.0):
        return sorted(at for member in self.members.values() for at in member.starts if at > since)

    def started(self, name, since, until):
        starts = self.members[name].starts
        return bisect_right(starts, until) - bisect_left(starts, since)


def most_over(starts, rate, *, over=1.01, least=1.0, permits=200):
    """By how many calls the worst window, at least so long and so full, lies above ``over`` times the rate."""
    worst, lowest, first = float("-inf"), float("inf"), 0
    shortest = max(least, permits / rate)
    for i, at in enumerate(starts):
        while starts[first] <= at - shortest:
            lowest = min(lowest, first - over * rate * starts[first])
            first += 1
        if lowest < float("inf"):
            worst = max(worst, i + 1 - over * rate * at - lowest)
    return worst


@pytest.fixture
def population():
    def make(rate=100.0, burst=4.0, most=1e9, seed=0, lose=0.0, **terms):
        return Population(QuotaTerms(rate=rate, burst=burst, most=most, **terms), seed, lose)

    return make


@pytest.fixture
def over():
    return most_over
