"""What a response says while it is read: its usage, and an error in the middle of it."""

from __future__ import annotations

import gzip
import json
import sys
import zlib

import pytest

from headgate.core.decision import Outcome
from headgate.integrations import response_reader
from headgate.integrations.response_reader import ResponseReader, unpacked
from headgate.wire.token_usage import Usage

CHAT = {"usage": {"prompt_tokens": 10, "completion_tokens": 5}}


def events(*each):
    return b"".join(b"data: " + (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n\n" for one in each)


def read(data, *, streams=False, encoding="", step=1000):
    reader = ResponseReader(streams=streams, encoding=encoding)
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


def test_usage_of_an_answer_in_zstandard():
    zstd = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    assert read(zstd.compress(json.dumps(CHAT).encode()), encoding="zstd").usage == Usage(10, 5)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, br"])
def test_what_cannot_be_unpacked_is_not_read(encoding):
    assert read(json.dumps(CHAT).encode(), encoding=encoding).usage is None


def test_damaged_packing_is_not_read():
    assert read(b"\x1f\x8b nonsense", encoding="gzip").usage is None


def test_endless_answer_takes_bounded_memory(monkeypatch):
    monkeypatch.setattr(response_reader, "LARGEST_ANSWER", 1000)
    reader = ResponseReader(streams=False)
    for _ in range(100):
        reader.feed(b" " * 100)
    assert len(reader._kept) <= 1000


@pytest.mark.no_cover
def test_bomb_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(response_reader, "MOST_UNPACKED", 1 << 20)
    reader = ResponseReader(streams=True, encoding="gzip")
    reader.feed(gzip.compress(b"\n" * (1 << 24)))
    assert reader._unpacked <= (1 << 20) + response_reader.STEP
    assert len(unpacked(gzip.compress(b" " * (1 << 24)), "gzip")) == response_reader.STEP
