"""A client that asked for "100 Continue" got one for every API that its request was sent to."""

from __future__ import annotations

import asyncio
import json

from tests.proxy.conftest import raw, request, upstream

from headgate import Fallback, Passing
from headgate.integrations.fallback import ClientFallbacks
from headgate.proxy import Proxy, lines_of, mounts_of

BODY = json.dumps({"model": "m", "messages": []}).encode()
UNPAID = json.dumps({"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}).encode()


def test_a_client_is_told_once_to_continue_whichever_api_answers():
    async def work():
        refusal = f"HTTP/1.1 429 No\r\nContent-Length: {len(UNPAID)}\r\n\r\n".encode() + UNPAID
        async with upstream(refusal) as one, upstream() as two:
            mounts = mounts_of([f"{one.url}/v1"])
            gate = Passing(key=lines_of(mounts, learn_others=True))
            gate.fallbacks = ClientFallbacks(f"{one.url}/v1", [Fallback(to=f"{two.url}/v1", model="other")])
            async with Proxy(mounts, gate) as proxy:
                sent = request("POST", "/v1/chat/completions", "Expect: 100-continue", body=BODY)
                said = await raw(proxy, sent)
            gate.close()
            return said.count(b"100 Continue"), said.count(b" 200 "), len(one.asked), len(two.asked)

    assert asyncio.run(asyncio.wait_for(work(), 60)) == (1, 1, 1, 1)
