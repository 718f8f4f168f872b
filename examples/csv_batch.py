"""A CSV through a model into another CSV: `python csv_batch.py cities.csv answers.csv`

    headgate mock --provider openai --rate 600/min --port 8080

Stopped or killed, the same command resumes: the ledger beside the output knows every row. (For a file of requests,
`headgate run` does this without a program.)
"""

import asyncio
import csv
import os
import sys
from pathlib import Path

import aiohttp

from headgate import BatchReport, BatchRunner

API = os.environ.get("API", "http://127.0.0.1:8080") + "/openai/v1/chat/completions"
KEY = os.environ.get("OPENAI_API_KEY", "any-key")


async def run(source: Path, target: Path) -> BatchReport:
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    async with aiohttp.ClientSession() as session:

        async def ask(row, ctx):
            question = f"One sentence about {row['city']}."
            body = {"model": "gpt-4o-mini", "max_tokens": 60, "messages": [{"role": "user", "content": question}]}
            async with session.post(API, json=body, headers={"Authorization": f"Bearer {KEY}"}) as response:
                answer = await response.json()
                ctx.report(response)  # an error is retried, or fails the row; either way it teaches the rate
                return answer["choices"][0]["message"]["content"]

        runner = BatchRunner(ask, key=lambda row: "gpt-4o-mini", ledger=f"{target}.ledger")
        with target.open("a", newline="") as file:
            written = csv.writer(file)
            async for result in runner.stream(rows):  # each result is on disk before it comes
                text = result.value if result.ok else f"failed: {result.reason}"
                written.writerow([*rows[result.index].values(), text])
        return runner.report


if __name__ == "__main__":
    report = asyncio.run(run(Path(sys.argv[1]), Path(sys.argv[2])))
    print(f"{report.done} done, {report.dead} failed, {report.skipped} done before")
