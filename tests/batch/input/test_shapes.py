"""JSON that is only looked into: the same is good and bad with the quick reader and without."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.batch.input import shapes
from headgate.batch.input.shapes import BatchLines, InvalidRowError, line_request, parsed, plain_request

LINES = [
    b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "n": 1.50}}',
    b'{"custom_id":"a","url":"/v1/x","body":{"model":"m","deep":[[[1]]],"text":"\\ud83d\\ude00 \xc3\xa9"}}',
    b'{"custom_id": "a", "params": {"model": "m", "max_tokens": 5}}',
    b'{"custom_id": "a", "body": {"n": 123456789012345678901234567890}}',
    b'{"custom_id": "a", "body": {"x": "half a character: \\ud800"}}',
]
ODD = [
    b'{"custom_id": "a", "body": {}, "url": "/v1/x"}',
    b'{"custom_id": "a", "method": "GET"}',
    b'{"custom_id": "a", "body": {}, "custom_id": "b"}',
    b'{"custom_id": "a", "body": {"n": 1e999}}',
    b'{"custom_id": "a", "body": {"n": NaN}}',
    b'{"custom_id": "a", "body": {"stream": true}}',
    b'{"custom_id": "a", "body": [1]}',
    b'{"custom_id": "a", "body": {}',
    b'{"custom_id": "a", "body": {"x": "\xff"}}',
    b'{"custom_id": "a", "body": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
]


@pytest.fixture(params=["quick", "plain"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(shapes, "_quickly", None)
    else:
        pytest.importorskip("orjson")


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("line", LINES)
def test_a_plain_line_is_sent_as_it_is_written(line: bytes) -> None:
    request = BatchLines().request(line, 1)
    assert request == plain_request(line)
    careful = line_request(parsed(line))
    assert request.body is not None
    assert careful.body is not None
    assert request.body in line
    assert json.loads(request.body) == json.loads(careful.body)
    assert request._replace(body=b"") == careful._replace(body=b"")
    assert request.content() == careful.content()


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("line", ODD)
def test_whatever_is_odd_takes_the_careful_way(line: bytes) -> None:
    assert plain_request(line) is None

    def careful() -> Any:
        try:
            return BatchLines().request(line, 1)
        except InvalidRowError as error:
            return str(error)[:20]

    with pytest.MonkeyPatch.context() as patch:
        said = careful()
        patch.setattr(shapes, "_quickly", None)
        assert careful() == said


@given(st.binary(max_size=40) | st.text(alphabet='{}[]":,\\u019eE+-.tfn \x00é', max_size=40).map(str.encode))
def test_what_is_json_is_json_with_either_reader(raw: bytes) -> None:
    pytest.importorskip("orjson")

    def is_json() -> bool:
        try:
            shapes.parse_json(raw)
        except ValueError:
            return False
        return True

    with pytest.MonkeyPatch.context() as patch:
        found = is_json()
        patch.setattr(shapes, "_quickly", None)
        assert is_json() == found
