"""Keys of one organisation, over loopback: one limit between them, not one each."""

import asyncio
import json

import pytest

from headgate import CredentialCoordinator
from headgate.batch.runner import BatchRunner
from headgate.batch.target import Target, TargetConfig
from headgate.integrations.client_gate import Passing
from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import Rate

BODY = {"model": "m", "messages": [{"role": "user", "content": "How high is the water?"}], "max_tokens": 20}


def keys_of(*names):
    from headgate import Credential

    return [Credential(f"key-{number}", name) for number, name in enumerate(names, 1)]


async def ask(scope, names, calls=40):
    """Two keys, used in turn by a client; the groups that were found."""
    import openai

    import headgate

    plan = MockPlan(rate=Rate(6000, 60.0), algorithm="window", latency=0.0, scope=scope)
    told = []
    async with MockServer(plan, providers=("openai",), seed=1) as server:
        keys = CredentialCoordinator(keys_of(*names), on_event=lambda event: told.append(event.event_type))
        base_url = server.base_url("openai")
        passing = Passing(credentials={base_url: keys}, limits={"requests": "6000/min"})
        client = headgate.async_openai_client(api_key="any", base_url=base_url, passing=passing)
        assert isinstance(client, openai.AsyncOpenAI)
        for _ in range(calls):
            await client.chat.completions.create(**BODY)
        await client.close()
        return {state.group for state in keys.states()}, {keys.paced_by(label) for label in keys.labels}, told


@pytest.mark.parametrize(
    ("scope", "names", "group"),
    [
        ("organization", ("acme.a.1", "acme.b.2"), "acme"),
        ("project", ("acme.a.1", "acme.a.2"), "a"),
        ("project", ("acme.a.1", "acme.b.2"), None),
        ("key", ("acme.a.1", "acme.a.2"), None),
    ],
)
def test_headers_make_groups_at_the_scope_that_is_counted(scope, names, group):
    groups, paced_by, told = asyncio.run(ask(scope, names))
    assert groups == {group}
    assert paced_by == ({"key-1"} if group else {"key-1", "key-2"})
    assert ("credentials_grouped" in told) == bool(group)


def test_the_lanes_of_a_run_keep_one_pace_from_then_on():
    async def main():
        plan = MockPlan(rate=Rate(6000, 60.0), algorithm="window", latency=0.0, scope="organization")
        async with MockServer(plan, providers=("openai",), seed=1) as server:
            # One call at a time with each: two workers use both, and do not leave all calls to one of them.
            keys = CredentialCoordinator(keys_of("acme.a.1", "acme.b.2"), at_once=1)
            from headgate.batch.input.shapes import Request

            class Row:
                counts_tokens = False

                def __init__(self, index):
                    self.index, self.digest = index, b"%d" % index

                def request(self):
                    return Request("row", path="/chat/completions", body=json.dumps(BODY).encode(), model="m")

            async with Target(TargetConfig(to=server.base_url("openai"))) as target:
                runner = BatchRunner(target.fetch, workers=2, credentials=keys, key=lambda _: "openai/m")
                report = await runner.run([Row(index) for index in range(60)])
            return report.done, runner.gate_keys("openai/m"), server.services["openai"].counts["rate_limited"]

    done, gate_keys, refused = asyncio.run(main())
    assert (done, refused) == (60, 0)
    assert set(gate_keys.values()) == {"openai/m/key-1"}


@pytest.mark.parametrize("groups", ["headers", "auto", "off"])
def test_a_run_can_be_told_how_to_look_for_groups(batch, monkeypatch, groups):
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789abcdef")
    batch.write(3)
    ended = json.loads(batch.run("--json", "--keys", "env:ONE_KEY", "--groups", groups).out.splitlines()[-1])
    assert (ended["exit_code"], ended["done"]) == (0, 3)
