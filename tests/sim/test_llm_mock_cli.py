"""``headgate mock --provider openai`` as a process."""

import asyncio
import json
import subprocess
import sys

import aiohttp
import pytest


def run(*arguments):
    command = [sys.executable, "-c", "from headgate.cli import main; main()", "mock", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ask(url, key):
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "abcd"}]}

    async def main():
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession() as session, session.post(url, json=asked, headers=headers) as response:
            return response.status

    return asyncio.run(main())


def test_the_command_serves_keys_with_calls_tokens_and_days_of_their_own():
    keys = ("--key", "9/min,tokens=15/min", "--key", "9/min,per-day=2,0.5@1h")
    process = run("--json", "--stop-with-stdin", "--provider", "openai", "--latency", "0ms", *keys)
    base = json.loads(process.stdout.readline())["providers"]["openai"]
    statuses = [ask(f"{base}/chat/completions", f"mock-key-{number}") for number in (1, 1, 2, 2, 2, 3)]
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert statuses == [200, 429, 200, 200, 429, 401]
    truth = json.loads(out)["providers"]["openai"]
    assert [truth[name] for name in ("answered", "rate_limited", "out_of_quota", "refused")] == [3, 1, 1, 1]


def test_the_command_gives_every_key_the_same_tokens_if_none_is_named():
    process = run("--provider", "openai", "--provider", "anthropic", "--tokens", "15/min", "--stop-with-stdin")
    lines = [process.stdout.readline() for _ in range(4)]
    base = lines[2].split("base_url=")[1].strip()
    statuses = [ask(f"{base}/chat/completions", key) for key in ("a", "a", "b")]
    out, _ = process.communicate(timeout=20)
    assert statuses == [200, 429, 200]
    assert "openai: 3 asked, 2 answered" in out
    assert lines[3].split("base_url=")[1].strip().endswith("/anthropic")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tokens", "5/s"], "add --provider openai or anthropic"),
        (["--key", "5/s,tokens=9/s"], "add --provider openai or anthropic"),
        (["--key", "5/s,per-day=0", "--provider", "openai"], "per_day must be within 1"),
        (["--key", "5/s,colour=red", "--provider", "openai"], "'colour' is nothing a key has"),
        (["--key", "5/s", "--provider", "openai", "--tokens", "5/s"], "--tokens is for an API without --key"),
        (["--key", "5/s", "--provider", "tavily"], "--provider is for an API without --key"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(arguments, words):
    process = run(*arguments)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert words in " ".join(err.split())
