"""What the mocked models read and say: a token is four characters, and the same question gets the same answer.

    tokens of a text    its characters, divided by four, rounded up
    an answer           made-up sentences of 16 to 96 tokens, cut where the caller's maximum is reached
    a vector            of length one, and the same for the same text

Everything follows from the seed, the model and the text alone.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CHARACTERS_PER_TOKEN = 4
SHORTEST, LONGEST = 16, 96
"""Tokens of an answer whose caller sets no maximum."""
READ = ("content", "text", "input", "output", "arguments", "thinking")
"""Where texts are in a message; pictures and the like cost nothing here."""

_RIVER = """
    the water rises behind each gate until a keeper lets some through and no more than the river below can hold so
    nothing floods while every boat that waits gets its turn at a steady pace which nobody wrote down but all learn"""


@dataclass(frozen=True, slots=True)
class Written:
    text: str
    cut: bool
    """Whether the maximum came first."""

    @property
    def tokens(self) -> int:
        return tokens_of(self.text)

    @property
    def pieces(self) -> list[str]:
        """Word by word, as it is streamed."""
        return re.findall(r"\s*\S+", self.text)


def tokens_of(text: str) -> int:
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


def texts_in(value: Any) -> Iterator[str]:
    """Every text of a message, a list of them, or what else may be asked."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for entry in value:
            yield from texts_in(entry)
    elif isinstance(value, Mapping):
        for name in READ:
            yield from texts_in(value.get(name))


def write(seed: str, model: str, prompt: str, most_tokens: int | None) -> Written:
    """The model's answer; ``most_tokens`` is the caller's maximum."""
    words, rng = _RIVER.split(), random.Random(f"{seed}\n{model}\n{prompt}")
    wanted = rng.randint(SHORTEST, LONGEST)
    allowed = wanted if most_tokens is None else min(wanted, most_tokens)
    text = "This is made up."
    while len(text) < wanted * CHARACTERS_PER_TOKEN:
        text += f" {' '.join(rng.choices(words, k=rng.randint(4, 11))).capitalize()}."
    return Written(text[: allowed * CHARACTERS_PER_TOKEN], allowed < wanted)


def vector(seed: str, model: str, text: str, dimensions: int) -> list[float]:
    raw = random.Random(f"{seed}\n{model}\n{text}").randbytes(dimensions)
    length = math.sqrt(sum((byte - 127.5) ** 2 for byte in raw))
    return [(byte - 127.5) / length for byte in raw]
