"""The published ways to deal with an unknown quota, to compare ours with.

Each class says whose algorithm it is, its constants as published, and where it falls short. To add one, write its
clients behind the two methods of ``contract.py`` and add a line to ``BASELINES``.
"""

from __future__ import annotations

from functools import partial

from . import aimd, autothrottle, backoff, cubic, gradient2, header_pace, known_quota, pause_all, sre
from .contract import Baseline, Clients, ClientSetup, Contract, Foresight, Headers

__all__ = ["BASELINES", "Baseline", "ClientSetup", "Clients", "Contract", "Foresight", "Headers"]

BASELINES: dict[str, Baseline] = {
    "oracle": Baseline(
        known_quota.oracle_clients, "knows the server's state, is never refused: the mark of 100 %", foresees=True
    ),
    "fixed-half": Baseline(known_quota.fixed_half_clients, "told the quota, a fixed pace at half of it"),
    "backoff": Baseline(backoff.clients, "tenacity: each worker rests by chance, doubling, after a failure"),
    "pause-60": Baseline(pause_all.clients, "all workers pause 60 s on a 429, then a slow start"),
    "pause-5": Baseline(partial(pause_all.clients, pause=5.0), "the same with a pause of 5 s"),
    "aimd-per-response": Baseline(aimd.per_response_clients, "AIMD on every answer, slow ones and failures cut"),
    "aimd-429": Baseline(aimd.per_refusal_clients, "AIMD on every answer, only failures cut"),
    "aimd-10s": Baseline(aimd.interval_clients, "AIMD by the clock: one cut for a burst, one step up in 10 s"),
    "cubic": Baseline(cubic.clients, "the AWS SDKs' adaptive mode (botocore): CUBIC over a token bucket"),
    "autothrottle": Baseline(autothrottle.clients, "Scrapy: a delay that keeps 8 answers under way"),
    "gradient2": Baseline(gradient2.clients, "Netflix: in flight as many as come back no slower than usual"),
    "sre": Baseline(sre.clients, "Google's SRE book: drop by chance, K = 2"),
    "failsafe": Baseline(sre.failsafe_clients, "failsafe-go: the same, once over 10 % of answers fail"),
    "cookbook": Baseline(known_quota.cookbook_clients, "OpenAI's cookbook: told the quota, rests 15 s after a 429"),
    "header-pace": Baseline(header_pace.clients, "paced by the RateLimit headers: used over time to reset"),
}
