"""Gemini: generateContent and its stream below /v1beta, the key as x-goog-api-key or ?key=, limits only in errors.

A project may ask so often and read so many tokens a minute, and ask so often a day, which ends at midnight Pacific;
what is written does not count. OpenAI's chat completions are taken too, at /v1beta/openai, with Google's errors.

    streamGenerateContent?alt=sse    the same objects as the whole answer, with a piece each; the last has usageMetadata
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..api import Reply
from ..dialects import DIALECTS
from ..dialects.platforms import refuse_as_gemini
from ..providers.provider_api import MockRequest
from .language_api import (
    CACHED_FROM,
    LONGEST_MODEL,
    MISSING,
    Answer,
    ApiError,
    Counting,
    Event,
    LanguageApi,
    RejectedError,
    Scope,
    Stamp,
    prompt,
    texts_in,
    tokens_of,
    write,
)
from .openai import ChatCompletion

CONTEXT = 1_048_576
"""Tokens that fit into a question."""
_INVALID = "INVALID_ARGUMENT"


class GenerateContent(Answer):
    def __init__(self, fields: Mapping[str, Any], seed: str, *, streamed: bool = False) -> None:
        self.model = _model_of(fields)
        contents = fields.get("contents")
        if not isinstance(contents, list) or not contents:
            raise RejectedError("invalid", "* GenerateContentRequest.contents: contents is not specified")
        instruction = fields.get("systemInstruction", fields.get("system_instruction"))
        first = "\n".join(texts_in(_parts(instruction)))
        asked = "\n".join(filter(None, [first, *texts_in([_parts(content) for content in contents])]))
        self.prefix = first if tokens_of(first) >= CACHED_FROM else ""
        self.streamed, self.tokens_in = streamed, tokens_of(asked)
        if self.tokens_in > CONTEXT:
            raise RejectedError("too_long", "")
        self.most_out = _most(fields.get("generationConfig"))
        self._written = write(seed, self.model, asked, self.most_out)
        self.tokens_out = self._written.tokens

    def body(self, stamp: Stamp) -> dict[str, Any]:
        return self._chunk(stamp, self._written.text, is_last=True)

    def events(self, stamp: Stamp) -> Iterator[Event]:
        *pieces, last = self._written.pieces or [""]
        for piece in pieces:
            yield Event(self._chunk(stamp, piece))
        yield Event(self._chunk(stamp, last, is_last=True))

    def _chunk(self, stamp: Stamp, text: str, is_last: bool = False) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}
        if is_last:
            candidate["finishReason"] = "MAX_TOKENS" if self._written.cut else "STOP"
        usage = {"promptTokenCount": self.tokens_in, "totalTokenCount": self.tokens_in}
        if is_last:
            usage |= {"candidatesTokenCount": self.tokens_out, "totalTokenCount": self.tokens}
        if self.cached:
            usage["cachedContentTokenCount"] = self.cached
        told = {"candidates": [candidate], "usageMetadata": usage}
        return told | {"modelVersion": self.model, "responseId": stamp.token}


def _chat(fields: Mapping[str, Any], seed: str) -> ChatCompletion:
    """As OpenAI's, with Google's error for a model that does not exist."""
    _model_of(fields)
    return ChatCompletion(fields, seed)


def _model_of(fields: Mapping[str, Any]) -> str:
    model = str(fields.get("model"))[:LONGEST_MODEL]
    if model.startswith(MISSING):
        raise RejectedError("not_found", f"models/{model} is not found for API version v1beta.")
    return model


def _parts(content: Any) -> Any:
    return content.get("parts") if isinstance(content, dict) else content


def _most(settings: Any) -> int | None:
    most = settings.get("maxOutputTokens") if isinstance(settings, dict) else None
    if most is None:
        return None
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise RejectedError("invalid", "* GenerateContentRequest.generation_config.max_output_tokens must be positive")
    return most


def _key_of(asked: MockRequest) -> str:
    return asked.headers.get("x-goog-api-key", "") or asked.query.get("key", "") or asked.bearer


def _error_body(error: ApiError, param: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {"code": error.status, "message": error.message, "status": error.kind}
    if error.code:
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.code, "domain": "googleapis.com"}
        told["details"] = [info]
    return {"error": told}


def _sign(reply: Reply, stamp: Stamp, model: str) -> Reply:
    return replace(reply, headers={"x-gemini-service-tier": "standard"} | reply.headers)


GEMINI = LanguageApi(
    name="gemini",
    endpoints={
        "/v1beta/models/{model}:generateContent": GenerateContent,
        "/v1beta/models/{model}:streamGenerateContent": partial(GenerateContent, streamed=True),
        "/v1beta/openai/chat/completions": _chat,
    },
    dialect=DIALECTS["gemini"],
    key_of=_key_of,
    sign=_sign,
    counting=Counting(admission=prompt),
    scope=Scope(owner="project"),
    pacific_days=True,
    limit_reached=lambda refusal, model, _: refuse_as_gemini(refusal.unit, refusal.status, 0.0, model),
    error_body=_error_body,
    errors={
        "unauthorized": ApiError(400, "API key not valid. Please pass a valid API key.", _INVALID, "API_KEY_INVALID"),
        "forbidden": ApiError(403, "The caller does not have permission", "PERMISSION_DENIED"),
        "invalid": ApiError(400, "Request contains an invalid argument.", _INVALID),
        "too_long": ApiError(400, "The input token count exceeds the maximum number of tokens allowed.", _INVALID),
        "not_found": ApiError(404, "models/mock is not found for API version v1beta.", "NOT_FOUND"),
        "too_large": ApiError(413, "Request payload size exceeds the limit.", "FAILED_PRECONDITION"),
        "quota": ApiError(402, "Your prepaid credit is used up; add credit to go on.", "RESOURCE_EXHAUSTED"),
        "spend": ApiError(402, "Your prepaid credit is used up; add credit to go on.", "RESOURCE_EXHAUSTED"),
        "capacity": ApiError(503, "The model is overloaded. Please try again later.", "UNAVAILABLE"),
        "server_error": ApiError(500, "An internal error has occurred.", "INTERNAL"),
        "unavailable": ApiError(503, "The service is currently unavailable.", "UNAVAILABLE"),
        "overloaded": ApiError(503, "The model is overloaded. Please try again later.", "UNAVAILABLE"),
    },
)
