"""Limiters, credentials and programs with a monitor, for the tests of this folder."""

import random

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.credentials import Credential, CredentialCoordinator
from headgate.identity import Identities
from headgate.observe.monitor import RunMonitor

KEY = "api.example.com"
SECRET = "sk-abcdefghijklmnopqrstuvwx"


class NoChance(random.Random):
    def random(self):
        return 0.0


def limiter_on(clock, rps=100.0, **more):
    return AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=rps, **more), clock=clock, rng=NoChance())


def keys_on(clock, count=3, **more):
    credentials = [Credential(f"key-{n}", f"{SECRET}{n}") for n in range(1, count + 1)]
    return CredentialCoordinator(credentials, clock=clock, identities=Identities(b"a test"), **more)


def watched_program(clock, **more):
    limiter = limiter_on(clock)
    return limiter, RunMonitor(limiter=limiter, **more).start(alone=False)


def refreshed(source):
    source.refresh()
    return source


def sentences(snapshot):
    return {line.scope: (line.sentence, line.behind) for line in snapshot.waits}
