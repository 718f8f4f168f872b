"""Baselines whose limit follows the answers: a rate, a delay, or a number of calls in flight.

AIMD                    rate, up a little for a success and down by a share for a refusal; by the clock or per answer
CUBIC (AWS SDKs)        rate, a cubic curve back to where it was refused
header pace             rate, what the RateLimit headers say was used
AutoThrottle (Scrapy)   delay, a share of the latency
Gradient2 (Netflix)     calls in flight, as long as answers do not slow down
"""

from __future__ import annotations

import math
import random

from .backoff import BackoffBefore
from .contract import (
    OK,
    TOO_MANY,
    UNAVAILABLE,
    Clients,
    ClientSetup,
    Headers,
    Slots,
    Tokens,
    one_per_worker,
    shared_by_all,
    told_to_wait,
    wait_until,
)


class AimdInterval:
    """AIMD by the clock: one cut for a burst, and one step up in ten seconds.

        429, or 503 with Retry-After   rate *= 0.7, unless the call was sent before the last change
        200                            rate += 2, if nothing changed for 10 s and a call had to wait
        Retry-After                    nothing before it is over

    It starts at 10 calls a second, never goes below 0.1, and makes up for slots missed by up to 0.1 s.
    The rule of TCP as textbooks give it, with the constants of client-side limiters for slow APIs.

    Falls short: a step of 2 in 10 s takes 40 minutes to reach 500/s and is a leap of 20 % at 10/s; each cut gives
    away 30 % of what had just been found.
    """

    INITIAL, LEAST = 10.0, 0.1
    INCREASE, DECREASE = 2.0, 0.7
    INTERVAL = 10.0
    """Seconds without a change before the rate may rise."""
    SLACK = 0.1

    def __init__(self) -> None:
        self.rate = self.INITIAL
        self.slots = Slots()
        self.hold_until = 0.0
        self.changed_at = 0.0
        self.waited = False

    def on_send(self, now: float) -> float:
        wait = self.slots.ask(now, interval=1.0 / self.rate, slack=self.SLACK, not_before=self.hold_until)
        self.waited = self.waited or wait > 0.0
        return wait

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        told = told_to_wait(headers)
        if status == TOO_MANY or (status == UNAVAILABLE and told):
            self.hold_until = max(self.hold_until, now + told)
            if now - latency > self.changed_at:
                self.rate, self.changed_at = max(self.LEAST, self.rate * self.DECREASE), now
        elif status == OK and self.waited and now - self.changed_at >= self.INTERVAL:
            self.rate, self.changed_at, self.waited = self.rate + self.INCREASE, now, False


def aimd_interval_clients(setup: ClientSetup) -> Clients:
    return shared_by_all(setup, lambda key: AimdInterval())


class AimdPerResponse:
    """AIMD taken literally: every answer moves the rate (Chiu and Jain's rule, without the round it was meant for).

        200, not slow                      rate += 0.1
        200, slower than twice the usual   rate /= 2        the usual: an average that moves by 0.2 with each answer
        any failure                        rate /= 2        within 0.1 and 2000 calls a second, from 2; a bucket of 5
        5 failures in a row                nothing for 5 s, then one probe at a time decides
        Retry-After                        nothing before it is over

    Falls short: service times always vary, so ordinary slow answers halve the rate again and again, and it stays at a
    few calls a second whatever the quota. ``aimd-429`` is the same without the latency rule. Both pay for one
    burst with a cut for each refused call, which is how 50 calls/s become 0.1 within a round trip.
    """

    INITIAL, LEAST, MOST = 2.0, 0.1, 2000.0
    INCREASE, DECREASE = 0.1, 0.5
    BURST = 5.0
    RECENT = 0.2
    """Weight of one answer in the usual latency."""
    FAILURES_TO_OPEN = 5
    OPEN = 5.0
    """Seconds that nothing is sent after so many failures."""
    PROBE_POLL = 0.05
    """How soon to ask again while a probe is out."""

    def __init__(self, slow: float = 2.0) -> None:
        """``slow``: times the usual latency that count as overload."""
        self.slow = slow
        self.tokens = Tokens(self.INITIAL, self.BURST)
        self.usual: float | None = None
        self.hold_until = 0.0
        self.failures = 0
        self.open_until = 0.0
        self.half_open = False
        self.probe_out = False

    def on_send(self, now: float) -> float:
        wait = wait_until(max(self.open_until, self.hold_until), now)
        if wait:
            return wait
        if self.half_open and self.probe_out:
            return self.PROBE_POLL
        wait = self.tokens.take(now)
        self.probe_out = wait == 0.0
        return wait

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        told = told_to_wait(headers)
        if told:
            self.hold_until = max(self.hold_until, now + told)
        if status == OK:
            usual = latency if self.usual is None else self.usual
            self.usual = usual + self.RECENT * (latency - usual)
            self.failures, self.half_open = 0, False
            if latency < self.slow * usual:
                self.tokens.rate = min(self.MOST, self.tokens.rate + self.INCREASE)
                return
        self.tokens.rate = max(self.LEAST, self.tokens.rate * self.DECREASE)
        if status != OK:
            self.fail(now)

    def fail(self, now: float) -> None:
        self.failures += 1
        if self.half_open or (self.failures >= self.FAILURES_TO_OPEN and now >= self.open_until):
            self.open_until = now + self.OPEN
            self.half_open, self.probe_out, self.failures = True, False, 0


