"""OpenAI's chat completions, responses and embeddings: the fields they take, the answer, and its events.

    chat/completions    a chunk with the role, one for each word, one with the reason it ended, [DONE]
                        (and before that one with the usage, if ``stream_options.include_usage`` asks for it)
    responses           response.created, in_progress, output_item.added, content_part.added, output_text.delta ...,
                        output_text.done, content_part.done, output_item.done, response.completed or .incomplete

Other vendors take the same requests: ``openai_vendors.py`` says which, and how they differ.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from .language_api import (
    CACHED_FROM,
    LONGEST_MODEL,
    MISSING,
    Answer,
    Event,
    RejectedError,
    Stamp,
    texts_in,
    tokens_of,
    vector,
    write,
)

CONTEXT = 128_000
"""Tokens that fit into a question ..."""
LONG, LONG_CONTEXT = ("long", "gemini"), 1_000_000
"""... and into one to a model whose name begins so."""
LEAST_OF_RESPONSE = 16
MOST_BEST_OF = 20


def reject(why: str, param: str | None = None, trouble: str = "invalid") -> RejectedError:
    return RejectedError(trouble, why, param)


def model_of(fields: Mapping[str, Any]) -> str:
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise reject("you must provide a model parameter")
    if model.startswith(MISSING):
        why = f"The model `{model[:LONGEST_MODEL]}` does not exist or you do not have access to it."
        raise reject(why, trouble="not_found")
    return model[:LONGEST_MODEL]


def most_tokens(fields: Mapping[str, Any], names: tuple[str, ...], least: int) -> int | None:
    name = next((name for name in names if fields.get(name) is not None), None)
    if name is None:
        return None
    given = fields[name]
    if not isinstance(given, int) or isinstance(given, bool):
        raise reject(f"Invalid type for '{name}': expected an integer.", name)
    if given < least:
        raise reject(
            f"Invalid '{name}': integer below minimum value. Expected a value >= {least}, but got {given} instead.",
            name,
        )
    return given


class _TextAnswer(Answer):
    """What both endpoints have in common: a prompt, and what is written about it."""

    def __init__(self, fields: Mapping[str, Any], seed: str, texts: list[Any], most: int | None, about: str) -> None:
        """``texts``: the prompt; its first part is what a cache may hold."""
        first, prompt = "\n".join(texts_in(texts[:1])), "\n".join(texts_in(texts))
        self.prefix = first if tokens_of(first) >= CACHED_FROM else ""
        self.fields = fields
        self.model = model_of(fields)
        self.streamed = fields.get("stream") is True
        self.tokens_in = tokens_of(prompt)
        context = LONG_CONTEXT if self.model.startswith(LONG) else CONTEXT
        if self.tokens_in > context:
            raise reject(
                f"This model's maximum context length is {context} tokens. However, your messages resulted in "
                f"{self.tokens_in} tokens. Please reduce the length of the messages.",
                about,
                "too_long",
            )
        self.most_out = most
        best_of = fields.get("best_of", 1)
        self.best_of = best_of if type(best_of) is int and 1 <= best_of <= MOST_BEST_OF else 1
        self.written = write(seed, self.model, prompt, most)
        self.tokens_out = self.written.tokens


class ChatCompletion(_TextAnswer):
    def __init__(self, fields: Mapping[str, Any], seed: str) -> None:
        messages = fields.get("messages")
        if not isinstance(messages, list) or not messages:
            raise reject("Missing required parameter: 'messages'.", "messages")
        for at, message in enumerate(messages):
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                raise reject(f"Missing required parameter: 'messages[{at}].role'.", f"messages[{at}].role")
        if fields.get("n", 1) not in (1, None):
            raise reject("This mock writes one choice; 'n' must be 1.", "n")
        most = most_tokens(fields, ("max_completion_tokens", "max_tokens"), 1)
        super().__init__(fields, seed, messages, most, "messages")

    def body(self, stamp: Stamp) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self.written.text,
            "refusal": None,
            "annotations": [],
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason}
        return self._head(stamp, "chat.completion") | {"choices": [choice], "usage": self._usage}

    def events(self, stamp: Stamp) -> Iterator[Event]:
        options = self.fields.get("stream_options")
        with_usage = isinstance(options, dict) and options.get("include_usage") is True
        head = self._head(stamp, "chat.completion.chunk") | ({"usage": None} if with_usage else {})

        def chunk(delta: dict[str, Any], reason: str | None = None) -> Event:
            return Event(head | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]})

        yield chunk({"role": "assistant", "content": "", "refusal": None})
        for piece in self.written.pieces:
            yield chunk({"content": piece})
        yield chunk({}, self._reason)
        if with_usage:
            yield Event(head | {"choices": [], "usage": self._usage})
        yield Event("[DONE]")

    @property
    def _reason(self) -> str:
        return "length" if self.written.cut else "stop"

    @property
    def _usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.tokens_in,
            "completion_tokens": self.tokens_out,
            "total_tokens": self.tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }

    def _head(self, stamp: Stamp, kind: str) -> dict[str, Any]:
        head = {"id": f"chatcmpl-{stamp.token}", "object": kind, "created": stamp.created, "model": self.model}
        tier = self.fields.get("service_tier")
        return head | {"service_tier": tier if tier == "flex" else "default", "system_fingerprint": "fp_mock"}


class Response(_TextAnswer):
    def __init__(self, fields: Mapping[str, Any], seed: str) -> None:
        asked = fields.get("input")
        if not isinstance(asked, str | list) or not asked:
            raise reject("Missing required parameter: 'input'.", "input")
        most = most_tokens(fields, ("max_output_tokens",), LEAST_OF_RESPONSE)
        super().__init__(fields, seed, [fields.get("instructions"), asked], most, "input")

    def body(self, stamp: Stamp) -> dict[str, Any]:
        item = self._item(stamp, "incomplete" if self.written.cut else "completed", [self._part(self.written.text)])
        usage = {
            "input_tokens": self.tokens_in,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
            "output_tokens": self.tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.tokens,
        }
        return self._state(stamp, item["status"], [item]) | {"usage": usage, "completed_at": stamp.created}

    def events(self, stamp: Stamp) -> Iterator[Event]:
        for number, (name, data) in enumerate(self._steps(stamp)):
            yield Event({"type": name, **data, "sequence_number": number}, name)

    def failure(self, body: Any, stamp: Stamp) -> Event:
        error = body.get("error", {}) if isinstance(body, dict) else {}
        told = {"code": error.get("code") or error.get("type") or "server_error", "message": error.get("message", "")}
        failed = self._state(stamp, "failed", []) | {"error": told}
        name = "response.failed"
        return Event({"type": name, "response": failed, "sequence_number": len(self.written.pieces)}, name)

    def _steps(self, stamp: Stamp) -> Iterator[tuple[str, dict[str, Any]]]:
        place = {"item_id": f"msg_{stamp.token}", "output_index": 0, "content_index": 0}
        begun = {"response": self._state(stamp, "in_progress", [])}
        whole = self.body(stamp)
        item, text = whole["output"][0], self.written.text
        yield "response.created", begun
        yield "response.in_progress", begun
        yield "response.output_item.added", {"output_index": 0, "item": self._item(stamp, "in_progress", [])}
        yield "response.content_part.added", place | {"part": self._part("")}
        for piece in self.written.pieces:
            yield "response.output_text.delta", place | {"delta": piece, "logprobs": []}
        yield "response.output_text.done", place | {"text": text, "logprobs": []}
        yield "response.content_part.done", place | {"part": self._part(text)}
        yield "response.output_item.done", {"output_index": 0, "item": item}
        yield f"response.{whole['status']}", {"response": whole}

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _item(self, stamp: Stamp, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        item = {"id": f"msg_{stamp.token}", "type": "message", "status": status}
        return item | {"role": "assistant", "content": content}

    def _state(self, stamp: Stamp, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        given = self.fields.get
        return {
            "id": f"resp_{stamp.token}",
            "object": "response",
            "created_at": stamp.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": given("instructions"),
            "max_output_tokens": given("max_output_tokens"),
            "metadata": given("metadata") or {},
            "model": self.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": given("previous_response_id"),
            "store": given("store", True),
            "temperature": given("temperature", 1.0),
            "text": given("text") or {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": given("tools") or [],
            "top_p": given("top_p", 1.0),
            "truncation": "disabled",
            "usage": None,
        }


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
