"""What the adaptive controller keeps, how much that is, and how it is put away and taken out again."""

from __future__ import annotations

import marshal
import sys
import tracemalloc
import zlib
from array import array
from enum import Enum

import pytest

from headgate.core.control.adaptive import Adaptive, AdaptivePolicy
from headgate.core.control.adaptive.block import Block
from headgate.core.control.adaptive.books import Books
from headgate.core.control.adaptive.burst import Burst
from headgate.core.control.adaptive.concurrency import ConcurrencyCap
from headgate.core.control.adaptive.delay import DelayWatch
from headgate.core.control.adaptive.estimator import Meter
from headgate.core.control.adaptive.growth import Curve
from headgate.core.control.adaptive.headers import HeaderLaw
from headgate.core.control.adaptive.lookout import Lookout
from headgate.core.control.adaptive.refusals import Refusals
from headgate.core.control.adaptive.room import Room
from headgate.core.control.adaptive.rooms import Rooms
from headgate.core.control.adaptive.seeker import QuotaSeeker
from headgate.core.control.adaptive.sendlog import RESTING_MARKS, SendLog
from headgate.core.control.adaptive.sharing import Sharing
from headgate.core.control.adaptive.turns import Turns
from headgate.core.decision import Outcome
from headgate.core.signal import SILENT
from headgate.core.ticket import Ticket


def test_a_fresh_key_is_tiny():
    policy = AdaptivePolicy()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        controllers = [Adaptive(policy) for _ in range(200)]
        for at, controller in enumerate(controllers):
            for n in range(1, 6):
                ticket = Ticket(controller, n, 10.0 * n + at, 0)
                controller.on_send(ticket, ticket.sent_at)
                controller.on_answer(ticket, SILENT[Outcome.OK], 0.1, ticket.sent_at + 0.1)
        del ticket
        each = (tracemalloc.get_traced_memory()[0] - before) / len(controllers)
    finally:
        tracemalloc.stop()
    assert each < 512


ROOMS = {
    Block: (),
    Books: (0.0,),
    Burst: (),
    ConcurrencyCap: (),
    Curve: (),
    DelayWatch: (),
    HeaderLaw: (),
    Lookout: (),
    Meter: (),
    QuotaSeeker: (1.0, 1.0, 0.0),
    Refusals: (),
    Rooms: (),
    SendLog: (),
    Sharing: (),
    Turns: (),
}


def alter(room):
    """Give every field of a room another value of its kind."""
    for name in room.stored:
        value = getattr(room, name)
        if isinstance(value, Room):
            alter(value)
            continue
        if isinstance(value, Enum):
            new = [other for other in type(value) if other is not value][-1]
        elif isinstance(value, bool):
            new = not value
        elif isinstance(value, array):
            new = array(value.typecode, [3, 5])
        elif isinstance(value, tuple):
            new = (2, 4)
        else:
            new = 2.5 if value is None else 7 if isinstance(value, int) else 0.125
        setattr(room, name, new)


def fields(room):
    return {name: fields(value) if isinstance(value := getattr(room, name), Room) else value for name in room.stored}


@pytest.mark.parametrize("kind", ROOMS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_room_is_put_away_and_taken_out_again(kind):
    room, reborn = kind(*ROOMS[kind]), kind(*ROOMS[kind])
    alter(room)
    assert fields(room) != fields(reborn)
    reborn.load_state(marshal.loads(marshal.dumps(room.to_state())))
    assert fields(reborn) == fields(room)


@pytest.mark.parametrize("kind", ROOMS, ids=lambda kind: kind.__name__)
def test_a_state_of_another_shape_is_refused(kind):
    room = kind(*ROOMS[kind])
    with pytest.raises(ValueError, match="zip"):
        room.load_state((*room.to_state(), 1.0))


BUSY = {
    "bucket": lambda lab: lab.World(lab.TokenBucket(50, 50)),
    "bucket with headers": lambda lab: lab.World(lab.TokenBucket(50, 50), headers=True),
    "window": lambda lab: lab.World(lab.FixedWindow(600, 60, phase=20.0)),
    "window that tells": lambda lab: lab.World(lab.FixedWindow(100, 10, phase=3.0), retry_after=3.0),
    "at once": lambda lab: lab.World(lab.AtOnce(16), service=0.4),
    "queue": lambda lab: lab.World(lab.Queue(8), workers=256, service=0.1),
}


def held(value, seen):
    """Bytes of everything a controller holds on to."""
    if id(value) in seen or isinstance(value, (type, AdaptivePolicy)):
        return 0
    seen.add(id(value))
    names = value.__slots__ if isinstance(value, Adaptive) else getattr(value, "stored", ())
    parts = value if isinstance(value, tuple) else [getattr(value, name) for name in names]
    return sys.getsizeof(value) + sum(held(part, seen) for part in parts)


@pytest.mark.parametrize("world", BUSY.values(), ids=BUSY)
def test_a_busy_controller_is_small_and_one_that_rests_fits_into_a_kilobyte(lab, world):
    world = world(lab)
    for until in (2, 20, 200):
        world.run(until)
        controller = world.controller
        assert held(controller, set()) < 10_000, f"{until} s"
        controller.rest()
        assert len(zlib.compress(marshal.dumps(controller.to_state()), 1)) < 850, f"{until} s; the gate needs some too"


def test_a_controller_goes_on_after_a_rest(lab):
    world = lab.World(lab.TokenBucket(50, 50))
    world.run(60)
    world.controller.rest()
    assert len(world.controller.rooms.seeker.books.sends.instants) <= 2 * RESTING_MARKS
    tally = world.run(120)
    assert tally.served >= 0.95 * 50 * 60
    assert tally.refused_share <= 0.01


def test_a_controller_without_rooms_rests_and_is_put_away_too():
    controller, reborn = Adaptive(AdaptivePolicy()), Adaptive(AdaptivePolicy())
    controller.rest()
    controller.done = 3
    reborn.load_state(controller.to_state())
    assert (reborn.done, reborn.rooms) == (3, None)
