"""The mark of 100 %: a client that knows the server's state and is never refused.

No algorithm of anybody's; what all others are measured against. It asks the server when a call sent
now would be admitted on arrival. Under a limit on concurrency it keeps to a semaphore of exactly
that size, as a client could: a place is free again when the answer is back, not when the server
is done. Against windows it spaces its calls evenly, so that where a run happens to end does not
favour it; a client that uses up a partial first window at once may therefore reach a little over 100 %.
"""

from __future__ import annotations

from .contract import Clients, Foresight, Headers, Seat, shared_by_all
from .pacing import ROUNDING

LOOK_AGAIN = 0.005
"""How soon to ask again for a place under a limit on concurrency."""


class Oracle:
    def __init__(self, world: Foresight, key: int) -> None:
        self.world, self.key = world, key

    def on_send(self, now: float) -> float:
        world, key = self.world, self.key
        arrives_at = now + world.trip
        if world.oracle_out[key] >= world.at_once(arrives_at, key):
            return LOOK_AGAIN
        wait = world.free_in(arrives_at, key)
        if wait > ROUNDING:
            return wait
        world.oracle_out[key] += 1
        return 0.0

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        self.world.oracle_out[self.key] -= 1


def clients(seat: Seat) -> Clients:
    return shared_by_all(seat, lambda key: Oracle(seat.world, key))
