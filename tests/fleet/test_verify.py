"""Every row once: what is missing, what is too many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.fleet.verify import repeated_calls, verify_rows


def outputs(rows, state="done"):
    return [{**row, "response": "x", "headgate_state": state} for row in rows]


ROWS = [{"id": number, "text": f"t{number}"} for number in range(10)]


@pytest.mark.parametrize("id_column", ["id", None])
def test_every_row_once_is_right_in_any_order(id_column):
    found = verify_rows(ROWS, outputs(ROWS[::-1]), id_column=id_column)
    assert found.ok
    assert (found.rows_in, found.rows_out, found.done) == (10, 10, 10)
    assert str(found) == "10 rows in, 10 out: 10 done, 0 failed, 0 stopped"


@pytest.mark.parametrize("id_column", ["id", None])
def test_missing_and_surplus_rows_are_counted(id_column):
    found = verify_rows(ROWS, [*outputs(ROWS[1:]), *outputs(ROWS[5:7], "failed")], id_column=id_column)
    assert not found.ok
    assert (found.missing, found.surplus, found.failed, found.done) == (1, 2, 2, 9)
    assert len(found.examples) == 3
    assert "1 missing, 2 too many" in str(found)


def test_rows_that_the_input_has_twice_are_there_twice():
    twice = [*ROWS, *ROWS]
    assert verify_rows(twice, outputs(twice), id_column="id").ok
    assert verify_rows(twice, outputs(ROWS), id_column="id").missing == 10


def test_states_are_read_under_their_prefix():
    rows = [{"id": 1, "a_headgate_state": "stopped"}]
    assert verify_rows([{"id": 1}], rows, id_column="id", prefix="a_").stopped == 1


def test_repeated_calls_are_what_the_store_counted(redis_server):
    assert repeated_calls(None, "r") is None
    assert repeated_calls(redis_server.url, "no-such-run") is None
    assert "3 calls repeated" in str(replace(verify_rows([], []), repeated_calls=3))
