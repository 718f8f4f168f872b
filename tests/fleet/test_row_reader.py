"""Values of columns as requests: what JSON has no form for, and what an answer is remembered by."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid

import pytest

from headgate.batch.input.rows import BrokenRowError
from headgate.batch.target import Target
from headgate.fleet.row_reader import NO_KEY, RowReader, UnfitValueError, json_value
from headgate.fleet.settings import RowSettings

TO = "http://127.0.0.1:1/v1"


def reader(**options):
    settings = RowSettings(**{"to": TO, **options})
    return RowReader(settings, Target(settings.target_config()))


class Scalar:
    """As NumPy's numbers are."""

    def __init__(self, value):
        self._value = value

    def tolist(self):
        return self._value


class NAType:
    """As pandas' missing value is: neither true nor false."""

    def __ne__(self, other):
        return False

    __hash__ = None


class SparkRow(tuple):
    def asDict(self):
        return dict(self)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (float("nan"), None),
        (NAType(), None),
        (Scalar(3), 3),
        (Scalar([1.5, float("nan")]), [1.5, None]),
        ({"a": None, "b": {"c": None, "d": 1}}, {"b": {"d": 1}}),
        ([{"role": "user", "name": None}], [{"role": "user"}]),
        ((1, 2), [1, 2]),
        (datetime.datetime(2026, 1, 2, 3, 4), "2026-01-02T03:04:00"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        ("☃", "☃"),
    ],
)
def test_values_of_engines_become_json(value, expected):
    assert json_value(value, "c") == expected


def test_a_struct_of_spark_is_an_object():
    assert json_value(SparkRow([("a", 1), ("b", None)]).asDict(), "c") == {"a": 1}


@pytest.mark.parametrize("value", [b"\xff", object(), {"deep": [b"x"]}])
def test_what_json_has_no_form_for_is_named_by_its_column(value):
    with pytest.raises(UnfitValueError, match="column 'picture'"):
        json_value(value, "picture")


def test_what_nests_without_end_is_refused():
    value = []
    value.append(value)
    with pytest.raises(UnfitValueError, match="levels deep"):
        json_value(value, "c")


def test_a_template_needs_only_its_own_columns():
    row = reader(template={"model": "m", "input": "{text}", "n": "{meta.n}"}).row(
        {"text": "x", "meta": {"n": 4}, "picture": b"\xff"}
    )
    assert json.loads(row.request().body) == {"model": "m", "input": "x", "n": 4}


def test_without_a_template_the_columns_are_the_body_and_nulls_are_left_out():
    row = reader(id_column="id").row({"id": 7, "model": "m", "messages": [], "temperature": None})
    assert json.loads(row.request().body) == {"model": "m", "messages": []}
    assert row.request().name == "7"


@pytest.mark.parametrize("body", [{"model": "m", "tools": None}, '{"model": "m"}'])
def test_columns_of_a_batch_file_are_its_lines(body):
    row = reader().row({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": body, "other": 1})
    assert (row.request().path, json.loads(row.request().body)) == ("/v1/embeddings", {"model": "m"})


def test_a_row_that_cannot_be_sent_says_why_when_it_is_asked():
    row = reader(template={"x": "{text}"}).row({"wrong": 1})
    assert row.digest == NO_KEY
    with pytest.raises(BrokenRowError, match=r"no field for the template's \{text\}"):
        row.request()


def test_the_digest_is_of_what_is_sent_and_of_the_name():
    def digest(values, **options):
        return reader(template={"x": "{text}"}, **options).row(values).digest

    assert digest({"text": "a", "other": 1}) == digest({"text": "a", "other": 2})
    assert digest({"text": "a", "id": 1}) == digest({"text": "a", "id": 2})
    assert digest({"text": "a", "id": 1}, id_column="id") != digest({"text": "a", "id": 2}, id_column="id")
    assert digest({"text": "a"}) != digest({"text": "b"})
    assert digest({"text": "a"}) != digest({"text": "a"}, to="http://127.0.0.1:2/v1")
