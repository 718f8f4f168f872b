"""One quota over all actors of Ray: `API=http://127.0.0.1:8080/v1 python ray_tasks.py 200`

The actors find each other through the store: "machine" for a cluster of one machine, "redis://..." for one of many.
Waiting for a turn costs no processor, so the actors ask for none. They wait out an outage too; what the gate refuses is
asked again when it says, and an error of the API's is the task's failure, never its result.
"""

import json
import os
import sys
import time

import httpx2
import ray
from ray.util import ActorPool

from headgate import Passing, Refused
from headgate.integrations.httpx2 import GatedTransport

API, STORE = os.environ["API"], os.environ.get("STORE", "machine")
ACTORS = 4


@ray.remote(num_cpus=0)
class Asker:
    def __init__(self) -> None:
        limits = {"requests": os.environ["LIMIT"]} if "LIMIT" in os.environ else None  # else it is learned
        self.client = httpx2.Client(transport=GatedTransport(passing=Passing(limits=limits, store=STORE)))

    def ask(self, question: str) -> tuple[int, int]:
        while True:
            try:
                answer = self.client.get(f"{API}/{question}")
                break
            except Refused as refusal:  # nothing was sent; the gate says when it can be
                time.sleep(max(1.0, refusal.retry_after or 0.0))
        answer.raise_for_status()
        return answer.status_code, os.getpid()


if __name__ == "__main__":
    ray.init(num_cpus=ACTORS, include_dashboard=False, log_to_driver=False)
    pool = ActorPool([Asker.remote() for _ in range(ACTORS)])
    questions = [f"question-{number}" for number in range(int(sys.argv[1]))]
    print(json.dumps(list(pool.map_unordered(lambda actor, question: actor.ask.remote(question), questions))))
    ray.shutdown()
