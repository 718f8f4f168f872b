"""The lines of an output."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.batch.output import answer_line, dead_line, error_line, row_id
from headgate.core.row_state import FailureReason

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.no_cover
@given(body=json_values, name=st.text(), ascii_only=st.booleans(), indent=st.sampled_from([None, 2, "\t"]))
def test_an_answers_line_is_one_line_and_means_what_the_server_said(
    body: object, name: str, ascii_only: bool, indent: int | str | None
) -> None:
    written = json.dumps(body, ensure_ascii=ascii_only, indent=indent)
    raw = written.replace("\n", "\r\n" if indent == 2 else "\n").encode("utf-8", "replace")
    line = answer_line("batch_req_1", name, 200, "req_1", raw)
    assert line.count(b"\n") == 1
    assert b"\r" not in line
    assert json.loads(line) == {
        "id": "batch_req_1",
        "custom_id": name,
        "response": {"status_code": 200, "request_id": "req_1", "body": json.loads(raw)},
        "error": None,
    }


def test_the_servers_numbers_are_not_rewritten() -> None:
    assert b'{"x": 1.10, "y": 1E400}' in answer_line("i", "n", 200, "", b'{"x": 1.10, "y": 1E400}')


def test_a_row_without_an_answer_has_an_error() -> None:
    line = error_line("batch_req_1", "a", "deadline", 'not done\n in "time"')
    assert json.loads(line) == {
        "id": "batch_req_1",
        "custom_id": "a",
        "response": None,
        "error": {"code": "deadline", "message": 'not done\n in "time"'},
    }
    assert json.loads(dead_line("i", "a", FailureReason("invalid", "line 3: no JSON")))["error"] == {
        "code": "invalid",
        "message": "line 3: no JSON",
    }


def test_an_id_is_the_same_for_the_same_row_and_another_for_any_other() -> None:
    ids = {row_id(0, b"a" * 16), row_id(1, b"a" * 16), row_id(0, b"b" * 16), row_id(0, b"a" * 16)}
    assert len(ids) == 3
    assert all(one.startswith("batch_req_") for one in ids)
