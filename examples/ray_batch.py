"""A batch on Ray Data, with one quota over all actors: `API=http://127.0.0.1:8080/openai/v1 python ray_batch.py 200`

Without a Redis the quota is in an actor of the cluster (store="ray"), and answers are remembered in a folder that all
nodes can reach, so that blocks that Ray repeats are not paid for twice. The key is named, and read by each actor.
"""

import os
import sys

import ray

from headgate.integrations.ray import map_rows, verify

API, KEY = os.environ["API"], "OPENAI_API_KEY"
TEMPLATE = {"model": "gpt-4o-mini", "max_tokens": 50, "messages": [{"role": "user", "content": "Greet {name}"}]}


if __name__ == "__main__":
    ray.init(runtime_env={"env_vars": {KEY: os.environ.get(KEY, "practice")}}, log_to_driver=False)
    people = ray.data.from_items([{"id": number, "name": f"person {number}"} for number in range(int(sys.argv[1]))])
    answered = map_rows(
        people,
        to=API,
        template=TEMPLATE,
        keys=f"env:{KEY}",
        id_column="id",
        run="greetings",
        store=os.environ.get("STORE", "ray"),
        answers=os.environ.get("ANSWERS", "greetings-answers"),
        concurrency=2,
    ).materialize()
    print(verify(people, answered, id_column="id"))
    ray.shutdown()
