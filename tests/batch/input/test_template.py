"""A template's gaps, and what may go into them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.batch.input import Template
from headgate.batch.input.template import MissingError
from headgate.errors import ConfigError

PLAIN = Template('{"messages": [{"content": "Say <{text}> in {language}"}], "n": 3, "x": null}')


@given(text=st.text(), language=st.text())
def test_a_value_stands_in_its_string_exactly_and_cannot_leave_it(text: str, language: str) -> None:
    made = PLAIN.fill({"text": text, "language": language})
    assert made == {"messages": [{"content": f"Say <{text}> in {language}"}], "n": 3, "x": None}
    assert json.loads(json.dumps(made)) == made


@given(text=st.text())
def test_any_text_can_be_written_into_a_template(text: str) -> None:
    doubled = text.replace("{", "{{").replace("}", "}}")
    assert Template(json.dumps({"a": doubled})).fill({}) == {"a": text}


@pytest.mark.no_cover
@given(value=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_a_gap_alone_keeps_the_type_of_its_value(value: object) -> None:
    assert Template('{"a": "{v}"}').fill({"v": value}) == {"a": value}


def test_a_value_that_is_no_text_is_json_inside_of_one() -> None:
    assert Template('{"a": "is {v}!"}').fill({"v": [1, "é", None]}) == {"a": 'is [1, "é", null]!'}


def test_text_can_be_read_as_json() -> None:
    template = Template('{"t": "{t:json}", "tools": "{tools:json}"}')
    assert template.fill({"t": "0.5", "tools": "[1]"}) == {"t": 0.5, "tools": [1]}
    with pytest.raises(MissingError, match="'warm'"):
        template.fill({"t": "warm", "tools": "1"})


def test_a_field_inside_of_a_field_is_found_but_a_name_with_a_dot_first() -> None:
    template = Template('{"a": "{user.name}"}')
    assert template.fill({"user": {"name": "Ann"}}) == {"a": "Ann"}
    assert template.fill({"user.name": "Bo", "user": {"name": "Ann"}}) == {"a": "Bo"}


def test_a_missing_field_is_named_with_those_there_are() -> None:
    with pytest.raises(MissingError, match=r"the template's \{text\}; the fields are 'Text', 'id'"):
        Template('{"a": "{text}"}').fill({"Text": "x", "id": 1})


def test_a_missing_column_is_told_at_once() -> None:
    with pytest.raises(
        ConfigError, match=r"rows.csv has no column for the template's \{text\}; the columns are 'id;text'"
    ):
        Template('{"a": "{text}"}').check_columns(["id;text"], "rows.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ('{"a": "{}"}', "single '{}'"),
        ('{"a": "{b"}', "single '{'"),
        ('{"a": "b}"}', "single '}'"),
        ('{"a":' * 200 + "1" + "}" * 200, "100 levels"),
        ('{"a":' * 100_000, "100 levels|not valid JSON"),
        ('{"a": "' + "x" * (8 << 20) + '"}', "characters"),
    ],
)
def test_a_bad_template_is_explained(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Template(text, "t.json")


def test_the_digest_is_of_the_meaning_not_of_the_spaces() -> None:
    assert Template('{"a":1}').digest == Template(' {"a" : 1}\n').digest != Template('{"a":2}').digest


def test_a_template_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b'\xef\xbb\xbf{"a": "{x}"}')
    assert Template.read(tmp_path / "t.json").names == ("x",)
    with pytest.raises(ConfigError, match="cannot read"):
        Template.read(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(ConfigError, match="not valid UTF-8"):
        Template.read(tmp_path / "latin.json")
