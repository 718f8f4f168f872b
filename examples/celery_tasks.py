"""One quota over all workers of Celery, on one machine or many.

    BROKER=redis://localhost API=http://127.0.0.1:8080/v1 celery -A celery_tasks worker --concurrency 4
    BROKER=redis://localhost API=http://127.0.0.1:8080/v1 python celery_tasks.py 200

The workers find each other through the store, here the broker's own server. A task that would have to wait for long
goes back to the broker until then, and its worker is free for others.
"""

import json
import os
import sys
from functools import cache

import celery
import httpx2

from headgate import Passing, WaitTooLongError
from headgate.integrations.httpx2 import GatedTransport

BROKER, API = os.environ["BROKER"], os.environ["API"]
STORE = os.environ.get("STORE", BROKER)
IN_PLACE = 1.0
"""Seconds that a worker may wait; a task that has to wait longer is put off."""
app = celery.Celery("celery_tasks", broker=BROKER, backend=BROKER)
app.conf.broker_connection_retry_on_startup = True


@cache  # in each worker process, and not before it was forked
def client() -> httpx2.Client:
    limits = {"requests": os.environ["LIMIT"]} if "LIMIT" in os.environ else None  # else it is learned
    return httpx2.Client(transport=GatedTransport(passing=Passing(limits=limits, store=STORE, max_wait=IN_PLACE)))


@app.task(bind=True, max_retries=None)
def ask(self: celery.Task, question: str) -> int:
    try:
        answer = client().get(f"{API}/{question}")
    except WaitTooLongError as refusal:
        raise self.retry(countdown=refusal.retry_after) from refusal
    if answer.status_code == 429:  # and it asked for longer than a worker may wait
        raise self.retry(countdown=IN_PLACE)
    return answer.status_code


@app.task
def ping() -> int:
    return os.getpid()


if __name__ == "__main__":
    asked = [ask.delay(f"question-{number}") for number in range(int(sys.argv[1]))]
    print(json.dumps([one.get(timeout=100) for one in asked]))
