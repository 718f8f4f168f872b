"""Three API keys as one: `python several_keys.py 60`

    headgate mock --provider openai --key 600/min --key 300/min --key 60/min,per-day=5 --port 8080

The keys have different limits, and the third one's day is soon used up: it then rests, and the others continue. No call
fails and no limit has to be known. `KEYS` names another source of keys: env:NAME, file:PATH or cmd:WORDS.
"""

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import requests

from headgate import Credential, CredentialCoordinator, credentials_from, guarded

API = os.environ.get("API", "http://127.0.0.1:8080") + "/openai/v1/chat/completions"
NAMES = ("team-a", "team-b", "trial")


def keys_of() -> CredentialCoordinator:
    if "KEYS" in os.environ:
        return CredentialCoordinator(credentials_from(os.environ["KEYS"]), provider="openai")
    named = [Credential(name, f"mock-key-{number}") for number, name in enumerate(NAMES, 1)]
    return CredentialCoordinator(named, provider="openai")


keys, used = keys_of(), Counter[str]()


@guarded("openai", credentials=keys)
def ask(number, ctx):
    body = {"model": "gpt-4o-mini", "max_tokens": 20, "messages": [{"role": "user", "content": f"Question {number}"}]}
    headers = {"Authorization": f"Bearer {ctx.credential}"}
    response = requests.post(API, json=body, headers=headers, timeout=30)
    response.raise_for_status()  # the gate reads the response: a 429 rests the key and is repeated with another
    used[ctx.credential_label] += 1
    return response.json()["choices"][0]["message"]["content"]


def main(calls: int) -> Counter[str]:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(calls)))
    return used


if __name__ == "__main__":
    print(dict(main(int(sys.argv[1]))))
    for state in keys.states():
        print(state.label, state.state, state.reason or "")
