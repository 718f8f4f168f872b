"""A real API on loopback that counts its calls, and rows for it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter

from aiohttp import web

TEMPLATE = {"model": "m", "messages": [{"role": "user", "content": "{text}"}]}
KNOWN_LIMITS = {"requests": "1000/s"}


class CountingApi:
    """Answers every chat completion with its own text; ``plan(text, nth)`` may say another status, or wait."""

    def __init__(self):
        self.calls = Counter()
        self.keys = []
        self.idempotency = {}
        self.plan = lambda text, nth: 200
        self.hold = None
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._started.wait(20)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self):
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]

    async def _answer(self, request):
        body = await request.json()
        text = body["messages"][0]["content"]
        self.calls[text] += 1
        self.keys.append(request.headers.get("Authorization", ""))
        self.idempotency.setdefault(text, set()).add(request.headers["Idempotency-Key"])
        status = self.plan(text, self.calls[text])
        while self.hold is not None and self.hold(text):
            await asyncio.sleep(0.01)
        if status != 200:
            return web.json_response({"error": {"message": f"no: {text}"}}, status=status)
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        answer = {"choices": [{"message": {"content": text}}], "usage": usage}
        return web.Response(text=json.dumps(answer, ensure_ascii=False), content_type="application/json")


def rows_of(count, **more):
    return [{"id": f"r{number}", "text": f"text {number}", **more} for number in range(count)]
