"""One 403 does not take an only key away, and a key that was retired has a way back."""

from __future__ import annotations

import asyncio

import pytest

from headgate import (
    AuthenticationError,
    BatchConfig,
    BatchRunner,
    Credential,
    CredentialCoordinator,
    Outcome,
    ProviderResilienceManager,
    execute_with_resilience,
)
from headgate.credentials import FileStore, Identities
from headgate.lab.virtual_time import LoopClock, VirtualClock, run
from headgate.wire import read


def coordinator(clock: VirtualClock, count: int = 1, **settings: object) -> CredentialCoordinator:
    given = [Credential(f"k{number}", f"secret-of-{number}") for number in range(count)]
    return CredentialCoordinator(given, clock=clock, identities=Identities(b"a test"), **settings)  # type: ignore[arg-type]


def states(keys: CredentialCoordinator) -> list[str]:
    return [one.state for one in keys.states()]


FORBIDDEN = read(403, {}, b'{"message": "this page is not for you"}', wall=0.0)
REFUSED = read(401, {}, b"", wall=0.0)


def test_a_403_that_names_no_reason_of_the_key_is_told_apart() -> None:
    assert (FORBIDDEN.outcome, FORBIDDEN.is_forbidden) == (Outcome.AUTH, True)
    assert (REFUSED.outcome, REFUSED.is_forbidden) == (Outcome.AUTH, False)


def test_an_only_key_outlives_it_and_a_401_does_not() -> None:
    keys = coordinator(VirtualClock())
    for _ in range(3):
        assert keys.acquire().report(signal=FORBIDDEN) is Outcome.AUTH
    assert states(keys) == ["free"]
    keys.acquire().report(signal=REFUSED)
    assert states(keys) == ["retired"]
    keys.free("k0")
    assert states(keys) == ["free"]


def test_of_several_the_last_stays() -> None:
    keys = coordinator(VirtualClock(), 3)
    for _ in range(5):
        keys.acquire().report(signal=FORBIDDEN)
    assert sorted(states(keys)) == ["free", "retired", "retired"]


def test_nothing_is_kept_against_it_over_a_restart(tmp_path) -> None:
    for _ in range(2):
        keys = coordinator(VirtualClock(), store=FileStore(tmp_path / "keys.db"))
        keys.acquire().report(signal=FORBIDDEN)
        assert states(keys) == ["free"]


@pytest.mark.parametrize(("count", "sent"), [(1, 1), (3, 3)])
def test_a_call_is_sent_once_with_each_key_and_ends_in_its_own_error(count: int, sent: int) -> None:
    async def main(clock: LoopClock) -> list[str | None]:
        used: list[str | None] = []
        keys, manager = coordinator(clock, count), ProviderResilienceManager(clock=clock)

        async def ask(ctx) -> None:
            used.append(ctx.credential_label)
            ctx.report(status_code=403)
            raise AuthenticationError("api", "not for you", status_code=403)

        with pytest.raises(AuthenticationError):
            await execute_with_resilience(ask, "api", credentials=keys, manager=manager)
        assert states(keys).count("free") == 1
        return used

    assert len(set(run(main))) == len(run(main)) == sent


@pytest.mark.parametrize(("fail_fast", "dead", "sent"), [(("auth", "key_dead"), 0, 1), ((), 3, 3)])
def test_a_batch_neither_loops_nor_loses_its_key(fail_fast: tuple[str, ...], dead: int, sent: int) -> None:
    async def main(clock: LoopClock):
        async def worker(item, ctx) -> None:
            calls.append(item)
            await asyncio.sleep(0.1)
            raise AuthenticationError("api", "not for you", status_code=403)

        calls: list[int] = []
        keys = coordinator(clock)
        config = BatchConfig(fail_fast=fail_fast)
        report = await BatchRunner(worker, workers=1, credentials=keys, config=config, clock=clock).run(range(3))
        assert states(keys) == ["free"]
        return report.dead, len(calls)

    assert run(main) == (dead, sent)
