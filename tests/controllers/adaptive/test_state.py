"""What the adaptive controller keeps, how much that is, and how it is put away and taken out again."""

from __future__ import annotations

import marshal
import sys
import tracemalloc
import zlib
from array import array
from enum import Enum

import pytest

from headgate.controllers.adaptive import Adaptive, AdaptiveSettings
from headgate.controllers.adaptive.call_history import RESTING_MARKS, CallHistory, RefusalLog, SendLog
from headgate.controllers.adaptive.call_sizes import CallSizes
from headgate.controllers.adaptive.concurrency import ConcurrencyCap
from headgate.controllers.adaptive.estimator import Burst, QuotaEstimator
from headgate.controllers.adaptive.growth_probe import GrowthProbe
from headgate.controllers.adaptive.headers import HeaderModel
from headgate.controllers.adaptive.latency_model import LatencyModel
from headgate.controllers.adaptive.limit_models import LimitModels
from headgate.controllers.adaptive.pace_curve import PaceCurve
from headgate.controllers.adaptive.rate_search import RateSearch
from headgate.controllers.adaptive.sharing_detector import SharingDetector
from headgate.controllers.adaptive.state import Storable
from headgate.controllers.adaptive.window import Block, WindowPhase
from headgate.core.decision import Outcome
from headgate.core.policy import Ticket
from headgate.core.signal import SILENT

pytestmark = pytest.mark.no_cover


def test_a_fresh_key_is_tiny():
    policy = AdaptiveSettings()
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


PLAIN = (
    Block,
    CallHistory,
    Burst,
    ConcurrencyCap,
    PaceCurve,
    LatencyModel,
    HeaderModel,
    GrowthProbe,
    CallSizes,
    RefusalLog,
    SendLog,
    SharingDetector,
    WindowPhase,
)


def search():
    found = RateSearch.start()
    found.estimator.sizes = CallSizes()
    return found


MODELS = {kind: kind for kind in PLAIN} | {
    QuotaEstimator: lambda: QuotaEstimator(sizes=CallSizes()),
    RateSearch: search,
    LimitModels: lambda: LimitModels(token_model=HeaderModel(), search=search()),
}


def alter(model):
    """Give every field of a model another value of its kind."""
    for name in model.stored:
        value = getattr(model, name)
        if isinstance(value, Storable):
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
        setattr(model, name, new)


def fields(model):
    return {
        name: fields(value) if isinstance(value := getattr(model, name), Storable) else value for name in model.stored
    }


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_model_is_put_away_and_taken_out_again(kind):
    model, reborn = MODELS[kind](), MODELS[kind]()
    alter(model)
    assert fields(model) != fields(reborn)
    reborn.load_state(marshal.loads(marshal.dumps(model.to_state())))
    assert fields(reborn) == fields(model)


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_a_state_of_another_shape_is_refused(kind):
    model = MODELS[kind]()
    with pytest.raises(ValueError, match="does not fit"):
        model.load_state((*model.to_state(), 1.0, *[1.0] * model.added))


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
    if id(value) in seen or isinstance(value, (type, AdaptiveSettings)):
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
    assert len(world.controller.models.search.history.sends.instants) <= 2 * RESTING_MARKS
    tally = world.run(120)
    assert tally.served >= 0.95 * 50 * 60
    assert tally.refused_share <= 0.01


def test_a_controller_without_models_rests_and_is_put_away_too():
    controller, reborn = Adaptive(AdaptiveSettings()), Adaptive(AdaptiveSettings())
    controller.rest()
    controller.done = 3
    reborn.load_state(controller.to_state())
    assert (reborn.done, reborn.models) == (3, None)
