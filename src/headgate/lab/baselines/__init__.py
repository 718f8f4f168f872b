"""Published ways to deal with an unknown quota, to compare the limiter with.

Each class says whose algorithm it is, its constants as published, and where it falls short. To add one, write its
clients behind the two methods of ``contract.py``, in the file of its family, and add a line to ``BASELINES``.
"""

from __future__ import annotations

from functools import partial

from .adaptive_limits import (
    aimd_interval_clients,
    aimd_per_refusal_clients,
    aimd_per_response_clients,
    autothrottle_clients,
    cubic_clients,
    gradient2_clients,
    header_pace_clients,
)
from .backoff import backoff_clients, failsafe_clients, pause_clients, sre_clients
from .contract import Baseline, Clients, ClientSetup, Contract, Headers
from .known_quota import cookbook_clients, fixed_half_clients, informed_clients, oracle_clients

__all__ = ["BASELINES", "Baseline", "ClientSetup", "Clients", "Contract", "Headers"]

BASELINES: dict[str, Baseline] = {
    "oracle": Baseline(
        oracle_clients, "knows the server's state, is never refused: the reference of 100 %", foresees=True
    ),
    "informed": Baseline(
        informed_clients, "the same, less what no client can know before it was answered: a bound", foresees=True
    ),
    "fixed-half": Baseline(fixed_half_clients, "knows the quota, a fixed rate at half of it"),
    "backoff": Baseline(backoff_clients, "tenacity: random exponential backoff of each worker after a failure"),
    "pause-60": Baseline(pause_clients, "all workers pause 60 s after a 429, then slow start"),
    "pause-5": Baseline(partial(pause_clients, pause=5.0), "the same with a pause of 5 s"),
    "aimd-per-response": Baseline(aimd_per_response_clients, "AIMD on every answer, slow ones and failures cut"),
    "aimd-429": Baseline(aimd_per_refusal_clients, "AIMD on every answer, only failures cut"),
    "aimd-10s": Baseline(aimd_interval_clients, "AIMD by time: one cut per burst, one step up every 10 s"),
    "cubic": Baseline(cubic_clients, "the AWS SDKs' adaptive mode (botocore): CUBIC over a token bucket"),
    "autothrottle": Baseline(autothrottle_clients, "Scrapy AutoThrottle: a delay that keeps 8 requests in flight"),
    "gradient2": Baseline(gradient2_clients, "Netflix concurrency-limits: in flight as many as keep the usual latency"),
    "sre": Baseline(sre_clients, "Google's SRE book: adaptive throttling, K = 2"),
    "failsafe": Baseline(failsafe_clients, "failsafe-go: the same, once over 10 % of answers fail"),
    "cookbook": Baseline(cookbook_clients, "OpenAI's cookbook: knows the quota, pauses 15 s after a 429"),
    "header-pace": Baseline(header_pace_clients, "paced by the RateLimit headers: used over time to reset"),
}