def aimd_per_response_clients(setup: ClientSetup, slow: float = 2.0) -> Clients:
    return shared_by_all(setup, lambda key: AimdPerResponse(slow))


def aimd_per_refusal_clients(setup: ClientSetup) -> Clients:
    return aimd_per_response_clients(setup, slow=math.inf)


class MeasuredRate:
    """Answers a second, smoothed over half-second intervals."""

    INTERVAL = 0.5
    SMOOTHING = 0.8

    def __init__(self) -> None:
        self.value = 0.0
        self.count = 0
        self.counted_from = 0.0

    def count_one(self, now: float) -> float:
        self.count += 1
        interval_at = math.floor(now / self.INTERVAL) * self.INTERVAL
        if interval_at > self.counted_from:
            fresh = self.count / (interval_at - self.counted_from)
            self.value = self.SMOOTHING * fresh + (1.0 - self.SMOOTHING) * self.value
            self.count, self.counted_from = 0, interval_at
        return self.value


class CubicLimiter:
    """The AWS SDKs' adaptive retry mode, as botocore has it: TCP CUBIC over a token bucket, behind full jitter.

        until the first 429     no limit at all
        429                     w = the rate now; rate = 0.7 w, and k = (0.3 w / 0.4)^(1/3)
        any other answer        rate = 0.4 (t - k)^3 + w        t: seconds since the last 429
        always                  at most twice the rate that was measured, and at least 0.5 calls a second

    The measured rate is counted over half seconds and moves by 0.8 towards each. Workers also rest by
    themselves after a failure: up to 1, 2, 4 ... 20 s.

    Falls short: w is the sending rate at the moment of the refusal, not what was admitted, and each 429 of one
    burst cuts again. The bucket may fill up to one second's worth, which a strict server refuses. Cubic growth
    soon overshoots a small quota and is slow to leave a large plateau; Retry-After is ignored.
    """

    SCALE, BETA = 0.4, 0.7
    LEAST_RATE, LEAST_CAPACITY = 0.5, 1.0
    HEADROOM = 2.0
    """Times the measured rate that may be allowed."""

    def __init__(self) -> None:
        self.enabled = False
        self.tokens = Tokens(self.LEAST_RATE, self.LEAST_CAPACITY, held=0.0)
        self.measured = MeasuredRate()
        self.refused_rate = 0.0
        self.refused_at = 0.0
        self.plateau = 0.0
        """Seconds after a 429 until the old rate is reached again."""

    def acquire(self, now: float) -> float:
        return self.tokens.take(now) if self.enabled else 0.0

    def learn(self, now: float, status: int, latency: float) -> None:
        measured = self.measured.count_one(now)
        if status == TOO_MANY:
            refused = min(measured, self.tokens.rate) if self.enabled else measured
            self.refused_rate, self.refused_at, self.enabled = refused, now, True
            self.plateau = (refused * (1.0 - self.BETA) / self.SCALE) ** (1 / 3)
            rate = refused * self.BETA
        else:
            rate = self.SCALE * (now - self.refused_at - self.plateau) ** 3 + self.refused_rate
        self.set_rate(min(rate, self.HEADROOM * measured), now)

    def set_rate(self, rate: float, now: float) -> None:
        tokens = self.tokens
        tokens.fill(now)
        tokens.rate, tokens.capacity = max(rate, self.LEAST_RATE), max(rate, self.LEAST_CAPACITY)
        tokens.held = min(tokens.held, tokens.capacity)


def cubic_clients(setup: ClientSetup) -> Clients:
    limiters = [CubicLimiter() for _ in range(setup.keys)]
    return one_per_worker(setup, lambda key: BackoffBefore(setup.rng, limiters[key]))


class HeaderPace:
    """Pace by the RateLimit headers, as clients of LLM APIs do: what was used, over the time until it is reset.

        with headers       rate = 0.95 * (limit - remaining) / reset, at least one call in 30 s
        without            4 calls a second at first; 1 % shorter intervals for a 200, half as long again for a 429
        a refusal          nothing before Retry-After is over

    Falls short: the formula repeats what has been used instead of asking what is left, and reset is told in whole
    seconds. A bucket that is nearly full says "1 used, reset in 1 s" whatever its rate: the client sends one a
    second, uses one, and is told the same again. It starves beside a quota that is free.
    """

    FIRST_INTERVAL, SHORTEST, LONGEST = 0.25, 0.001, 30.0
    MARGIN = 0.95
    SLOWER, FASTER = 1.5, 0.99

    def __init__(self) -> None:
        self.interval = self.FIRST_INTERVAL
        self.slots = Slots()

    def on_send(self, now: float) -> float:
        return self.slots.ask(now, interval=self.interval, slack=self.interval)

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        if headers and "ratelimit-remaining" in headers:
            used = float(headers["ratelimit-limit"]) - float(headers["ratelimit-remaining"])
            reset = float(headers["ratelimit-reset"])
            if used > 0.0 and reset > 0.0:
                self.interval = min(self.LONGEST, reset / (self.MARGIN * used))
        elif status == TOO_MANY:
            self.interval = min(self.LONGEST, self.interval * self.SLOWER)
        elif status == OK:
            self.interval = max(self.SHORTEST, self.interval * self.FASTER)
        if status == TOO_MANY:
            self.slots.next_at = max(self.slots.next_at, now + told_to_wait(headers))


