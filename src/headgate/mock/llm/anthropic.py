"""Anthropic: POST /v1/messages, the key as x-api-key, limits by the minute, 529 when there is too much to do.

The events of a stream: message_start, content_block_start, ping, content_block_delta ..., content_block_stop,
message_delta, message_stop; and ``error`` wherever it may strike.

Input counts without what the cache held (blocks with ``cache_control``), output when it is written; limits are the
organisation's, for each model. Credentials of subscriptions are told the windows of their plan instead: with
``--rate 200/5h`` what is used of the five hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..api import Reply
from ..dialects import DIALECTS
from ..dialects.chat import ANTHROPIC_SUBSCRIPTION
from ..dialects.dialect import DAY, MINUTE, ROUNDING, whole_seconds
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
    Refusal,
    RejectedError,
    Scope,
    Stamp,
    texts_in,
    tokens_of,
    write,
)

CONTEXT = 200_000
"""Tokens that fit into a question."""
ROLES = ("user", "assistant")

_SPEND = "enforced_spend_limit_reached"
_ERRORS = {
    "unauthorized": ApiError(401, "invalid x-api-key", "authentication_error"),
    "forbidden": ApiError(
        403, "Your API key does not have permission to use the specified resource.", "permission_error"
    ),
    "invalid": ApiError(400, "The request is not valid.", "invalid_request_error"),
    "not_found": ApiError(404, "model: mock", "not_found_error"),
    "too_large": ApiError(413, "Request exceeds the maximum size", "request_too_large"),
    "quota": ApiError(402, "Your credit balance is too low to access the Anthropic API.", "billing_error"),
    "spend": ApiError(429, "Your organization has reached its enforced spend limit.", "rate_limit_error", _SPEND),
    "usage_limit": ApiError(
        400,
        "You have reached your specified workspace API usage limits. You will regain access on 2026-12-01.",
        "invalid_request_error",
    ),
    "server_error": ApiError(500, "Internal server error", "api_error"),
    "unavailable": ApiError(503, "Service unavailable", "api_error"),
    "overloaded": ApiError(529, "Overloaded", "overloaded_error"),
}


def _error_body(error: ApiError, param: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {"type": error.kind, "message": error.message}
    if error.code:
        told["details"] = {"error_code": error.code}
    return {"type": "error", "error": told}


def _error_headers(error: ApiError) -> dict[str, str]:
    return {"x-should-retry": "true" if error.status >= 500 else "false"}


def _limit_reached(refusal: Refusal, model: str, organization: str) -> Reply:
    """Also where the call can never fit: the real one has no other word for it."""
    status, per = refusal.status, DAY if refusal.trouble == "daily" else MINUTE
    limit = int(status.limit * (per / status.window if status.window else 1.0) + ROUNDING)
    counted = "requests" if refusal.unit == "calls" else refusal.unit.replace("_", " ")
    message = (
        f"This request would exceed your organization's rate limit of {limit:,} {counted} per "
        f"{'day' if per == DAY else 'minute'}. Please reduce your usage or try again later."
    )
    if not limit:  # of hours, as subscriptions have it
        message = "This request would exceed your account's rate limit. Please try again later."
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": message}}
    return Reply(429, body, {"retry-after": str(whole_seconds(status.retry)), "x-should-retry": "true"})


class Message(Answer):
    def __init__(self, fields: Mapping[str, Any], seed: str) -> None:
        self.model = _text(fields, "model")[:LONGEST_MODEL]
        if self.model.startswith(MISSING):
            raise RejectedError("not_found", f"model: {self.model}")
        most = fields.get("max_tokens")
        if most is None:
            raise _invalid("max_tokens: Field required")
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise _invalid("max_tokens: Input should be greater than or equal to 1")
        blocks = list(_blocks([fields.get("system"), _messages(fields)]))
        prompt = "\n".join(text for text, _ in blocks)
        marked = max((at for at, (_, is_marked) in enumerate(blocks, 1) if is_marked), default=0)
        prefix = "\n".join(text for text, _ in blocks[:marked])
        if tokens_of(prefix) >= CACHED_FROM:
            self.prefix, self.is_prefix_marked = prefix, True
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
        fresh = self.tokens_in - self.cached - self.cache_written
        cache = {"cache_creation_input_tokens": self.cache_written, "cache_read_input_tokens": self.cached}
        return {"input_tokens": fresh, **cache, "output_tokens": 1, "service_tier": "standard"}

    def _head(self, stamp: Stamp) -> dict[str, Any]:
        head = {"id": f"msg_{stamp.token}", "type": "message", "role": "assistant", "model": self.model}
        return head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": self._usage}


def _invalid(why: str) -> RejectedError:
    return RejectedError("invalid", why)


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


def _blocks(value: Any) -> Iterator[tuple[str, bool]]:
    """Every text, and whether the prompt may be cached up to its end."""
    for entry in value if isinstance(value, list) else [value]:
        content = entry.get("content") if isinstance(entry, dict) else None
        if isinstance(entry, list) or isinstance(content, list):
            yield from _blocks(content or entry)
        else:
            is_marked = isinstance(entry, dict) and bool(entry.get("cache_control"))
            yield from ((text, is_marked) for text in texts_in(entry))


def _key_of(asked: MockRequest) -> str:
    return asked.headers.get("x-api-key", "") or asked.bearer


def _has_version(asked: MockRequest) -> None:
    if not asked.headers.get("anthropic-version"):
        raise RejectedError("invalid", "anthropic-version: header is required")


def _sign(reply: Reply, stamp: Stamp, model: str) -> Reply:
    request_id = f"req_{stamp.token}"
    failed = isinstance(reply.body, dict) and reply.body.get("type") == "error"
    body = reply.body | {"request_id": request_id} if failed else reply.body
    headers = {"request-id": request_id, "anthropic-organization-id": stamp.organization}
    headers["anthropic-workspace-id"] = stamp.project
    return replace(reply, body=body, headers=headers | reply.headers)


ANTHROPIC = LanguageApi(
    name="anthropic",
    endpoints={"/v1/messages": Message},
    dialect=DIALECTS["anthropic"],
    subscription=ANTHROPIC_SUBSCRIPTION,
    key_of=_key_of,
    check=_has_version,
    sign=_sign,
    counting=Counting(produced=("output_tokens",), cached_is_free=True),
    scope=Scope(),
    limit_reached=_limit_reached,
    error_body=_error_body,
    error_headers=_error_headers,
    errors=_ERRORS,
)
