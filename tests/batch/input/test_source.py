"""Lines out of chunks, whatever the chunks."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.batch.input import BrokenRowError, InputError, InputRow, Rows, Template
from headgate.batch.input.source import LongLine, lines_of
from headgate.errors import ConfigError


class Dripping:
    """A pipe that gives its text in the pieces it is told."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def read1(self, size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def close(self) -> None:
        pass


texts = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b'{"x": 1}', b"", b"\xc3\xa9"]), max_size=40)


@given(pieces=texts)
def test_lines_do_not_depend_on_how_the_text_comes_in(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    expected = whole.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert list(lines_of(Dripping(pieces), longest=1000)) == expected


@given(pieces=texts, longest=st.integers(1, 6))
def test_a_line_that_is_too_long_keeps_its_place_length_and_digest(pieces: list[bytes], longest: int) -> None:
    expected = b"".join(pieces).split(b"\n")
    if not expected[-1]:
        expected.pop()
    found = list(lines_of(Dripping(pieces), longest=longest))
    assert len(found) == len(expected)
    for line, truth in zip(found, expected, strict=True):
        if len(truth) <= longest:
            assert line == truth
        else:
            assert isinstance(line, LongLine)
            assert line.length == len(truth)
            assert line.digest == hashlib.blake2b(truth, digest_size=16).digest()


def test_an_endless_line_is_never_held() -> None:
    class Endless:
        left = 400

        def read1(self, size: int) -> bytes:
            self.left -= 1
            return b"x" * size if self.left else b""

        def close(self) -> None:
            pass

    import tracemalloc

    tracemalloc.start()
    (line,) = lines_of(Endless(), longest=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(line, LongLine)
    assert line.length > 100_000_000
    assert peak < 8 << 20


TEMPLATE = Template('{"input": "{text}"}')


@pytest.fixture
def rows_of(tmp_path: Path) -> Any:
    def read(content: str | bytes, name: str = "rows.csv", **options: Any) -> list[InputRow]:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        with Rows(str(path), **{"template": TEMPLATE, **options}) as rows:
            return list(rows)

    return read


def inputs(rows: list[InputRow]) -> list[str]:
    return [json.loads(row.request().body or b"")["input"] for row in rows]


def test_columns_go_where_the_template_says(rows_of: Any) -> None:
    rows = rows_of("\ufeffcustom_id,text\r\na,one\r\n\r\nb,two")
    assert [row.key for row in rows] == ["a", "b"]
    assert inputs(rows) == ["one", "two"]


def test_a_field_may_hold_line_breaks_quotes_and_delimiters(rows_of: Any) -> None:
    rows = rows_of('id,text\n1,"first\r\nsecond\n\n""third"", fourth"\n2,plain\n')
    assert inputs(rows) == ['first\r\nsecond\n\n"third", fourth', "plain"]
    assert [row.line for row in rows] == [2, 6]


cells = st.text(st.sampled_from('ab",;\r\n\t {}é\u2028\x0b'), max_size=8)


@pytest.mark.no_cover
@given(
    table=st.lists(st.tuples(cells, cells), max_size=6), ending=st.sampled_from(["\n", "\r\n"]), careful=st.booleans()
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_csv_writes_is_what_is_read(
    rows_of: Any, table: list[tuple[str, str]], ending: str, careful: bool
) -> None:
    if not careful:  # csv itself writes a lone \r without quotes, and does not read it
        table = [(one.replace("\r", ""), two.replace("\r", "")) for one, two in table]
    written = io.StringIO()
    quoting = csv.QUOTE_ALL if careful else csv.QUOTE_MINIMAL
    writer = csv.writer(written, lineterminator=ending, quoting=quoting)
    writer.writerows([("id", "text"), *(("x" + one, two) for one, two in table)])
    assert inputs(rows_of(written.getvalue())) == [text for _, text in table]


def test_a_stray_quote_inside_of_a_field_is_a_character_and_swallows_nothing(rows_of: Any) -> None:
    assert inputs(rows_of('id,text\n1,a 5" disk\n2,next\n')) == ['a 5" disk', "next"]


def test_a_quote_that_is_never_closed_is_told(rows_of: Any) -> None:
    rows = rows_of('id,text\n1,fine\n2,"open\n3,lost\n')
    assert len(rows) == 2
    with pytest.raises(BrokenRowError, match="line 3: a quote is never closed"):
        rows[1].request()


def test_an_open_quote_is_not_followed_for_ever(rows_of: Any) -> None:
    rows = rows_of('id,text\n1,"open\n' + "2,x\n" * 1000, longest=100)
    with pytest.raises(BrokenRowError, match=r"continues to line .*; is a quote not closed"):
        rows[0].request()
    assert rows[-1].request()


def test_a_long_field_is_fine(rows_of: Any) -> None:
    assert inputs(rows_of('id,text\n1,"' + "x" * 500_000 + '"\n')) == ["x" * 500_000]


def test_a_record_with_the_wrong_number_of_fields_is_broken(rows_of: Any) -> None:
    (row,) = rows_of("id,text\n1,a,b\n")
    with pytest.raises(BrokenRowError, match="line 2: the header has 2 fields, this row has 3"):
        row.request()


def test_tabs_and_semicolons(rows_of: Any) -> None:
    assert inputs(rows_of("id\ttext\n1\ta,b\n", name="rows.tsv")) == ["a,b"]
    assert inputs(rows_of('id;text\n1;"a;b"\n', delimiter=";")) == ["a;b"]
    assert inputs(rows_of('id|text\n1|"a|\nb"\n', delimiter="|")) == ["a|\nb"]


def test_the_name_comes_from_the_column_that_is_chosen(rows_of: Any) -> None:
    (row,) = rows_of("nr,text\nseven,x\n", name_field="nr")
    assert row.key == row.request().name == "seven"
    (row,) = rows_of("nr,text\nseven,x\n")
    assert row.key == row.request().name == "row-1"


def test_a_csv_is_read_again_without_its_header(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('text,"a\nb"\nx,y\n')
    with Rows(str(path), template=TEMPLATE) as rows:
        assert [row.line for row in rows] == [row.line for row in rows] == [3]


@pytest.mark.parametrize(
    ("content", "options", "error", "said"),
    [
        ("", {}, InputError, "is empty"),
        ("a,b\n", {}, ConfigError, r"the template's \{text\}; the columns are 'a', 'b'"),
        ("text,text\n", {}, InputError, "two columns 'text'"),
        ("text\n", {"name_field": "id"}, ConfigError, "no column 'id'; the columns are 'text'"),
        (b"te\xffxt\n", {}, InputError, "line 1 \\(header\\): not valid UTF-8"),
        ("text\n", {"template": None}, ConfigError, "needs a template"),
    ],
)
def test_a_bad_header_is_explained(rows_of: Any, content: Any, options: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        rows_of(content, **options)
