"""What an input is shows in its name and in its first lines, broken ones and blank ones notwithstanding."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from headgate.batch.input import InputError, Rows, Template
from headgate.errors import ConfigError

BATCH = '{"custom_id": "a", "url": "/v1/x", "body": {"model": "m"}}'
PLAIN = '{"model": "m", "n": 1}'
ASK = Template('{"model": "m", "input": "{name}"}')


@pytest.fixture
def shape(tmp_path: Path) -> Any:
    def detect(content: str | bytes, name: str = "rows", **options: Any) -> tuple[str, list[int]]:
        """The format, and the lines on which rows begin."""
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        with Rows(str(path), **options) as rows:
            return rows.identity["format"], [row.line for row in rows]

    return detect


@pytest.mark.parametrize(
    "before",
    ["", "\n \n\t\n", "\ufeff", "\ufeff\n\n", "nonsense\n", '{"custom_id": \n', "# a comment\n\n[1, 2]\n", "\r\n"],
    ids=["nothing", "blank lines", "BOM", "BOM and blank lines", "broken", "cut off", "two broken", "CR LF"],
)
@pytest.mark.parametrize("name", ["rows", "rows.jsonl", "rows.txt"])
def test_the_first_line_that_is_whole_shows_what_the_file_is(shape: Any, before: str, name: str) -> None:
    assert shape(before + BATCH, name)[0] == "batch"
    assert shape(before + PLAIN, name)[0] == "jsonl"


def test_lines_keep_their_numbers_though_they_were_looked_at_before(shape: Any) -> None:
    assert shape(f"\n\nbroken\n\n{BATCH}\n\n{BATCH}\n") == ("batch", [3, 5, 7])


def test_an_overlong_first_line_shows_nothing(shape: Any) -> None:
    long = json.dumps({"custom_id": "a", "body": {"x": "y" * 5000}})
    assert shape(f"{PLAIN[:-1]}, {long[1:]}\n{BATCH}\n", longest=1000) == ("batch", [1, 2])


class TestCsv:
    JSON_CELLS = 'name,profile\nAda,"{""custom_id"": ""a"", ""body"": {}}"\n"{""name"": 1}",x\n'

    @pytest.mark.parametrize("name", ["people.csv", "people.CSV.gz", "people"])
    def test_with_cells_that_look_like_json(self, shape: Any, name: str) -> None:
        content = self.JSON_CELLS.encode()
        packed = gzip.compress(content) if name.endswith("gz") else content
        assert shape(packed, name, template=ASK) == ("csv", [2, 3])

    def test_by_its_columns_where_the_name_says_nothing(self, shape: Any) -> None:
        assert shape("id;name\n1;Ada\n", template=ASK)[0] == "csv"
        assert shape("id\tname\n1\tAda\n", "people.txt", template=ASK)[0] == "csv"

    def test_what_stands_between_fields_is_what_gives_the_columns(self, tmp_path: Path) -> None:
        (tmp_path / "people.csv").write_text("id;name\n1;Ada, Countess\n")
        with Rows(str(tmp_path / "people.csv"), template=ASK) as rows:
            (row,) = rows
            assert json.loads(row.request().body or b"")["input"] == "Ada, Countess"
            assert [row.line for row in rows] == [2]  # read again, the same way

    def test_a_column_that_is_missing_is_named(self, shape: Any) -> None:
        with pytest.raises(ConfigError, match=r"the template's \{name\}; the columns are 'id', 'mane'"):
            shape("id,mane\n1,Ada\n", "people.csv", template=ASK)

    def test_json_lines_are_no_csv_whatever_they_are_called(self, shape: Any) -> None:
        assert shape(f"{BATCH}\n{BATCH}\n", "rows.csv")[0] == "batch"
        assert shape('{"name": "Ada"}\n', "rows.csv", template=ASK)[0] == "jsonl"

    def test_values_for_a_template_after_a_broken_line(self, shape: Any) -> None:
        assert shape('oops\n{"name": "Ada"}\n', template=ASK) == ("jsonl", [1, 2])


class TestNeither:
    @pytest.mark.parametrize(
        "content", ['[\n  {"model": "m"},\n  {"model": "m"}\n]\n', '[{"a": 1}, {"a": 2}]', '{\n  "model": "m"\n}\n']
    )
    def test_json_over_several_lines_is_told_how_to_become_lines(self, shape: Any, content: str) -> None:
        with pytest.raises(InputError, match=r"over several lines.*jq -c"):
            shape(content, "rows.json")

    def test_text_is_asked_what_it_is(self, shape: Any) -> None:
        with pytest.raises(InputError, match="none of the first lines is a JSON object"):
            shape("Dear Sir or Madam,\nI write to you\n")

    def test_but_not_where_the_name_or_the_user_says_it(self, shape: Any) -> None:
        assert shape("broken\nbroken\n", "rows.jsonl") == ("jsonl", [1, 2])
        assert shape("broken\nbroken\n", format="batch") == ("batch", [1, 2])

    def test_an_empty_file_has_no_rows(self, shape: Any) -> None:
        assert shape("")[1] == []
        assert shape("\n \n")[1] == []


def test_a_pipe_is_waited_for_no_longer_than_it_takes() -> None:
    """The second line never comes: asking for it fails."""

    class Slow(io.RawIOBase):
        given = False

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            if self.given:
                raise AssertionError("read on")
            self.given = True
            line = f"{BATCH}\n".encode()
            buffer[: len(line)] = line
            return len(line)

    rows = Rows("-", stdin=io.BufferedReader(Slow()))
    assert rows.identity["format"] == "batch"
