"""Results beside the columns of a block, without an engine; and what a missing package is answered with."""

from __future__ import annotations

import sys

import pytest

from headgate.errors import ConfigError
from headgate.fleet.row_result import RowEnd, RowResult
from headgate.fleet.settings import RowSettings
from headgate.integrations import engines
from headgate.integrations.engines import names_of, rows_of, with_results


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
