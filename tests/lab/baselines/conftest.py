from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from headgate.lab.baselines import ClientSetup

SEED = 7


class SameDraw(random.Random):
    """Chance that always falls the same way."""

    def __init__(self, draw: float) -> None:
        super().__init__(0)
        self.draw = draw

    def random(self) -> float:
        return self.draw


class TinyWorld:
    """A server that admits everything from instant 10 on, or so many calls at once."""

    def __init__(self, keys: int, at_once: float) -> None:
        self.trip = 0.5
        self.oracle_out = [0] * keys
        self.most = at_once
        self.rate = 40.0

    def free_in(self, now: float, key: int) -> float:
        return max(0.0, 10.0 - now)

    def is_full(self, now: float, key: int) -> bool:
        return now < 10.0

    def allowed_between(self, start: float, end: float) -> float:
        return self.rate * (end - start)

    def at_once(self, now: float, key: int) -> float:
        return self.most


@pytest.fixture
def setup() -> Callable[..., ClientSetup]:
    """A setup with plain numbers; ``draw`` is what chance always says, None leaves it free."""

    def take(
        *, keys: int = 1, workers: int = 3, processes: int = 1, draw: float | None = 0.5, at_once: float = math.inf
    ) -> ClientSetup:
        return ClientSetup(
            processes=processes,
            workers=workers,
            keys=keys,
            rng=random.Random(SEED) if draw is None else SameDraw(draw),
            nominal=40.0,
            server=TinyWorld(keys, at_once),
        )

    return take
