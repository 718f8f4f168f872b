"""failsafe-go's AdaptiveThrottler: the SRE book's throttling with a threshold one can name.

Calls are dropped once over 10 % of the answers of the last minute were failures (K = 1 / 0.9), by a chance of 0.9 at
most, so that something always gets through to notice a recovery. Unlike the book it counts answers, not asks.

Falls short: the chance follows the share that was refused and not how many calls would fit, and what it drops comes
back a moment later. With work waiting all the time it settles where over half of all calls are refused, more than by
the book; against a server that counts refusals it locks itself out.
"""

from __future__ import annotations

from .contract import Clients, Seat
from .sre import ThrottlePolicy
from .sre import clients as throttled

POLICY = ThrottlePolicy(accepts_worth=1 / 0.9, window=60.0, most=0.9, counts_asks=False)


def clients(seat: Seat) -> Clients:
    return throttled(seat, POLICY)
