"""One quota over all workers of Celery, on one machine or many.

    BROKER=redis://localhost API=http://127.0.0.1:8080/v1 celery -A celery_tasks worker --concurrency 4
    BROKER=redis://localhost API=http://127.0.0.1:8080/v1 python celery_tasks.py 200

The workers find each other through the store, here the broker's own server. A task that would have to wait for long
goes back to the broker until then, and its worker is free for others; so does one that the API turned away or failed
because it is down. Any other error is the task's failure, never its result.
"""

import json
import os
import sys
from functools import cache

import celery
import httpx2

from headgate import Passing, Refused
from headgate.integrations.httpx2 import GatedTransport

BROKER, API = os.environ["BROKER"], os.environ["API"]
STORE = os.environ.get("STORE", BROKER)
IN_PLACE = 1.0
"""Seconds that a worker may wait; a task that has to wait longer is put off."""
PASSES = (429, 502, 503, 504)
"""Answers that are another one later: turned away, or the API is down."""
app = celery.Celery("celery_tasks", broker=BROKER, backend=BROKER)
app.conf.broker_connection_retry_on_startup = True


@cache  # in each worker process, and not before it was forked
def client() -> httpx2.Client:
    limits = {"requests": os.environ["LIMIT"]} if "LIMIT" in os.environ else None  # else it is learned
    return httpx2.Client(transport=GatedTransport(passing=Passing(limits=limits, store=STORE, max_wait=IN_PLACE)))


@app.task(bind=True, max_retries=1000)
def ask(self: celery.Task, question: str) -> int:
    try:
        answer = client().get(f"{API}/{question}")
        answer.raise_for_status()
    except Refused as refusal:  # nothing was sent; the gate says when it can be
        raise self.retry(countdown=max(IN_PLACE, refusal.retry_after or 0.0), exc=refusal) from refusal
    except httpx2.HTTPStatusError as error:
        if error.response.status_code not in PASSES:
            raise
        raise self.retry(countdown=IN_PLACE, exc=error) from error  # the gate knows by then for how long
    except httpx2.TransportError as error:
        raise self.retry(countdown=IN_PLACE, exc=error) from error
    return answer.status_code


@app.task
def ping() -> int:
    return os.getpid()


if __name__ == "__main__":
    asked = [ask.delay(f"question-{number}") for number in range(int(sys.argv[1]))]
    print(json.dumps([one.get(timeout=100) for one in asked]))
