"""OpenAI: chat completions, responses and embeddings below /v1, a bearer key, limits by the minute."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any, ClassVar

from ..dialects import DIALECTS
from ..providers.contract import Asked
from ..reply import Reply
from .budget import Refusal
from .contract import Answer, LanguageApi, Stamp
from .openai_errors import error, limit_reached, reject
from .openai_text import ChatCompletion, Response, model_of
from .words import tokens_of, vector

MOST_INPUTS = 2048
LONGEST_INPUT = 8192
"""Tokens of one text to embed."""
MOST_DIMENSIONS = 3072
SMALL = 1536


class Embeddings(Answer):
    """Of a text, of tokens, or of a list of either."""

    streamed = False
    tokens_out = 0

    def __init__(self, fields: Mapping[str, Any], seed: str) -> None:
        self.model = model_of(fields)
        self._fields, self._seed = fields, seed
        self._inputs = _inputs(fields.get("input"))
        sizes = [tokens_of(each) if isinstance(each, str) else len(each) for each in self._inputs]
        if max(sizes) > LONGEST_INPUT:
            why = f"This model's maximum input length is {LONGEST_INPUT} tokens; you requested {max(sizes)}."
            raise reject(why, "input", "too_long")
        self.tokens_in = sum(sizes)
        self._dimensions = fields.get("dimensions") or (MOST_DIMENSIONS if self.model.endswith("-large") else SMALL)
        if not isinstance(self._dimensions, int) or not 1 <= self._dimensions <= MOST_DIMENSIONS:
            raise reject(f"Invalid 'dimensions': must be within 1 and {MOST_DIMENSIONS}.", "dimensions")

    def body(self, stamp: Stamp) -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": index, "embedding": self._embed(each)}
            for index, each in enumerate(self._inputs)
        ]
        usage = {"prompt_tokens": self.tokens_in, "total_tokens": self.tokens}
        return {"object": "list", "data": data, "model": self.model, "usage": usage}

    def _embed(self, text: str | list[int]) -> list[float] | str:
        numbers = vector(self._seed, self.model, str(text), self._dimensions)
        if self._fields.get("encoding_format") != "base64":
            return numbers
        return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode("ascii")


def _inputs(given: Any) -> list[str | list[int]]:
    inputs = [given] if isinstance(given, str) or _are_tokens(given) else given
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= MOST_INPUTS:
        raise reject(f"'input' must be a text, or a list of 1 to {MOST_INPUTS} of them.", "input")
    if not (all(isinstance(each, str) and each for each in inputs) or all(_are_tokens(each) for each in inputs)):
        raise reject("'$.input' is invalid. Please check the API reference.", "input")
    return inputs


def _are_tokens(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(each, int) for each in given)


class OpenAI(LanguageApi):
    name = site = "openai"
    root = "/v1"
    dialect = DIALECTS["openai"]
    endpoints: ClassVar = {"/chat/completions": ChatCompletion, "/responses": Response, "/embeddings": Embeddings}

    def key_of(self, asked: Asked) -> str:
        return asked.bearer

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        if trouble not in ("rate_limited", "daily"):
            return error(trouble, why)
        return limit_reached(Refusal.scripted(trouble, retry_after), "mock")

    def turn_away(self, refusal: Refusal, model: str) -> Reply:
        return limit_reached(refusal, model)

    def sign(self, reply: Reply, stamp: Stamp) -> Reply:
        headers = {
            "x-request-id": f"req_{stamp.token}",
            "openai-organization": "org-mock",
            "openai-version": "2020-10-01",
        }
        return Reply(reply.status, reply.body, headers | reply.headers, reply.content_type)
