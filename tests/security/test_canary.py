"""One secret, put wherever a program may put one, and every output there is: it appears in none of them.

The server is a hostile one that answers with whatever it was sent.
"""

import asyncio
import contextlib
import json
import logging
import pickle
import traceback

import aiohttp
import pytest
from aiohttp import web
from click.testing import CliRunner

from headgate import (
    AdaptiveRateLimiter,
    CredentialCoordinator,
    FileStore,
    GoogleProvider,
    HeadgateError,
    ProviderResilienceConfig,
    ProviderResilienceManager,
    RateLimitConfig,
    RateLimiterConfig,
    TavilyProvider,
    credentials_from,
    execute_with_resilience,
)
from headgate.cli import group
from headgate.lab.traces.trace import Heading, TraceWriter

CANARY = "sk-c4n4ry-9f8e7d6c5b4a39281706f5e4d3c2b1a0"
STATUSES = (429, 401, 403, 400, 500, 503, 200)


@pytest.fixture
def outputs(tmp_path, caplog):
    """Everything that was said, as one list of texts."""
    caplog.set_level(logging.DEBUG)
    said = []
    yield said
    said += [record.getMessage() + repr(record.args) for record in caplog.records]
    said += [path.read_bytes().decode("utf-8", "replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not leaking(said)
    assert len(said) > 100


def leaking(said):
    return [text[:500] for text in said if CANARY in text]


def shown(thing):
    return [repr(thing), str(thing), format(thing)]


def shown_error(error):
    """What a caller sees of an error of ours, and of those it came from."""
    chain, texts = error, []
    while chain is not None and len(texts) < 10:
        if isinstance(chain, HeadgateError):
            texts += [*shown(chain), repr(vars(chain).keys())]
            with contextlib.suppress(Exception):
                texts.append(repr(pickle.loads(pickle.dumps(chain))))
        chain = chain.__cause__
    return texts


async def echo(request):
    said = json.dumps({"error": {"message": str(dict(request.headers)) + str(request.url), "code": CANARY}})
    return web.Response(text=said, status=int(request.query.get("status", "500")), headers={"x-echo": CANARY})


async def talk(outputs, store_path, key_file):
    runner = web.AppRunner(app := web.Application(), access_log=None)
    app.router.add_route("*", "/{anything:.*}", echo)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    events = []
    manager = ProviderResilienceManager(on_event=events.append)
    quick = ProviderResilienceConfig(
        base_delay=0.001,
        max_delay=0.002,
        time_budget=0.2,
        rate_limiter=RateLimiterConfig(requests_per_second=500.0, burst_limit=100, strategy="aimd", ceiling=False),
    )
    keys = CredentialCoordinator(
        credentials_from(f"file:{key_file}", warn=outputs.append), store=FileStore(store_path), on_event=events.append
    )
    limiter = AdaptiveRateLimiter(on_event=events.append)
    async with aiohttp.ClientSession() as session:
        for status in STATUSES:

            async def call(ctx, status=status, outputs=outputs):
                where = f"{url}/v1?status={status}&key={CANARY}"
                async with session.post(where, headers={"Authorization": f"Bearer {CANARY}"}, data=CANARY) as response:
                    await response.read()
                    outputs.extend(shown(ctx))
                    if status == 400:
                        raise ValueError(f"refused: {CANARY}")
                    return response

            for credentials in (None, keys):
                try:
                    await execute_with_resilience(
                        call, f"echo-{status}", manager=manager, credentials=credentials, resilience_config=quick
                    )
                except Exception as error:
                    outputs += shown_error(error)
            permit = await limiter.acquire_async(f"http://user:{CANARY}@{url[7:]}/v1?key={CANARY}")
            with contextlib.suppress(TypeError):
                permit.report(
                    status_code=status, headers={"retry-after": CANARY, "x-ratelimit-reset": CANARY}, body=CANARY
                )
            outputs.extend(shown(permit))
    for provider in (
        TavilyProvider(CANARY, base_url=url, manager=manager, resilience_config=quick),
        GoogleProvider(CANARY, "engine", base_url=url, manager=manager, resilience_config=quick),
    ):
        try:
            async with provider:
                await provider.search("gates")
        except HeadgateError as error:
            outputs += shown_error(error)
            outputs += traceback.format_exception_only(error)
        outputs += shown(provider)
    await runner.cleanup()
    outputs += [repr(events), repr(limiter.snapshot()), repr(manager.limiter.snapshot()), repr(keys.states())]
    outputs += [repr(manager.get_provider_status(f"echo-{status}")) for status in STATUSES]
    outputs += shown(keys)


def test_a_secret_appears_in_no_output_of_any_kind(outputs, tmp_path, monkeypatch):
    key_file = tmp_path.parent / f"{tmp_path.name}-keys.txt"  # beside what is read back: a key file holds keys
    key_file.write_text(f"mine={CANARY}\n")
    key_file.chmod(0o644)
    store = tmp_path / "state" / "keys.db"
    asyncio.run(talk(outputs, store, key_file))

    for wrong in (
        {"strategy": CANARY},
        {"initial_rps": CANARY},
        {"limits": {CANARY: CANARY}},
        {"overrides": {CANARY: 1}},
    ):
        with pytest.raises(ValueError, match=r".") as refused:
            RateLimitConfig(**wrong)
        outputs += shown(refused.value)
    for wrong in ({"time_budget": CANARY}, {"max_attempts": CANARY}):
        with pytest.raises(ValueError, match=r".") as refused:
            ProviderResilienceConfig(**wrong)
        outputs += shown(refused.value)

    recording = TraceWriter(tmp_path / "run.jsonl", Heading(calls=1, workers=1))
    recording.call(f"https://api.example.com/?key={CANARY}", 0.1, 0.04, 200, 0.0, None, "mine")
    recording.learned(f"https://api.example.com/?key={CANARY}", 0.2, 10.0)
    recording.end(1.0)

    monkeypatch.setenv("CANARY_KEY", CANARY)
    for arguments in (
        ["keys", "--from", f"file:{key_file}", "--state", str(store)],
        ["keys", "--from", "env:CANARY_KEY", "--state", str(store), "--json"],
        ["keys", "--state", str(store)],
    ):
        done = CliRunner().invoke(group, arguments)
        outputs += [done.output, repr(done.exception)]
        assert done.exit_code == 0, done.output


def test_the_canary_would_be_seen():
    """The net has no hole: a secret in anything that is shown is found, however it is shown."""
    assert len(leaking(shown(ValueError(CANARY)))) == 3
    assert leaking(shown_error(HeadgateError(CANARY)))
