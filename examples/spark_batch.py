"""A batch on Spark, with one quota over all executors: `API=http://127.0.0.1:8080/openai/v1 python spark_batch.py 200`

STORE is a Redis or Valkey that all executors reach; "machine" is enough where Spark runs on one machine, and answers
are then remembered in a folder. Spark computes a DataFrame each time it is read; the second time is free.
"""

import os
import sys

from pyspark.sql import SparkSession

from headgate.integrations.spark import map_rows, verify

API, KEY, STORE = os.environ["API"], "OPENAI_API_KEY", os.environ.get("STORE", "machine")
TEMPLATE = {"model": "gpt-4o-mini", "max_tokens": 50, "messages": [{"role": "user", "content": "Greet {name}"}]}


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault(KEY, "practice")
    master = os.environ.get("MASTER", "local[2]")
    spark = SparkSession.builder.master(master).config(f"spark.executorEnv.{KEY}", os.environ[KEY]).getOrCreate()
    people = spark.range(int(sys.argv[1])).selectExpr("id", "concat('person ', id) AS name")
    answered = map_rows(
        people,
        to=API,
        template=TEMPLATE,
        keys=f"env:{KEY}",
        id_column="id",
        run="greetings",
        store=STORE,
        answers="redis" if STORE.startswith("redis") else os.environ.get("ANSWERS", "greetings-answers"),
    )
    print(verify(people, answered, id_column="id"))
    spark.stop()
