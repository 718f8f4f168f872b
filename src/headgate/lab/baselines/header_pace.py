"""Pace by the RateLimit headers, as clients of LLM APIs do: what was used, over the time until it is reset.

    with headers       rate = 0.95 * (limit - remaining) / reset, at least one call in 30 s
    without            4 calls a second at first; 1 % shorter intervals for a 200, half as long again for a 429
    a refusal          nothing before Retry-After is over

Falls short: the formula repeats what has been used instead of asking what is left, and reset is told in whole
seconds. A bucket that is nearly full says "1 used, reset in 1 s" whatever its rate: the client sends one a second, uses
one, and is told the same again. It starves beside a quota that is free.
"""

from __future__ import annotations

from .contract import OK, TOO_MANY, Clients, ClientSetup, Headers, Slots, shared_by_all, told_to_wait

FIRST_INTERVAL, SHORTEST, LONGEST = 0.25, 0.001, 30.0
MARGIN = 0.95
SLOWER, FASTER = 1.5, 0.99


class HeaderPace:
    def __init__(self) -> None:
        self.interval = FIRST_INTERVAL
        self.slots = Slots()

    def on_send(self, now: float) -> float:
        return self.slots.ask(now, interval=self.interval, slack=self.interval)

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        if headers and "ratelimit-remaining" in headers:
            used = float(headers["ratelimit-limit"]) - float(headers["ratelimit-remaining"])
            reset = float(headers["ratelimit-reset"])
            if used > 0.0 and reset > 0.0:
                self.interval = min(LONGEST, reset / (MARGIN * used))
        elif status == TOO_MANY:
            self.interval = min(LONGEST, self.interval * SLOWER)
        elif status == OK:
            self.interval = max(SHORTEST, self.interval * FASTER)
        if status == TOO_MANY:
            self.slots.next_at = max(self.slots.next_at, now + told_to_wait(headers))


def clients(setup: ClientSetup) -> Clients:
    return shared_by_all(setup, lambda key: HeaderPace())
