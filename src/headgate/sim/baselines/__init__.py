"""The published ways to deal with an unknown quota, so that ours can be compared with them by anyone.

Each file says whose algorithm it is, its constants as published, and where it falls short.
"""

from __future__ import annotations

from functools import partial

from . import (
    aimd_interval,
    aimd_per_response,
    autothrottle,
    backoff,
    cookbook,
    cubic,
    failsafe,
    fixed_half,
    gradient2,
    header_pace,
    oracle,
    pause_all,
    sre,
)
from .contract import Baseline, Clients, Contract, Foresight, Headers, Seat

__all__ = ["BASELINES", "Baseline", "Clients", "Contract", "Foresight", "Headers", "Seat"]

BASELINES: dict[str, Baseline] = {
    "oracle": Baseline(oracle.clients, "knows the server's state, is never refused: the mark of 100 %", foresees=True),
    "fixed-half": Baseline(fixed_half.clients, "told the quota, a fixed pace at half of it"),
    "backoff": Baseline(backoff.clients, "tenacity: each worker rests by chance, doubling, after a failure"),
    "pause-60": Baseline(pause_all.clients, "everybody pauses 60 s on a 429, then a slow start"),
    "pause-5": Baseline(partial(pause_all.clients, pause=5.0), "the same with a pause of 5 s"),
    "aimd-per-response": Baseline(aimd_per_response.clients, "AIMD on every answer, slow ones and failures cut"),
    "aimd-429": Baseline(aimd_per_response.clients_without_latency, "AIMD on every answer, only failures cut"),
    "aimd-10s": Baseline(aimd_interval.clients, "AIMD by the clock: one cut for a burst, one step up in 10 s"),
    "cubic": Baseline(cubic.clients, "the AWS SDKs' adaptive mode (botocore): CUBIC over a token bucket"),
    "autothrottle": Baseline(autothrottle.clients, "Scrapy: a delay that keeps 8 answers under way"),
    "gradient2": Baseline(gradient2.clients, "Netflix: in flight as many as come back no slower than usual"),
    "sre": Baseline(sre.clients, "Google's SRE book: drop by chance, K = 2"),
    "failsafe": Baseline(failsafe.clients, "failsafe-go: the same, once over 10 % of answers fail"),
    "cookbook": Baseline(cookbook.clients, "OpenAI's cookbook: told the quota, rests 15 s after a 429"),
    "header-pace": Baseline(header_pace.clients, "paced by the RateLimit headers: used over time to reset"),
}
