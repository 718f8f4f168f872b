"""The script does what the coordinator in Python does: thousands of random requests, no bit differs."""

import json
import math
import random
from dataclasses import replace

import pytest
import redis

from headgate.distributed.backends.redis import SYNC, _message, _reply
from headgate.distributed.coordinator import MOST_MEMBERS, QuotaCoordinator
from headgate.distributed.grants import Member
from headgate.distributed.protocol import Publication, QuotaTerms, SyncRequest

pytestmark = [pytest.mark.usefixtures("patient"), pytest.mark.no_cover]

VISITS = 600
AT_ONCE = 100
START = 1_700_000_000.0
TIME = (
    ("local clock = tonumber(time[1]) + tonumber(time[2]) / 1e6", "local clock = tonumber(ARGV[6])"),
    ("local wall = clock", "local wall = tonumber(ARGV[7])"),
)
"""The script's clock, and what a test puts in its place."""
NO_EXPIRY = repr(1e15)
DUMP = """
local function words(value)
  if type(value) == 'number' then return string.format('%.17g', value) end
  if type(value) ~= 'table' then return cjson.encode(value) end
  local parts = {}
  if value[1] ~= nil or next(value) == nil then
    for place, one in ipairs(value) do parts[place] = words(one) end
    return '[' .. table.concat(parts, ',') .. ']'
  end
  for name, one in pairs(value) do parts[#parts + 1] = cjson.encode(name) .. ':' .. words(one) end
  return '{' .. table.concat(parts, ',') .. '}'
end
return words(cmsgpack.unpack(redis.call('HGET', KEYS[1], 'desk')))
"""
MEMBER = ("seen_at", "number", "granted_to", "granted", "first", "era", "probe", "flying", "gone", "asked_at", "span")
MEMBER += ("hungry_at", "solo")
assert set(MEMBER) == set(Member.__slots__)
SAME = ("skew", "at", "issued", "line", "era", "hold_until", "rate", "cap", "circuit_open", "open_until", "probes")
SAME += ("leader", "fence", "has_learned", "saved_wall", "noted", "covers", "word")
assert {*SAME, "members", "quotas", "terms", "period"} == set(QuotaCoordinator.__slots__)


@pytest.fixture
def script():
    text = SYNC.text
    for ours, instead in TIME:
        assert text.count(ours) == 1
        text = text.replace(ours, instead)
    return text


class Model:
    """The coordinator in Python with what lies beside it, as any store would keep it."""

    def __init__(self):
        self.coordinator, self.notes, self.learned = None, [], ""

    def sync(self, request, now, wall):
        if self.coordinator is None:
            self.coordinator = QuotaCoordinator(request.terms, now)
        reply, actions = self.coordinator.sync(request, now, wall)
        if actions.keep is not None:
            self.notes.append(actions.keep)
        self.learned = actions.save or self.learned
        self.notes = [note for note in self.notes if note.number > actions.forget_to]
        given = [note for note in self.notes if note.number > actions.give_after and note.member != actions.but_not_of]
        return replace(
            reply,
            notes=tuple(given) if actions.give_after >= 0 else (),
            learned=self.learned if actions.give_learned else "",
        )

    def state(self):
        coordinator = self.coordinator
        return {
            **{name: getattr(coordinator, name) for name in SAME},
            "seats": {
                name: [getattr(member, field) for field in MEMBER] for name, member in coordinator.members.items()
            }
            or [],
            "limits": [
                [one.dimension, one.amount, one.window, one.burst, one.level, one.filled_at, one.spent]
                for one in coordinator.quotas
            ],
            "start": coordinator.terms.rate,
            "burst": coordinator.terms.burst,
            "most": coordinator.terms.most,
            "most_probes": coordinator.terms.probes,
            "probe_for": coordinator.terms.probe_for,
        }


