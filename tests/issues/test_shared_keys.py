"""Keys are shared unless asked otherwise: a second key makes nothing slower, and a wait for a key is told."""

from __future__ import annotations

import asyncio
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headgate import BatchRunner, Credential, CredentialCoordinator, ProviderResilienceManager, execute_with_resilience
from headgate.credentials import Identities
from headgate.lab.virtual_time import LoopClock, VirtualClock, run

CALLS = 20


def coordinator(clock: VirtualClock, count: int = 2, **settings: object) -> CredentialCoordinator:
    given = [Credential(f"k{number}", f"secret-of-{number}") for number in range(count)]
    return CredentialCoordinator(given, clock=clock, identities=Identities(b"a test"), **settings)  # type: ignore[arg-type]


def seconds_of_calls(keys: int, **settings: object) -> float:
    """Virtual seconds for twenty calls of one second each; with 0 keys, calls without any."""

    async def main(clock: LoopClock) -> float:
        given = coordinator(clock, keys, **settings) if keys else None
        manager = ProviderResilienceManager(clock=clock)
        calls = (
            execute_with_resilience(lambda: asyncio.sleep(1.0), "api", credentials=given, manager=manager)
            for _ in range(CALLS)
        )
        await asyncio.gather(*calls)
        return clock.now()

    return run(main)


def test_more_keys_make_calls_no_slower() -> None:
    without, one, two = (seconds_of_calls(keys) for keys in (0, 1, 2))
    assert one == pytest.approx(without)
    assert two < one


def test_exclusive_use_is_there_when_asked_for() -> None:
    assert seconds_of_calls(2, at_once=1) == pytest.approx(CALLS / 2)
    assert seconds_of_calls(2, at_once=5) < CALLS / 4


def test_a_batch_takes_as_long_with_a_coordinator_as_with_a_list() -> None:
    def seconds(make) -> float:
        async def main(clock: LoopClock) -> float:
            async def worker(item, ctx) -> None:
                await asyncio.sleep(1.0)

            report = await BatchRunner(worker, workers=CALLS, credentials=make(clock), clock=clock).run(range(CALLS))
            assert report.done == CALLS
            return clock.now()

        return run(main)

    assert seconds(coordinator) == pytest.approx(seconds(lambda _: ["secret-of-a", "secret-of-b"]))


def test_clients_share_keys() -> None:
    """As an SDK sees it: as many requests are in flight together with two keys as there are callers."""
    openai = pytest.importorskip("openai")
    del openai
    from headgate.integrations.openai import openai_client

    met = threading.Barrier(4, timeout=20)

    class Meeting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            met.wait()  # nothing is answered before all four are here
            body = b'{"object": "list", "data": []}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Meeting)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        keys = CredentialCoordinator(["sk-first-0001", "sk-second-0002"])
        client = openai_client(keys=keys, base_url=f"http://127.0.0.1:{server.server_port}/v1")
        callers = [threading.Thread(target=lambda: answers.append(client.models.list())) for _ in range(4)]
        answers: list[object] = []
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert len(answers) == 4
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class TestBareStrings:
    """``get_credential`` lends exclusively, whatever leases do."""

    @pytest.mark.parametrize("at_once", [None, 1, 3])
    def test_one_key_has_one_borrower(self, at_once: int | None) -> None:
        keys = coordinator(VirtualClock(), 1, at_once=at_once)
        assert [keys.get_credential(), keys.get_credential()] == ["secret-of-0", None]
        assert (keys.try_acquire(), keys.get_available_count()) == (None, 0)
        keys.release_credential("secret-of-0")
        assert keys.try_acquire() is not None

    def test_a_key_that_is_leased_is_not_lent(self) -> None:
        keys = coordinator(VirtualClock(), 2)
        leases = [keys.acquire(), keys.acquire(prefer="k0")]
        assert [lease.label for lease in leases] == ["k0", "k0"]
        assert [keys.get_credential(), keys.get_credential()] == ["secret-of-1", None]
        leases.pop().release()
        assert keys.get_credential() is None
        leases.pop().release()
        assert keys.get_credential() == "secret-of-0"

    def test_a_lease_waits_for_the_borrower(self) -> None:
        async def main(clock: LoopClock) -> tuple[float, float]:
            keys = coordinator(clock, 1)
            assert keys.get_credential() is not None
            waiting = asyncio.create_task(keys.acquire_async())
            await asyncio.sleep(3.0)
            keys.release_credential("secret-of-0")
            return (await waiting).waited, clock.now()

        assert run(main) == (3.0, 3.0)


class TestAWaitIsTold:
    def wait_for_one(self, **settings: object) -> list[tuple[str, str | None, int | None]]:
        told: list[tuple[str, str | None, int | None]] = []

        def listen(event) -> None:
            told.append((event.event_type, event.error_type, event.wait_ms))

        async def main(clock: LoopClock) -> None:
            keys = coordinator(clock, 1, at_once=1, on_event=listen, **settings)

            async def hold() -> None:
                async with keys.lease():
                    await asyncio.sleep(1.0)

            await asyncio.gather(*(hold() for _ in range(4)))
            keys.park("k0", 5.0)
            await hold()

        run(main)
        return told

    def test_by_the_coordinator_with_its_reason(self) -> None:
        told = [event for event in self.wait_for_one() if event[0] == "credential_pool_exhausted"]
        assert told == [("credential_pool_exhausted", "held", None), ("credential_pool_exhausted", "resting", 5000)]

    def test_in_the_log_and_only_once_as_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "headgate"):
            for _ in range(2):
                self.wait_for_one()
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 2  # one for each coordinator
        assert all("at_once" in record.getMessage() for record in warnings)

    def test_by_the_call_with_how_long_it_took(self) -> None:
        async def main(clock: LoopClock) -> list[tuple[str | None, int | None]]:
            told = []
            manager = ProviderResilienceManager(clock=clock, on_event=told.append)
            keys = coordinator(clock, 1, at_once=1)
            calls = (
                execute_with_resilience(lambda: asyncio.sleep(1.0), "api", credentials=keys, manager=manager)
                for _ in range(3)
            )
            await asyncio.gather(*calls)
            return [(one.credential, one.wait_ms) for one in told if one.event_type == "credential_wait"]

        assert run(main) == [("k0", 1000), ("k0", 2000)]

    def test_by_a_batch_lane(self) -> None:
        async def main(clock: LoopClock) -> set[str]:
            async def worker(item, ctx) -> None:
                await asyncio.sleep(1.0)
                seen.update(lane.waits_for for lane in runner.lanes())

            seen: set[str] = set()
            runner = BatchRunner(worker, workers=4, credentials=coordinator(clock, 1, at_once=1), clock=clock)
            await runner.run(range(3))
            return seen

        assert "credential_held" in run(main)


def test_shared_leases_of_threads_never_wait() -> None:
    keys = CredentialCoordinator(["secret-of-a", "secret-of-b"], identities=Identities(b"a test"))
    held, waited = threading.Barrier(8, timeout=20), []

    def hold() -> None:
        with keys.lease(timeout=0) as lease:
            held.wait()  # all eight hold one at the same time
            waited.append(lease.waited)

    threads = [threading.Thread(target=hold) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert waited == [0.0] * 8
