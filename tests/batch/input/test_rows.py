"""Rows of JSON lines: a vendor's batch file, or plain objects."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.batch.input import BrokenRowError, InputError, InputRow, Rows, Template
from headgate.errors import ConfigError

LINE = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": []}}


@pytest.fixture
def rows_of(tmp_path: Path) -> Any:
    def read(content: bytes | str, name: str = "rows.jsonl", **options: Any) -> list[InputRow]:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        with Rows(str(path), **options) as rows:
            return list(rows)

    return read


def batch_line(name: str = "a", **changes: Any) -> str:
    return json.dumps({**LINE, "custom_id": name, **changes})


def test_a_file_for_a_vendors_batch_api_is_read_as_it_is(rows_of: Any) -> None:
    (row,) = rows_of(batch_line("request-1"))
    request = row.request()
    assert (row.index, row.line, row.key) == (0, 1, "request-1")
    assert (request.name, request.method, request.path) == ("request-1", "POST", "/v1/chat/completions")
    assert json.loads(request.body) == LINE["body"]
    assert request.model == "m"


def test_anthropics_batch_lines_are_read_too(rows_of: Any) -> None:
    (row,) = rows_of('{"custom_id": "x", "params": {"model": "claude", "max_tokens": 5, "messages": []}}')
    request = row.request()
    assert (request.name, request.path, json.loads(request.body)["model"]) == ("x", "", "claude")


def test_bom_crlf_blank_lines_and_a_last_line_without_its_end(rows_of: Any) -> None:
    content = "\ufeff\r\n" + batch_line("a") + "\r\n\r\n  \n" + batch_line("b") + "\n\n" + batch_line("c")
    rows = rows_of(content)
    assert [(row.index, row.line, row.key) for row in rows] == [(0, 2, "a"), (1, 5, "b"), (2, 7, "c")]
    assert [row.request().name for row in rows] == ["a", "b", "c"]


def test_the_digest_is_of_the_row_not_of_how_its_line_ends(rows_of: Any) -> None:
    (unix,), (windows,), (other,) = rows_of('{"a":1}\n'), rows_of('{"a":1}\r\n'), rows_of('{"a":2}\n')
    assert unix.digest == windows.digest != other.digest
    assert len(unix.digest) == 16


def test_a_row_that_is_only_skipped_is_never_parsed(rows_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "\n".join(batch_line(f"r{number}") for number in range(50))
    read: list[bytes] = []
    from headgate.batch.input import shapes

    real = shapes.parsed
    monkeypatch.setattr(shapes, "parsed", lambda raw: read.append(raw) or real(raw))
    rows = rows_of(content)
    assert [row.key for row in rows] == [f"r{number}" for number in range(50)]
    assert len(read) == 1  # the first, to know the format


names = st.text(min_size=1, max_size=30).filter(lambda name: not any("\ud800" <= c <= "\udfff" for c in name))


@pytest.mark.no_cover
@given(name=names, ascii_only=st.booleans(), first=st.booleans(), nested=names)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_the_name_read_in_passing_is_the_name_in_the_line(
    rows_of: Any, name: str, ascii_only: bool, first: bool, nested: str
) -> None:
    body = {"model": "m", "metadata": {"custom_id": nested}}
    line = {"custom_id": name, "body": body} if first else {"body": body, "url": "/v1/x", "custom_id": name}
    (row,) = rows_of(json.dumps(line, ensure_ascii=ascii_only))
    assert row.key == row.request().name == name


def test_a_line_with_two_names_is_broken(rows_of: Any) -> None:
    (row,) = rows_of('{"custom_id": "a", "body": {}, "custom_id": "b"}')
    assert row.key == "a"
    with pytest.raises(BrokenRowError, match="more than one custom_id"):
        row.request()


def test_a_number_may_be_a_name(rows_of: Any) -> None:
    (row,) = rows_of('{"custom_id": 17, "body": {}}')
    assert row.key == row.request().name == "17"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"custom_id": "b", "body": {', "not valid JSON: .* at column"),
        ("nonsense", "not valid JSON"),
        ("[1, 2]", "expected a JSON object"),
        ('{"custom_id": "b"}', "body is missing"),
        ('{"custom_id": "b", "body": "text"}', "body is missing"),
        ('{"body": {}}', "custom_id must be a string"),
        ('{"custom_id": "", "body": {}}', "custom_id must be a string"),
        ('{"custom_id": "\\ud800", "body": {}}', "lone surrogate"),
        ('{"custom_id": "b", "method": "TRACE", "body": {}}', "method must be one of"),
        ('{"custom_id": "b", "method": 5, "body": {}}', "method must be one of"),
        ('{"custom_id": "b", "url": 5, "body": {}}', "url must be a path"),
        ('{"custom_id": "b", "body": {"stream": true}}', "stream"),
        ('{"custom_id": "b", "body": {"n": NaN}}', "NaN is not valid JSON"),
        ('{"custom_id": "b", "body": {"n": 1e999}}', "too large for JSON"),
        ('{"custom_id": "b", "body": {"n": ' + "9" * 5000 + "}}", "cannot be read as JSON"),
        ('{"custom_id": "b", "body": ' + "[" * 100_000, "too deep|not valid JSON"),
        (b'{"custom_id": "b", "body": {"x": "\xff"}}', "not valid UTF-8"),
        (b"\x00\x01\x02", "not valid JSON"),
    ],
)
def test_a_broken_line_is_named_by_its_number_and_keeps_its_place(rows_of: Any, line: Any, said: str) -> None:
    raw = line if isinstance(line, bytes) else line.encode()
    rows = rows_of(batch_line("a").encode() + b"\n\n" + raw + b"\n" + batch_line("c").encode())
    assert len(rows) == 3
    assert rows[1].key in ("b", "broken-line-3")
    with pytest.raises(BrokenRowError, match=f"rows.jsonl: line 3: .*{said}") as caught:
        rows[1].request()
    assert caught.value.line == 3
    assert rows[2].request().name == "c"


def test_whether_a_broken_line_stops_the_run_is_a_choice(rows_of: Any) -> None:
    for choice, stops in (("stop", True), ("dead", False)):
        (row,) = rows_of("{", on_broken=choice)
        with pytest.raises(BrokenRowError) as caught:
            row.request()
        assert caught.value.stops is stops


def test_an_overlong_line_is_broken_and_the_next_is_not(rows_of: Any) -> None:
    long = batch_line("b", body={"x": "y" * 5000})
    rows = rows_of("\n".join([batch_line("a"), long, batch_line("c")]), longest=1000)
    assert [row.key for row in rows] == ["a", "broken-line-2", "c"]
    assert rows[1].raw == b""
    with pytest.raises(BrokenRowError, match=r"line 2: 5,\d\d\d bytes long; the limit is 1,000"):
        rows[1].request()
    assert rows[1].digest != rows_of(long.replace("y", "z", 1), longest=1000)[0].digest


def test_get_needs_no_body(rows_of: Any) -> None:
    (row,) = rows_of('{"custom_id": "g", "method": "get", "url": "/v1/models"}')
    assert (row.request().method, row.request().body) == ("GET", None)


def test_plain_objects_are_bodies(rows_of: Any) -> None:
    rows = rows_of('{"model": "m", "input": "x"}\n{"model": "m", "input": "y"}')
    assert [row.key for row in rows] == ["row-1", "row-2"]
    assert json.loads(rows[1].request().body) == {"model": "m", "input": "y"}


def test_plain_objects_may_carry_their_name(rows_of: Any) -> None:
    (row,) = rows_of('{"id": "x1", "input": "y"}', name_field="id")
    assert row.key == "x1"
    assert json.loads(row.request().body) == {"input": "y"}


def test_plain_objects_fill_a_template(rows_of: Any) -> None:
    template = Template('{"model": "m", "input": "Hi {name}", "n": "{n}"}')
    rows = rows_of('{"custom_id": "q", "name": "Ann", "n": 2}\n{"custom_id": "r", "n": 2}', template=template)
    assert rows[0].key == "q"
    assert json.loads(rows[0].request().body) == {"model": "m", "input": "Hi Ann", "n": 2}
    assert rows[1].key == "r"
    with pytest.raises(BrokenRowError, match=r"line 2: no field for the template's \{name\}"):
        rows[1].request()


def test_a_template_may_make_whole_lines(rows_of: Any) -> None:
    template = Template('{"custom_id": "doc-{id}", "url": "/v1/embeddings", "body": {"input": "{text}"}}')
    (row,) = rows_of('{"id": 7, "text": "x"}', template=template)
    assert (row.key, row.request().path, json.loads(row.request().body)) == ("doc-7", "/v1/embeddings", {"input": "x"})


def test_standard_input_is_read_once() -> None:
    pipe = io.BufferedReader(io.BytesIO(batch_line("a").encode()))
    rows = Rows("-", stdin=pipe)
    assert [row.key for row in rows] == ["a"]
    with pytest.raises(InputError, match="only once"):
        list(rows)


def test_a_file_may_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n" + batch_line("a") + "\n" + batch_line("b"))
    with Rows(str(path)) as rows:
        once = [(row.index, row.line, row.key, row.digest) for row in rows]
        assert once == [(row.index, row.line, row.key, row.digest) for row in rows]
    assert len(once) == 2


def test_an_empty_input_has_no_rows(rows_of: Any) -> None:
    assert rows_of("") == rows_of("\n\n") == []


def test_what_cannot_be_read_is_explained(tmp_path: Path, rows_of: Any) -> None:
    with pytest.raises(InputError, match=r"cannot read .* .No such file"):
        Rows(str(tmp_path / "none.jsonl"))
    with pytest.raises(InputError, match=r"cannot read .* .Is a directory"):
        Rows(str(tmp_path))
    with pytest.raises(InputError, match="UTF-16"):
        rows_of('{"a": 1}'.encode("utf-16"))


@pytest.mark.parametrize(
    "options", [{"format": "xml"}, {"on_broken": "skip"}, {"longest": 0}, {"delimiter": "ab"}, {"delimiter": '"'}]
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=name):
        Rows("rows.jsonl", **options)


def test_the_identity_changes_with_what_gives_rows_their_meaning(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1, "custom_id": "x"}')
    seen = set()
    for options in ({}, {"name_field": "a"}, {"template": Template('{"x": "{a}"}')}, {"format": "batch"}):
        with Rows(str(path), **options) as rows:
            seen.add(tuple(rows.identity.items()))
    assert len(seen) == 4
