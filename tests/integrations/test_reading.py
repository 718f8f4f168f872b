"""What an answer says while it passes by: its usage, and an error in the middle of it."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from headgate.batch.tokens import Usage
from headgate.core.decision import Outcome
from headgate.core.signal import Limit, Signal
from headgate.integrations import reading
from headgate.integrations.outgoing import Outgoing, by_host, by_model, is_idempotent_or_generates, with_tokens
from headgate.integrations.reading import AnswerReader, unpacked
from headgate.integrations.token_pace import LARGER, TokenPace

CHAT = {"usage": {"prompt_tokens": 10, "completion_tokens": 5}}


def events(*each):
    return b"".join(b"data: " + (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n\n" for one in each)


def read(data, *, streams=False, encoding="", step=1000):
    reader = AnswerReader(streams=streams, encoding=encoding)
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
    reader.finish()
    return reader


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("", bytes), ("gzip", gzip.compress), ("deflate", zlib.compress)],
    ids=["plain", "gzip", "deflate"],
)
def test_usage_of_an_answer_in_one_piece(encoding, pack, step):
    assert read(pack(json.dumps(CHAT).encode()), encoding=encoding, step=step).usage == Usage(10, 5)


@pytest.mark.parametrize("step", [1, 13, 1000])
@pytest.mark.parametrize(
    "stream",
    [
        events({"choices": [{"delta": {"content": "hi"}}], "usage": None}, {"choices": [], **CHAT}, b"[DONE]"),
        events({"type": "response.completed", "response": {"usage": {"input_tokens": 10, "output_tokens": 5}}}),
        events(
            {"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}},
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}},
            {"type": "message_delta", "usage": {"output_tokens": 5}},
        ),
    ],
    ids=["chat", "responses", "messages"],
)
def test_usage_at_the_end_of_a_stream(stream, step):
    assert read(stream, streams=True, step=step).usage == Usage(10, 5)


def test_stream_without_usage_is_counted_by_its_text():
    reader = read(events(*({"choices": [{"delta": {"content": "abcd" * 10}}]} for _ in range(3))), streams=True)
    assert reader.usage is None
    assert reader.written_tokens == 30


def test_error_in_the_middle_of_a_stream_is_noticed():
    failed = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    reader = read(events({"type": "ping"}, failed), streams=True)
    assert reader.error.outcome is Outcome.OVERLOADED


def test_word_error_in_a_text_is_none():
    said = {"choices": [{"delta": {"content": 'an "error" has failed'}}]}
    assert read(events(said), streams=True).error is None


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, br"])
def test_what_python_cannot_unpack_is_not_read(encoding):
    assert read(json.dumps(CHAT).encode(), encoding=encoding).usage is None


def test_damaged_packing_is_not_read():
    assert read(b"\x1f\x8b nonsense", encoding="gzip").usage is None


def test_endless_answer_takes_bounded_memory(monkeypatch):
    monkeypatch.setattr(reading, "LARGEST_ANSWER", 1000)
    reader = AnswerReader(streams=False)
    for _ in range(100):
        reader.feed(b" " * 100)
    assert len(reader._kept) <= 1000


def test_bomb_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(reading, "MOST_UNPACKED", 1 << 20)
    reader = AnswerReader(streams=True, encoding="gzip")
    reader.feed(gzip.compress(b"\n" * (1 << 24)))
    assert reader._unpacked <= (1 << 20) + reading.STEP
    assert len(unpacked(gzip.compress(b" " * (1 << 24)), "gzip")) == reading.STEP


def test_limit_on_tokens_is_told_in_calls():
    pace = TokenPace()
    told = Signal(outcome=Outcome.OK, limits=(Limit(dimension="tokens", limit=600.0, remaining=300.0, reset=6.0),))
    assert pace.in_calls(told) is told, "as long as nothing is known of calls"
    pace.note(Usage(40, 20))
    in_calls = pace.in_calls(told).limits[1]
    assert in_calls.dimension == "requests"
    assert in_calls.limit == pytest.approx(10 / LARGER)
    assert in_calls.remaining == pytest.approx(5 / LARGER)
    assert in_calls.reset == 6.0


def test_average_follows_what_calls_take():
    pace = TokenPace()
    for _ in range(100):
        pace.note(Usage(1000, 0))
    for _ in range(100):
        pace.note(Usage(10, 0))
    told = Signal(outcome=Outcome.OK, limits=(Limit(dimension="input-tokens", limit=1000.0, remaining=1000.0),))
    assert pace.in_calls(told).limits[1].limit > 50


def asked(body, path="/v1/chat/completions", method="POST"):
    return Outgoing(method, f"https://api.example.com{path}?a=b", body=json.dumps(body).encode())


def test_cost_is_guessed_where_a_model_answers():
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x" * 400}]}
    assert with_tokens(asked(body))["tokens"] >= 200
    assert with_tokens(asked(body, "/v1/files")) == 1
    assert with_tokens(Outgoing("POST", "https://a.example/v1/messages", body=b"no json")) == 1
    assert with_tokens(Outgoing("POST", "https://a.example/v1/messages")) == 1


def test_each_model_may_have_a_line_of_its_own():
    body = {"model": "large", "messages": []}
    assert by_host(asked(body)) == "api.example.com"
    assert by_model(asked(body)) == "api.example.com/large"
    assert by_model(asked(body, "/v1/files")) == "api.example.com"
    assert by_model(asked({"model": 7})) == "api.example.com"


def test_vendors_clients_repeat_what_models_are_asked():
    assert is_idempotent_or_generates(asked({}))
    assert not is_idempotent_or_generates(asked({}, "/v1/files"))
