"""Results beside the columns of a block, without an engine; and what a missing package is answered with."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from headgate.errors import ConfigError
from headgate.fleet.row_result import RowEnd, RowResult
from headgate.fleet.settings import RowSettings
from headgate.integrations import engines
from headgate.integrations.engines import names_of, repeated_calls, rows_of, verify_rows, with_results


class Table:
    """As Arrow's tables are, as far as it is used."""

    column_names = ("id", "text")

    def to_pylist(self):
        return [{"id": 1, "text": "a"}]


class Frame:
    """As pandas' frames are."""

    columns = ("id",)

    def to_dict(self, orient):
        assert orient == "records"
        return [{"id": 1}]


def test_blocks_of_every_kind_have_rows_and_names():
    assert rows_of(Table()) == [{"id": 1, "text": "a"}]
    assert rows_of(Frame()) == [{"id": 1}]
    assert rows_of({"id": [1, 2], "text": ["a", "b"]}) == [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]
    assert names_of(Table()) == ["id", "text"]
    assert names_of(Frame()) == ["id"]
    assert names_of({"id": []}) == ["id"]
    assert rows_of({"id": [], "text": []}) == []


def test_every_field_of_a_result_has_a_column():
    assert len(engines.TYPES) == len(RowResult.__dataclass_fields__)
    assert {state.value for state in RowEnd} == {"done", "failed", "stopped"}


def test_without_the_engine_it_says_what_to_install(monkeypatch):
    from headgate.integrations.ray import Rows
    from headgate.integrations.spark import map_rows

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r'pip install "headgate\[ray\]"'):
        Rows(to="openai")
    with pytest.raises(ConfigError, match="store= is missing"):
        map_rows(None, to="openai")
    with pytest.raises(ConfigError, match="is for Ray"):
        map_rows(None, to="openai", store="ray")


def test_an_option_that_there_is_not_is_named_with_the_nearest_one():
    with pytest.raises(ConfigError, match="unknown option 'max_costs'; did you mean 'max_cost'"):
        RowSettings.of({"to": "openai", "max_costs": 1})
    with pytest.raises(ConfigError, match="to= is missing"):
        RowSettings.of({"store": "none"})


@pytest.mark.chaos  # pandas comes with the engines
def test_results_of_a_frame_with_an_index_of_its_own_stay_beside_their_rows():
    import pandas

    frame = pandas.DataFrame({"id": [1, 2]}, index=[7, 3])
    results = [RowResult(response="a", attempts=1), RowResult(error="e", state=RowEnd.FAILED, attempts=2)]
    found = with_results(frame, RowSettings.of({"to": "openai"}), results)
    assert found[["id", "response", "attempts"]].values.tolist() == [[1, "a", 1], [2, None, 2]]


# ---------------------------------------------------------------------- every row once


def outputs(rows, state="done"):
    return [{**row, "response": "x", "headgate_state": state} for row in rows]


ROWS = [{"id": number, "text": f"t{number}"} for number in range(10)]
COLUMNS = list(ROWS[0])


@pytest.mark.parametrize("id_column", ["id", None])
def test_every_row_once_is_right_in_any_order(id_column):
    found = verify_rows(ROWS, outputs(ROWS[::-1]), COLUMNS, id_column=id_column)
    assert found.ok
    assert (found.rows_in, found.rows_out, found.done) == (10, 10, 10)
    assert str(found) == "10 rows in, 10 out: 10 done, 0 failed, 0 stopped"


@pytest.mark.parametrize("id_column", ["id", None])
def test_missing_and_surplus_rows_are_counted(id_column):
    found = verify_rows(ROWS, [*outputs(ROWS[1:]), *outputs(ROWS[5:7], "failed")], COLUMNS, id_column=id_column)
    assert not found.ok
    assert (found.missing, found.surplus, found.failed, found.done) == (1, 2, 2, 9)
    assert len(found.examples) == 3
    assert "1 missing, 2 too many" in str(found)


def test_rows_that_the_input_has_twice_are_there_twice():
    twice = [*ROWS, *ROWS]
    assert verify_rows(twice, outputs(twice), COLUMNS, id_column="id").ok
    assert verify_rows(twice, outputs(ROWS), COLUMNS, id_column="id").missing == 10


def test_states_are_read_under_their_prefix():
    rows = [{"id": 1, "a_headgate_state": "stopped"}]
    assert verify_rows([{"id": 1}], rows, ["id"], id_column="id", state_column="a_headgate_state").stopped == 1


def test_repeated_calls_are_what_the_store_counted(redis_server):
    assert repeated_calls(None, "r") is None
    assert repeated_calls(redis_server.url, "no-such-run") is None
    assert "3 calls repeated" in str(replace(verify_rows([], [], []), repeated_calls=3))
