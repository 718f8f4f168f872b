"""Where rows wait: in order, by priority, under the retry budget, and none passed for ever."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.batch.item import Item
from headgate.batch.ledger import Claim, Row
from headgate.batch.window import LOOK_AHEAD, MOST_PASSES, Queue, Shelf, Window


def item(index, priority=0.0, cost=1, key="api", attempts=0):
    made = Item(Row(index, str(index), b""), Claim(index, 1, attempts), index, 0.0)
    made.describe(key, cost, priority)
    made.ask(has_limits=True)
    return made


def drain(shelf, now=0.0):
    taken = []
    while (first := shelf.first(now)) is not None:
        row = shelf.take(first.cost, now)
        assert row is first
        taken.append(row.index)
    return taken


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 500)), unique_by=lambda row: row[1]))
def test_rows_leave_by_priority_and_then_in_order(rows):
    shelf = Shelf("api", 0.2)
    for priority, index in rows:
        shelf.put(item(index, priority))
    assert drain(shelf) == [index for _, index in sorted((-priority, index) for priority, index in rows)]


@given(st.data())
def test_a_row_can_be_taken_out_wherever_it_stands(data):
    rows = {index: item(index) for index in data.draw(st.lists(st.integers(0, 400), unique=True, max_size=200))}
    queue = Queue()
    for row in rows.values():
        queue.put(row)
    gone = data.draw(st.sets(st.sampled_from(sorted(rows)))) if rows else set()
    for index in gone:
        queue.remove(rows[index])
    left = []
    while queue.front:
        left.append(queue.take(0).index)
    assert left == sorted(set(rows) - gone)


def test_rows_taken_out_do_not_pile_up():
    queue = Queue()
    for index in range(100_000):
        row = item(index)
        queue.put(row)
        if index >= LOOK_AHEAD:
            queue.remove(row)
    assert len(queue) < 500


def test_a_smaller_row_may_pass_a_bigger_one_a_hundred_times():
    shelf = Shelf("api", 0.2)
    big = item(0, cost={"tokens": 5000})
    shelf.put(big)
    for index in range(1, 300):
        shelf.put(item(index, cost={"tokens": 50}))
    passes = 0
    while (smaller := shelf.smaller(0.0)) is not None:
        assert shelf.take(smaller.cost, 0.0) is smaller
        passes += 1
    assert passes == MOST_PASSES
    assert shelf.take({"tokens": 50}, 0.0) is None
    assert shelf.take(big.cost, 0.0) is big
    assert shelf.first(0.0).index == 101


@settings(max_examples=50)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=400), st.randoms(use_true_random=False))
def test_no_row_is_passed_more_than_a_hundred_times(costs, chance):
    shelf = Shelf("api", 0.2)
    for index, cost in enumerate(costs):
        shelf.put(item(index, cost=cost))
    passed = dict.fromkeys(range(len(costs)), 0)
    while (first := shelf.first(0.0)) is not None:
        chosen = shelf.smaller(0.0) if chance.random() < 0.99 else None
        row = shelf.take((chosen or first).cost, 0.0)
        assert row is not None
        del passed[row.index]
        for index in passed:
            passed[index] += index < row.index
    assert all(times <= MOST_PASSES for times in passed.values())


def test_equal_costs_pass_nobody():
    shelf = Shelf("api", 0.2)
    for index in range(100):
        shelf.put(item(index))
    assert shelf.smaller(0.0) is None


def test_retries_take_their_turn_only_within_their_budget():
    shelf = Shelf("api", 0.0)
    for index in range(5):
        shelf.put(item(index, attempts=1))
    for index in range(5, 8):
        shelf.put(item(index))
    assert [shelf.take(1, 0.0).index for _ in range(6)] == [0, 1, 2, 5, 6, 7]
    assert shelf.first(0.0) is None
    assert len(shelf) == 2
    shelf.budget.ended()
    assert shelf.first(0.0).index == 3


def test_a_failed_row_waits_for_its_time():
    window = Window(0.2)
    row = item(1)
    row.ready_at = 10.0
    assert not window.put(row, 0.0)
    assert window.next_at() == 10.0
    assert window.due(9.9) == []
    assert window.due(10.0) == [row]


def test_a_row_past_its_deadline_is_taken_out_wherever_it_waits():
    window = Window(0.2)
    rows = [item(index) for index in range(3)]
    rows[1].ready_at = 100.0
    for row in rows:
        row.deadline_at = 5.0
        window.watch(row)
        window.put(row, 0.0)
    on_its_way = window.shelf("api").take(1, 0.0)
    on_its_way.place = ""
    assert window.late(4.9) == []
    assert window.late(5.0) == [rows[1], rows[2]]
    assert window.clear() == []


def test_clearing_gives_everybody_once():
    window = Window(0.2)
    for index in range(200):
        row = item(index, key=f"key-{index % 3}", attempts=index % 2)
        row.ready_at = float(index % 5)
        window.put(row, 0.0)
    assert sorted(row.index for row in window.clear()) == list(range(200))
    assert window.clear() == []


@pytest.mark.parametrize("keep", [0, 5, 100])
def test_a_shelf_is_cut_back_to_its_first_rows_and_those_the_ledger_knows(keep):
    shelf = Shelf("api", 0.2)
    rows = [item(index) for index in range(200)]
    rows[150].put_aside = True
    for row in rows[::-1]:
        shelf.put(row)
    taken = shelf.cut_back(keep)
    assert sorted(row.index for row in taken) == [index for index in range(keep, 200) if index != 150]
    left = []
    while (first := shelf.first(0.0)) is not None:
        left.append(shelf.take(first.asks, 0.0).index)
    assert left == [*range(keep), 150]
    assert len(shelf) == 0