class Crowd:
    """Members that say anything at any time, mostly what members would say."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.now, self.wall = START + self.draw.random(), START
        self.rate = self.draw.choice([0.5, 7.0, 120.0, 5000.0])
        self.members = [f"member-{n}-é@host" for n in range(self.draw.choice([1, 2, 5, 9]))]
        self.capped, self.limited, self.breaks = (self.draw.random() < 0.5 for _ in range(3))
        self.last, self.replies, self.seen = {}, {}, {}
        self.terms = self.some_terms()

    def some_terms(self):
        draw, limits = self.draw, []
        if self.limited:
            for name in draw.sample(["tokens", "requests", "Zeichen", "a day", "ä"], draw.randint(1, 3)):
                for window in draw.sample([0.5, 1.0, 60.0, 7200.0], draw.choice([1, 1, 2])):
                    amount = draw.choice([5.0, 40.0, 1e4])
                    limits.append((name, amount, window, draw.choice([amount, amount / 3, 1.0])))
        return QuotaTerms(
            rate=self.rate,
            burst=draw.choice([1.0, 2.5, 20.0]),
            most=draw.choice([self.rate / 2, self.rate * 3, 1e6]),
            probes=draw.choice([1, 1, 3]),
            probe_for=draw.choice([0.05, 1.0, 15.0]),
            limits=tuple(limits),
        )

    def step(self):
        draw = self.draw
        kind = draw.random()
        gap = draw.expovariate(1 / 0.004) if kind < 0.9 else draw.choice([0.0, 0.12, 0.3, 1.1, 3.5, 31.0])
        self.now += gap
        self.wall += gap
        if draw.random() < 0.004:
            self.now += draw.choice([-3600.0, -2.0, 2.0, 7200.0])
        if draw.random() < 0.004:
            self.wall += draw.choice([-3600.0, 90_000.0])

    def sync(self):
        self.step()
        draw = self.draw
        if draw.random() < 0.01:
            self.terms = self.some_terms()
        if draw.random() < 0.01:
            self.members.append(f"late-{draw.random()}")
        member = draw.choice(self.members)
        last = self.last.get(member)
        if last is not None and draw.random() < 0.08:
            return last  # the same request, sent again
        elapsed = max(0.0, self.now - self.seen.get(member, self.now) + draw.uniform(-0.01, 0.01))
        reply = self.replies.get(member)
        request = SyncRequest(
            member=member,
            number=last.number + 1 if last else 1,
            elapsed=elapsed,
            terms=self.terms,
            asks=self.asks(),
            span=draw.choice([0.0, 0.0, 0.1, 9.0]),
            era=reply.era - (draw.random() < 0.2) if reply else 0,
            solo=draw.random() < 0.1,
            taken=draw.choice([0] * 9 + [1, 40]),
            back=draw.choice([0, 0, 0, 1, 5]),
            refund=self.refund(),
            refund_ago=draw.choice([0.0, 0.02, 0.9]),
            apart={"tokens": draw.uniform(0, 9), "ä": 1.0} if draw.random() < 0.05 else {},
            flying=draw.choice([0, 1, 3, 12]),
            probe_over=draw.random() < 0.1,
            rest=draw.choice([0.0] * 30 + [0.05, 1.5]),
            note=draw.choice(["", "", 'saw {"x": 1} \n', "ünï \ud800 0 1 2 "]),
            publication=self.publication(reply),
            leaves=draw.random() < 0.02,
        )
        self.last[member], self.seen[member] = request, self.now
        return request

    def asks(self):
        draw = self.draw
        names = ["tokens", "requests", "Zeichen", "a day", "ä", "other"]
        costs = [
            {name: draw.choice([0.0, 0.5, 1.0, 3.0, 17.0]) for name in draw.sample(names, draw.randint(0, 4))}
            for _ in range(draw.choice([0, 1, 1, 3]))
        ]
        return tuple((draw.choice([1, 1, 2, 30, 400]), cost) for cost in costs)

    def refund(self):
        draw = self.draw
        return {"tokens": draw.uniform(-9, 9), "requests": 1.0, "gone": 2.0} if draw.random() < 0.1 else {}

    def publication(self, reply):
        draw = self.draw
        if reply is None or not reply.fence or draw.random() < 0.4:
            return None
        broken = self.breaks and draw.random() < 0.3
        return Publication(
            fence=reply.fence - (draw.random() < 0.1),
            rate=self.rate * draw.choice((0.0, draw.uniform(0.5, 2.0), draw.uniform(0.5, 2.0))),
            hold=draw.choice([0.0] * 20 + [0.02, 0.6]),
            skip=draw.choice([0.0, 0.0, 0.7, 2.0]),
            cap=draw.choice([0.5, 3.0, 40.7]) if self.capped else 0.0,
            word=draw.randint(0, 9),
            circuit_open=broken,
            open_for=draw.choice([0.0, 0.03, 0.5]) if broken else 0.0,
            read=reply.notes[-1].number if reply.notes else reply.covers,
            learned=draw.choice(["", "", "what was learned ü"]),
            covers=max([reply.covers, *(note.number for note in reply.notes[:2])]) + 5 * (draw.random() < 0.02),
        )


@pytest.mark.parametrize("seed", range(24))
def test_script_and_coordinator_agree_on_every_request(redis_server, script, seed):
    crowd, model = Crowd(seed), Model()
    client = redis.Redis(port=redis_server.port, protocol=2, socket_timeout=None)
    sha = client.script_load(script)
    for begin in range(0, VISITS, AT_ONCE):
        expected, pipeline = [], client.pipeline(transaction=False)
        for number in range(begin, begin + AT_ONCE):
            request = crowd.sync()
            reply = crowd.replies[request.member] = model.sync(request, crowd.now, crowd.wall)
            expected.append((number, request, reply))
            pipeline.evalsha(sha, 1, seed, *_message(request), NO_EXPIRY, repr(crowd.now), repr(crowd.wall))
        for (number, request, reply), answer in zip(expected, pipeline.execute(), strict=True):
            assert _reply(answer) == reply, f"seed {seed}, request {number}: {request}"
        state = json.loads(client.eval(DUMP, 1, seed))
        state.pop("terms_text")
        assert state == model.state(), f"seed {seed}, after request {begin + AT_ONCE}"
        notes = {str(note.number).encode() for note in model.notes}
        assert set(client.hkeys(seed)) - {b"desk", b"learned"} == notes, f"seed {seed}, after request {begin + AT_ONCE}"
    assert all(math.isfinite(value) for _, _, reply in expected for value in (reply.line, reply.wait, reply.rate))
    client.close()


def test_of_too_many_members_both_forget_the_same(redis_server, script):
    """Two at a time come at the same instant, so that the name has to decide."""
    model = Model()
    client = redis.Redis(port=redis_server.port, protocol=2, socket_timeout=None)  # no command is sent twice
    sha = client.script_load(script)
    requests = []
    for number in range(MOST_MEMBERS + 20):
        name, now = f"{number * 7919 % 10_000:05}", START + number // 2 * 0.001
        requests.append((SyncRequest(member=name, number=1, terms=QuotaTerms(rate=9.0, burst=1.0, most=9.0)), now))
    for begin in range(0, len(requests), AT_ONCE):
        pipeline = client.pipeline(transaction=False)
        expected = [model.sync(request, now, now) for request, now in requests[begin : begin + AT_ONCE]]
        for request, now in requests[begin : begin + AT_ONCE]:
            pipeline.evalsha(sha, 1, "crowd", *_message(request), NO_EXPIRY, repr(now), repr(now))
        assert [_reply(answer) for answer in pipeline.execute()] == expected
    assert set(json.loads(client.eval(DUMP, 1, "crowd"))["seats"]) == set(model.coordinator.members)
    assert len(model.coordinator.members) == MOST_MEMBERS
    client.close()


def test_the_random_requests_reach_every_room_of_the_quota():
    """Else agreement would prove little."""
    reached = set()
    for seed in range(24):
        crowd, model = Crowd(seed), Model()
        for _ in range(VISITS):
            request = crowd.sync()
            reply = crowd.replies[request.member] = model.sync(request, crowd.now, crowd.wall)
            reached |= {
                reply.short_of,
                f"probe {reply.probe}",
                f"notes {bool(reply.notes)}",
                f"granted {bool(reply.granted)}",
            }
            reached |= {f"learned {bool(reply.learned)}", f"leads {bool(reply.fence)}", f"hold {reply.hold > 0}"}
    assert reached >= {"", "turn", "solo", "depth", "circuit", "pace", "tokens", "requests", "ä"}
    both = {
        f"{what} {is_so}"
        for what in ("probe", "notes", "granted", "learned", "leads", "hold")
        for is_so in (True, False)
    }
    assert reached >= both
