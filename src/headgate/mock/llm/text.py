"""What the mocked models read and say: a token is four characters, and the same question gets the same answer.

    tokens of a text    its characters, divided by four, rounded up
    an answer           made-up sentences of 16 to 96 tokens or a few more, cut where the caller's maximum is reached
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
"""Tokens of an answer whose caller sets no maximum, but for the end of its last sentence."""
READ = ("content", "text", "input", "output", "arguments", "thinking")
"""Where texts are in a message; pictures and the like cost nothing here."""

_RIVER = """
    the water rises behind each gate until a keeper lets some through and no more than the river below can hold so
    nothing floods while every boat that waits gets its turn at a steady pace which no sign shows but all learn"""


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
    words, rng = _RIVER.split(), _chance(seed, model, prompt)
    wanted = rng.randint(SHORTEST, LONGEST)
    text = "This is made up."
    while tokens_of(text) < wanted:
        text += f" {' '.join(rng.choices(words, k=rng.randint(4, 11))).capitalize()}."
    if most_tokens is None or tokens_of(text) <= most_tokens:
        return Written(text, False)
    return Written(text[: most_tokens * CHARACTERS_PER_TOKEN].rstrip(), True)


def vector(seed: str, model: str, text: str, dimensions: int) -> list[float]:
    raw = _chance(seed, model, text).randbytes(dimensions)
    length = math.sqrt(sum((byte - 127.5) ** 2 for byte in raw))
    return [(byte - 127.5) / length for byte in raw]


def _chance(*about: str) -> random.Random:
    """Half a character, which JSON can hold and UTF-8 cannot, is as good as any."""
    return random.Random("\n".join(about).encode("utf-8", "surrogatepass"))