def header_pace_clients(setup: ClientSetup) -> Clients:
    return shared_by_all(setup, lambda key: HeaderPace())


class AutoThrottle:
    """Scrapy's AutoThrottle: a delay between calls that keeps so many answers under way on average.

        each answer      wanted = latency / 8;  delay = the mean of delay and wanted, at least wanted, at most 60 s
        not a 200        may lengthen the delay, never shorten it

    It starts with a delay of 5 s and sends after half to one and a half of it, by chance, with at most 64 calls
    out. Scrapy's own default aims at 1 call under way; 8 is what its manual suggests for sites that bear it.

    Falls short: it follows the latency, and a quota does not show in the latency. Refusals come back fast, which
    would speed it up; the rule that they may not only leaves it where it was. So it settles wherever
    8 / latency happens to be: far below a generous quota, or at three quarters refused under a tight one.
    """

    TARGET = 8.0
    """Answers under way to aim at."""
    FIRST_DELAY, LONGEST_DELAY = 5.0, 60.0
    MOST_OUT = 64
    LOOK_AGAIN = 0.05
    """How soon to ask again when so many are out."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.delay = self.FIRST_DELAY
        self.next_at = 0.0
        self.out = 0

    def on_send(self, now: float) -> float:
        if self.out >= self.MOST_OUT:
            return self.LOOK_AGAIN
        wait = wait_until(self.next_at, now)
        if not wait:
            self.next_at = now + self.delay * self.rng.uniform(0.5, 1.5)
            self.out += 1
        return wait

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        self.out -= 1
        wanted = latency / self.TARGET
        delay = min(self.LONGEST_DELAY, max(wanted, (self.delay + wanted) / 2.0))
        if status == OK or delay > self.delay:
            self.delay = delay
            self.next_at = min(self.next_at, now + delay)


def autothrottle_clients(setup: ClientSetup) -> Clients:
    return shared_by_all(setup, lambda key: AutoThrottle(setup.rng))


class Gradient2:
    """Netflix's Gradient2 (concurrency-limits): as many calls in flight as come back no slower than usual.

        usual      average latency over about 600 answers, after a plain mean of the first 10;
                   reduced by 5 % when an answer is more than twice as fast as usual
        gradient   1.5 * usual / latency, within 0.5 and 1
        limit      moves by 0.2 towards limit * gradient + 4, within 1 and 200, from 20;
                   unchanged while less than half of it is used

    The library's default floor is 20 in flight; 1 is kinder to small quotas. Workers also rest after a failure,
    with full jitter up to 20 s, or a refused call would be sent again at once.

    Falls short: made for servers that queue, where it is the best of the published ones. A server that refuses
    answers fast, and fast answers look like room: against a plain quota the limit climbs to its ceiling, and about
    half of all calls are refused.
    """

    INITIAL, LEAST, MOST = 20.0, 1.0, 200.0
    WARM_UP = 10
    USUAL_WEIGHT = 2.0 / (600 + 1)
    TOLERANCE = 1.5
    LEAST_GRADIENT = 0.5
    QUEUE = 4.0
    """Calls that may wait at the server."""
    SMOOTHING = 0.2
    DRIFT = 0.95
    LOOK_AGAIN = 0.02
    """How soon to ask again when the limit is reached."""

    def __init__(self) -> None:
        self.limit = self.INITIAL
        self.out = 0
        self.usual = 0.0
        self.seen = 0

    def acquire(self, now: float) -> float:
        if self.out >= int(self.limit):
            return self.LOOK_AGAIN
        self.out += 1
        return 0.0

    def learn(self, now: float, status: int, latency: float) -> None:
        out = self.out
        self.out -= 1
        self.seen = min(self.seen + 1, self.WARM_UP + 1)
        self.usual += (latency - self.usual) * (1.0 / self.seen if self.seen <= self.WARM_UP else self.USUAL_WEIGHT)
        if self.usual > 2.0 * latency:
            self.usual *= self.DRIFT
        if out < self.limit / 2.0:
            return
        gradient = max(self.LEAST_GRADIENT, min(1.0, self.TOLERANCE * self.usual / latency))
        wanted = self.limit * gradient + self.QUEUE
        self.limit = max(self.LEAST, min(self.MOST, self.limit + self.SMOOTHING * (wanted - self.limit)))


def gradient2_clients(setup: ClientSetup) -> Clients:
    limiters = [Gradient2() for _ in range(setup.keys)]
    return one_per_worker(setup, lambda key: BackoffBefore(setup.rng, limiters[key]))
