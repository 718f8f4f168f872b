"""How many tokens a request will take, guessed before it is sent, and how many it took, read from its answer.

The guess needs no tokenizer: four ASCII characters or one other character make a token, a message
adds four, a picture in the text counts as ``PICTURE``. It is a guess, put right by what the answer says it took.
What may come back is what the request allows, for that is also what vendors reserve.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

CHARACTERS_IN_A_TOKEN = 4
MESSAGE = 4
"""Tokens for what surrounds a message: its role, its ends."""
PICTURE = 800
"""Tokens for a picture or another file that is part of the request."""
SHORTEST_FILE = 1_000
"""Characters under "data" that are taken for a file rather than for text."""
USUAL_OUTPUT = 256
"""Tokens that are expected back when a request does not say how many it allows."""
MOST_TOKENS = 1 << 40
"""A count above this is nonsense and is not believed."""

_OUTPUT_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_SILENT = ("/embeddings", "/moderations", "/count_tokens", "/rerank")
"""Ends of paths whose answers hold no generated tokens."""


class Usage(NamedTuple):
    """Tokens of one request: read in (of them, from a cache) and written out."""

    input: int = 0
    output: int = 0
    cached: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output


NO_TOKENS = Usage()


def is_silent(path: str) -> bool:
    """Whether what answers there writes no tokens."""
    return path.partition("?")[0].endswith(_SILENT)


def estimate(body: object, path: str = "") -> Usage:
    """What this request will take, more or less."""
    read = _count(body)
    if is_silent(path) or not isinstance(body, dict):
        return Usage(read)
    allowed = next((body[name] for name in _OUTPUT_LIMITS if _is_count(body.get(name))), USUAL_OUTPUT)
    answers = body.get("n")
    return Usage(read, min(allowed * (answers if _is_count(answers) and answers else 1), MOST_TOKENS))


def usage_of(answer: object) -> Usage | None:
    """What the answer says it took: OpenAI's words or Anthropic's; None if it does not say.

    Anthropic counts what its cache held beside the input, OpenAI inside of it; here it is always inside.
    """
    said = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(said, dict):
        return None
    if _is_count(read := said.get("prompt_tokens")):
        details = said.get("prompt_tokens_details")
        cached = min(read, _number(details, "cached_tokens")) if details else 0
        return Usage(read, _number(said, "completion_tokens"), cached)
    if not _is_count(said.get("input_tokens")):
        total = _number(said, "total_tokens")
        return Usage(total) if total else None
    read, written = said["input_tokens"], _number(said, "output_tokens")
    beside = _number(said, "cache_read_input_tokens")
    cached = beside or min(read, _number(said.get("input_tokens_details"), "cached_tokens"))
    return Usage(read + beside + _number(said, "cache_creation_input_tokens"), written, cached)


def _count(body: object) -> int:
    """Over all text in it; a stack in place of recursion, for it may be as deep as its author liked."""
    characters = tokens = 0
    stack: list[Any] = [body]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            if value.startswith("data:") and len(value) >= SHORTEST_FILE:
                tokens += PICTURE
            elif value.isascii():
                characters += len(value)
            else:
                narrow = len(value.encode("ascii", "ignore"))
                characters += narrow
                tokens += len(value) - narrow
        elif isinstance(value, dict):
            if "role" in value:
                tokens += MESSAGE
            data = value.get("data")
            if isinstance(data, str) and len(data) >= SHORTEST_FILE:
                tokens += PICTURE
                value = {name: held for name, held in value.items() if name != "data"}
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return tokens + -(-characters // CHARACTERS_IN_A_TOKEN)


def _number(said: object, name: str) -> int:
    value = said.get(name) if isinstance(said, dict) else None
    return value if _is_count(value) else 0


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MOST_TOKENS  # a bool is none
