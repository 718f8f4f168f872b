"""How many tokens a request will take, guessed before it is sent, how many it took, read from its answer, and what that
is on average: a limit on tokens as the limit on calls that it amounts to.

The guess needs no tokenizer: four ASCII characters or one other character make a token, a message
adds four, a picture in the text counts as ``PICTURE``. It is a guess, put right by what the answer says it took.
What may come back is what the request allows, for that is also what vendors reserve.

Vendors count differently. What a call takes of a limit on ``tokens``, and what of one on ``input_tokens``:

    vendor      when it is let in                  once it is answered                     input_tokens
    OpenAI      the larger of max_tokens and       the same, by the real prompt            all
                the estimated prompt
    Azure       prompt + max_tokens (x best_of)    the same, by the real prompt            all
    Groq        prompt + max_tokens                the same, without what was cached       without what was cached
    Anthropic   prompt + max_tokens                prompt and answer, as produced          without cache reads
    Gemini      prompt                             prompt                                  all
    others      prompt + max_tokens                prompt and answer, as produced          all
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

from ..core.answer_length import TokenCost
from ..core.signal import CALLS_BY_TOKENS, Limit, Signal

CHARACTERS_IN_A_TOKEN = 4
MESSAGE = 4
"""Tokens for what surrounds a message: its role, its ends."""
PICTURE = 800
"""Tokens for a picture or another file that is part of the request."""
SHORTEST_FILE = 1_000
"""Characters under "data" that are taken for a file rather than for text."""
USUAL_OUTPUT = 256
"""Tokens that are expected back when a request does not say how many it allows."""
MOST_TOKENS = 1 << 38
"""A count above this is nonsense and is not believed."""

VENDORS = ("openai", "azure-openai", "groq", "anthropic", "gemini")
"""The dialects of vendors that count in a way of their own."""

COUNTED_AT_ADMISSION = ("openai", "azure-openai", "groq")
"""... of which these count what a request allows, whatever it then takes."""

LONGEST_COMPARED = 500
"""Characters of each part of a request that decide whether it is like another."""
_INPUT, _ALL_INPUT = frozenset(("input_tokens",)), frozenset(("tokens", "input_tokens"))
_OUTPUT, _ALL_OUTPUT = frozenset(("output_tokens",)), frozenset(("tokens", "output_tokens"))
_INSTRUCTIONS = ("system", "instructions", "systemInstruction", "system_instruction")
_FORM = ("tools", "response_format", "text")
"""What shapes an answer beside the instructions."""
_OUTPUT_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "maxOutputTokens")
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
    allowed = output_limit(body)
    return Usage(read, USUAL_OUTPUT * _answers(body) if allowed is None else allowed)


def output_limit(body: object) -> int | None:
    """The most tokens that this request lets all its answers have together; None if it does not say."""
    if not isinstance(body, dict):
        return None
    settings = body.get("generationConfig")
    for place in (body, settings if isinstance(settings, dict) else {}):
        allowed: int | None = next((place[name] for name in _OUTPUT_LIMITS if _is_count(place.get(name))), None)
        if allowed is not None:
            return min(allowed * _answers(body), MOST_TOKENS)
    return None


def _answers(body: dict[str, Any]) -> int:
    """Answers that are written for it, of which ``best_of`` may be more than are sent."""
    return max([count for name in ("n", "best_of") if _is_count(count := body.get(name)) and count], default=1)


def admitted(vendor: str, likely: Usage, template: int = 0) -> TokenCost:
    """What a call takes when it is let in: one request, and of limits on tokens by the dimension.

    ``likely`` is its estimate, of which the answer is all that is allowed. What of it is counted as it is produced
    is replaced by what answers to requests of this ``template`` really take, as soon as that is known.
    """
    tokens = likely.tokens
    if vendor == "openai":
        tokens = max(likely.input, likely.output)
    elif vendor == "gemini":
        tokens = likely.input
    return TokenCost(
        {"requests": 1, "tokens": tokens, "input_tokens": likely.input, "output_tokens": likely.output},
        prompt=likely.input,
        answer=likely.output,
        of_prompt=_INPUT if vendor == "openai" else _ALL_INPUT,
        of_answer=_ALL_OUTPUT if vendor == "anthropic" else _OUTPUT,
        template=template,
    )


def template_of(body: object) -> int:
    """What requests have in common that get answers of about the same length: all but the last message, shortly."""
    if not isinstance(body, dict):
        return 0
    system = next((body[name] for name in _INSTRUCTIONS if name in body), None)
    messages = body.get("messages", body.get("contents"))
    if system is None and isinstance(messages, list) and len(messages) > 1:
        system = messages[0]
    asked = [str(body.get(name))[:LONGEST_COMPARED] for name in _FORM]
    return hash((str(system)[:LONGEST_COMPARED], *asked, output_limit(body)))


def settled(vendor: str, usage: Usage, allowed: int | None) -> dict[str, float]:
    """What it has taken of them once it is answered; ``allowed`` is its ``output_limit``."""
    fresh = usage.input - usage.cached if vendor in ("anthropic", "groq") else usage.input
    reserved = usage.output if allowed is None else max(allowed, usage.output)
    tokens = fresh + usage.output
    if vendor == "openai" and allowed is not None:
        tokens = max(usage.input, reserved)
    elif vendor in ("azure-openai", "groq"):
        tokens = fresh + reserved
    elif vendor == "gemini":
        tokens = usage.input
    return {"tokens": tokens, "input_tokens": fresh, "output_tokens": usage.output}


def usage_of(answer: object) -> Usage | None:
    """What the answer says it took, in OpenAI's words, Anthropic's or Gemini's; None if it does not say.

    Anthropic counts what its cache held beside the input, OpenAI inside of it; here it is always inside.
    """
    said = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(said, dict):
        return _gemini_usage(answer.get("usageMetadata")) if isinstance(answer, dict) else None
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


def _gemini_usage(said: object) -> Usage | None:
    if not isinstance(said, dict) or not _is_count(read := said.get("promptTokenCount")):
        return None
    written = _number(said, "candidatesTokenCount") + _number(said, "thoughtsTokenCount")
    return Usage(read, written, min(read, _number(said, "cachedContentTokenCount")))


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


# ---------------------------------------------------------------------- what calls take on average

SLOWEST_LEARNING = 0.05
"""How much the newest call counts at least; the first ones count in full."""
LARGER = 1.03
"""A little more than the average, since the next call may be a larger one."""


class TokensPerCall:
    """What the calls under a key take in tokens, on average.

        "12,000 of 30,000 tokens are left, whole again in 36 s"  ──at 60 tokens a call──>  "200 of 500 calls are left"

    The pace is learned in calls. A limit on tokens that is not configured, but that the server announces, is followed
    as the limit on calls that it amounts to, beside the limit on calls; the slower pace decides. Where calls differ
    much in size that is right on average, and the room that is kept for bursts takes the rest.
    """

    __slots__ = ("_calls", "_takes")

    def __init__(self) -> None:
        self._calls = 0
        self._takes: dict[str, float] = {}

    def note(self, counted: Mapping[str, float]) -> None:
        """A call has taken this, by the dimension, as its vendor counts."""
        self._calls += 1
        share = max(1.0 / self._calls, SLOWEST_LEARNING)
        for dimension, amount in counted.items():
            average = self._takes.get(dimension, 0.0)
            self._takes[dimension] = average + share * (amount - average)

    def in_calls(self, signal: Signal) -> Signal:
        """The signal with its limits on tokens also given in calls, as soon as it is known what a call takes."""
        if not signal.limits or not self._calls:
            return signal
        converted = [_in_calls(limit, LARGER * self._takes.get(limit.dimension, 0.0)) for limit in signal.limits]
        return replace(signal, limits=(*signal.limits, *(limit for limit in converted if limit is not None)))


def _in_calls(limit: Limit, takes: float) -> Limit | None:
    if takes < 1.0 or limit.limit is None or limit.remaining is None:
        return None
    return replace(limit, dimension=CALLS_BY_TOKENS, limit=limit.limit / takes, remaining=limit.remaining / takes)


MOST_KEYS = 10_000


class TokenCounts:
    """What the calls of each key take. Safe for threads."""

    def __init__(self) -> None:
        self._by_key: dict[str, TokensPerCall] = {}

    def of(self, key: str) -> TokensPerCall:
        known = self._by_key.get(key)
        if known is None:
            if len(self._by_key) >= MOST_KEYS:
                self._by_key.clear()
            known = self._by_key.setdefault(key, TokensPerCall())
        return known
