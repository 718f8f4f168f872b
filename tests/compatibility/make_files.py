"""Writes the files beside it with the version of Headgate that is installed: HEADGATE_STATE=FOLDER python make.py"""

import json
import os
import time
from contextlib import closing
from types import SimpleNamespace

from headgate import AdaptiveRateLimiter, Credential, CredentialCoordinator, FileStore, RateLimitConfig

folder = os.environ["HEADGATE_STATE"]
with closing(AdaptiveRateLimiter(RateLimitConfig(limits={"requests": "10/day"}), store="machine")) as limiter:
    for _ in range(7):
        with limiter.permit("api.example.com") as permit:
            permit.report(status_code=200, latency=0.05)
for name in ("keys.db", "keys.json"):
    keys = CredentialCoordinator(
        [Credential("alpha", "a-secret-1"), Credential("beta", "b-secret-2")],
        provider="search",
        store=FileStore(os.path.join(folder, name)),
    )
    keys.retire("alpha")
    with keys.lease() as lease:
        assert lease.label == "beta"
        lease.report(SimpleNamespace(status_code=429, headers={"retry-after": "3600"}))
with open(os.path.join(folder, "written.json"), "w") as file:
    json.dump({"at": time.time()}, file)
