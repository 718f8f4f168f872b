"""Stores on a real server, and what members say to them."""

import asyncio
import threading
from contextlib import contextmanager

import pytest
from bench.redis_server import RedisServer

from headgate.distributed.backends.redis import RedisStore
from headgate.distributed.protocol import QuotaTerms, SyncRequest

TERMS = QuotaTerms(rate=1000.0, burst=10.0, most=1e6)


class Member:
    """Says one thing after the other to a store, about one key."""

    def __init__(self, store, name="9f0c6f4d2b7a1e55-77@host", key="api|sk-live-SECRET"):
        self.store, self.name, self.key, self.number = store, name, key, 0

    def says(self, **fields):
        self.number += 1
        usual = {"terms": TERMS, "asks": ((5, {}),), "elapsed": 1.0}
        return SyncRequest(member=self.name, number=self.number, **(usual | fields))

    def sync(self, **fields):
        (reply,) = self.store.sync([(self.key, self.says(**fields))])
        return reply


@pytest.fixture
def member():
    """Makes members; what they use is closed at the end."""
    return Member


@pytest.fixture
def open_redis():
    """Opens stores, which wait for long unless a test says otherwise: a busy machine is no fault of theirs."""
    stores = []

    def open_one(url, timeout=5.0):
        stores.append(RedisStore(url, timeout=timeout))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def own_redis():
    """Starts servers that a test may mistreat."""
    servers = []

    def start(*options):
        servers.append(RedisServer(*options))
        return servers[-1].__enter__()

    yield start
    for server in servers:
        server.__exit__()


@pytest.fixture
def in_front_of():
    """``with in_front_of(port, context) as tls_port``: TLS in front of a server that may have been built without."""
    return _in_front_of


@contextmanager
def _in_front_of(port, context):
    loop, lines = asyncio.new_event_loop(), []

    async def pump(reader, writer):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()

    async def serve(reader, writer):
        inside_reader, inside_writer = await asyncio.open_connection("127.0.0.1", port)
        lines.extend([writer, inside_writer])
        await asyncio.wait(
            [asyncio.create_task(pump(reader, inside_writer)), asyncio.create_task(pump(inside_reader, writer))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        writer.close()
        inside_writer.close()

    async def stop():
        server.close()
        for line in lines:
            line.transport.abort()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for other in others:
                other.cancel()
            await asyncio.wait(others)

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(60.0)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60.0)
        loop.close()
