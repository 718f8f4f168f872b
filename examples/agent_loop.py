"""Several agents that call a model and a tool, each with its own limit: `python agent_loop.py`

    headgate mock --provider openai --rate 600/min --port 8080

Agents run at the same time and share the limits: the model's by the client's gate, the tool's by @guarded. A step that
would exceed its time budget ends that agent, not the others.
"""

import asyncio
import os

import aiohttp

import headgate
from headgate import Refused, TimeBudgetExceededError, guarded

MOCK = os.environ.get("API", "http://127.0.0.1:8080")
STEPS = 3


@guarded("search", time_budget=20)
async def search(query: str) -> str:
    """The tool: any API with a limit of its own."""
    async with aiohttp.ClientSession() as session, session.get(f"{MOCK}/v1/search", params={"q": query}) as response:
        response.raise_for_status()
        return await response.text()


async def agent(client, goal: str) -> list[str]:
    notes: list[str] = []
    for step in range(STEPS):
        prompt = f"Goal: {goal}. Notes so far: {notes}. Step {step + 1}: what should be searched for?"
        thought = await client.chat.completions.create(
            model="gpt-4o-mini", max_tokens=40, messages=[{"role": "user", "content": prompt}]
        )
        query = thought.choices[0].message.content
        try:
            notes.append(await search(query))
        except (Refused, TimeBudgetExceededError) as refusal:  # the tool is down or too slow: go on without it
            notes.append(f"search failed: {refusal}")
    return notes


async def main(goals: list[str]) -> list[list[str]]:
    key = os.environ.get("OPENAI_API_KEY", "any-key")
    async with headgate.async_openai_client(base_url=f"{MOCK}/openai/v1", api_key=key, max_wait=60) as client:
        return await asyncio.gather(*(agent(client, goal) for goal in goals))


if __name__ == "__main__":
    for notes in asyncio.run(main(["find the oldest weir", "compare sluice gates", "list tidal mills"])):
        print(len(notes), "notes")
