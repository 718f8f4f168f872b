"""Anthropic: POST /v1/messages, the key as x-api-key, limits by the minute, 529 when there is too much to do.

The events of a stream: message_start, content_block_start, ping, content_block_delta ..., content_block_stop,
message_delta, message_stop; and ``error`` wherever it may strike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ..api import Reply
from ..dialects import DIALECTS
from ..dialects.dialect import DAY, MINUTE, ROUNDING, whole_seconds
from ..providers.provider_api import MockRequest
from .language_api import (
    LONGEST_MODEL,
    MISSING,
    Answer,
    Event,
    LanguageApi,
    Refusal,
    RejectedError,
    Stamp,
    texts_in,
    tokens_of,
    write,
)

CONTEXT = 200_000
"""Tokens that fit into a question."""
ROLES = ("user", "assistant")

_ERRORS = {
    "unauthorized": (401, "authentication_error", "invalid x-api-key"),
    "forbidden": (403, "permission_error", "Your API key does not have permission to use the specified resource."),
    "invalid": (400, "invalid_request_error", "The request is not valid."),
    "not_found": (404, "not_found_error", "model: mock"),
    "too_large": (413, "request_too_large", "Request exceeds the maximum size"),
    "quota": (402, "billing_error", "Your credit balance is too low to access the Anthropic API."),
    "spend": (429, "rate_limit_error", "Your organization has reached its enforced spend limit."),
    "usage_limit": (
        400,
        "invalid_request_error",
        "You have reached your specified workspace API usage limits. You will regain access on 2026-12-01.",
    ),
    "server_error": (500, "api_error", "Internal server error"),
    "unavailable": (503, "api_error", "Service unavailable"),
    "overloaded": (529, "overloaded_error", "Overloaded"),
}


def error(trouble: str, why: str = "") -> Reply:
    status, kind, words = _ERRORS[trouble]
    headers = {"x-should-retry": "true" if status >= 500 else "false"}
    told: dict[str, Any] = {"type": kind, "message": why or words}
    if trouble == "spend":
        told["details"] = {"error_code": "enforced_spend_limit_reached"}
    return Reply(status, {"type": "error", "error": told}, headers)


def limit_reached(refusal: Refusal) -> Reply:
    """Also where the call can never fit: the real one has no other word for it."""
    status, per = refusal.status, DAY if refusal.trouble == "daily" else MINUTE
    limit = int(status.limit * (per / status.window if status.window else 1.0) + ROUNDING)
    counted = "requests" if refusal.unit == "calls" else refusal.unit.replace("_", " ")
    message = (
        f"This request would exceed your organization's rate limit of {limit:,} {counted} per "
        f"{'day' if per == DAY else 'minute'}. Please reduce your usage or try again later."
    )
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": message}}
    return Reply(429, body, {"retry-after": str(whole_seconds(status.retry)), "x-should-retry": "true"})


class Message(Answer):
    def __init__(self, fields: Mapping[str, Any], seed: str) -> None:
        self.model = _text(fields, "model")[:LONGEST_MODEL]
        if self.model.startswith(MISSING):
            raise RejectedError(error("not_found", f"model: {self.model}"))
        most = fields.get("max_tokens")
        if most is None:
            raise _invalid("max_tokens: Field required")
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise _invalid("max_tokens: Input should be greater than or equal to 1")
        prompt = "\n".join(texts_in([fields.get("system"), _messages(fields)]))
        self.streamed = fields.get("stream") is True
        self.tokens_in = tokens_of(prompt)
        if self.tokens_in > CONTEXT:
            raise _invalid(f"prompt is too long: {self.tokens_in} tokens > {CONTEXT} maximum")
        self.most_out = most
        self._written = write(seed, self.model, prompt, most)
        self.tokens_out = self._written.tokens

    def body(self, stamp: Stamp) -> dict[str, Any]:
        block = {"type": "text", "text": self._written.text, "citations": None}
        usage = self._usage | {"output_tokens": self.tokens_out}
        return self._head(stamp) | {"content": [block], "stop_reason": self._reason, "usage": usage}

    def events(self, stamp: Stamp) -> Iterator[Event]:
        for name, data in self._steps(stamp):
            yield Event({"type": name, **data}, name)

    def failure(self, body: Any, stamp: Stamp) -> Event:
        return Event(body, "error")

    def _steps(self, stamp: Stamp) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "message_start", {"message": self._head(stamp)}
        yield "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
        yield "ping", {}
        for piece in self._written.pieces:
            yield "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": piece}}
        yield "content_block_stop", {"index": 0}
        stop = {"stop_reason": self._reason, "stop_sequence": None}
        yield "message_delta", {"delta": stop, "usage": {"output_tokens": self.tokens_out}}
        yield "message_stop", {}

    @property
    def _reason(self) -> str:
        return "max_tokens" if self._written.cut else "end_turn"

    @property
    def _usage(self) -> dict[str, Any]:
        cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        return {"input_tokens": self.tokens_in, **cached, "output_tokens": 1, "service_tier": "standard"}

    def _head(self, stamp: Stamp) -> dict[str, Any]:
        head = {"id": f"msg_{stamp.token}", "type": "message", "role": "assistant", "model": self.model}
        return head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": self._usage}


def _invalid(why: str) -> RejectedError:
    return RejectedError(error("invalid", why))


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise _invalid(f"{name}: Field required")
    return value


def _messages(fields: Mapping[str, Any]) -> list[Any]:
    messages = fields.get("messages")
    if not isinstance(messages, list):
        raise _invalid("messages: Field required")
    if not messages:
        raise _invalid("messages: at least one message is required")
    for at, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise _invalid(f"messages.{at}.role: Input should be 'user' or 'assistant'")
    return messages


class Anthropic(LanguageApi):
    name = site = "anthropic"
    counts_produced = True
    dialect = DIALECTS["anthropic"]
    endpoints: ClassVar = {"/v1/messages": Message}

    def key_of(self, asked: MockRequest) -> str:
        return asked.headers.get("x-api-key", "") or asked.bearer

    def check(self, asked: MockRequest) -> None:
        if not asked.headers.get("anthropic-version"):
            self.reject("invalid", "anthropic-version: header is required")
        super().check(asked)

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        if trouble not in ("rate_limited", "daily"):
            return error(trouble, why)
        return limit_reached(Refusal.scripted(trouble, retry_after))

    def refuse_limit(self, refusal: Refusal, model: str) -> Reply:
        return limit_reached(refusal)

    def sign(self, reply: Reply, stamp: Stamp) -> Reply:
        request_id = f"req_{stamp.token}"
        failed = isinstance(reply.body, dict) and reply.body.get("type") == "error"
        body = reply.body | {"request_id": request_id} if failed else reply.body
        headers = {"request-id": request_id, "anthropic-organization-id": stamp.organization}
        headers["anthropic-workspace-id"] = stamp.project
        return Reply(reply.status, body, headers | reply.headers, reply.content_type)
