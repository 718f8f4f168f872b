"""Where work waits: in order, by priority, under the retry budget, and none passed for ever."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.decision import UNKNOWN
from headgate.engine.scheduler import LOOK_AHEAD, MOST_PASSES, KeyQueue, OrderedQueue, Place, Scheduler


@dataclass(eq=False)
class Work:
    index: int
    priority: float = 0.0
    asks: object = 1
    size: float = 1.0
    key: str = "api"
    is_retry: bool = False
    is_stored: bool = False
    is_gone: bool = False
    place: Place = Place.NOWHERE
    times_passed: int = 0
    ready_at: float = 0.0
    deadline_at: float = UNKNOWN


def item(index, priority=0.0, cost=1, key="api", attempts=0):
    size = sum(cost.values()) if isinstance(cost, dict) else cost
    return Work(index, priority, cost, size, key, is_retry=attempts > 0)


def drain(queue, now=0.0):
    taken = []
    while (first := queue.first(now)) is not None:
        row = queue.take(first.asks, now)
        assert row is first
        taken.append(row.index)
    return taken


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 500)), unique_by=lambda row: row[1]))
def test_rows_leave_by_priority_and_then_in_order(rows):
    queue = KeyQueue("api", 0.2)
    for priority, index in rows:
        queue.put(item(index, priority))
    assert drain(queue) == [index for _, index in sorted((-priority, index) for priority, index in rows)]


@pytest.mark.no_cover
@given(st.data())
def test_a_row_can_be_taken_out_wherever_it_stands(data):
    rows = {index: item(index) for index in data.draw(st.lists(st.integers(0, 400), unique=True, max_size=200))}
    queue = OrderedQueue()
    for row in rows.values():
        queue.put(row)
    gone = data.draw(st.sets(st.sampled_from(sorted(rows)))) if rows else set()
    for index in gone:
        queue.remove(rows[index])
    left = []
    while queue.front:
        left.append(queue.take(0).index)
    assert left == sorted(set(rows) - gone)


@pytest.mark.no_cover
def test_rows_taken_out_do_not_pile_up():
    queue = OrderedQueue()
    for index in range(100_000):
        row = item(index)
        queue.put(row)
        if index >= LOOK_AHEAD:
            queue.remove(row)
    assert len(queue) < 500


def test_a_smaller_row_may_pass_a_bigger_one_a_hundred_times():
    queue = KeyQueue("api", 0.2)
    big = item(0, cost={"tokens": 5000})
    queue.put(big)
    for index in range(1, 300):
        queue.put(item(index, cost={"tokens": 50}))
    passes = 0
    while (smaller := queue.smaller(0.0)) is not None:
        assert queue.take(smaller.asks, 0.0) is smaller
        passes += 1
    assert passes == MOST_PASSES
    assert queue.take({"tokens": 50}, 0.0) is None
    assert queue.take(big.asks, 0.0) is big
    assert queue.first(0.0).index == 101


@settings(max_examples=50)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=400), st.randoms(use_true_random=False))
def test_no_row_is_passed_more_than_a_hundred_times(costs, chance):
    queue = KeyQueue("api", 0.2)
    for index, cost in enumerate(costs):
        queue.put(item(index, cost=cost))
    passed = dict.fromkeys(range(len(costs)), 0)
    while (first := queue.first(0.0)) is not None:
        chosen = queue.smaller(0.0) if chance.random() < 0.99 else None
        row = queue.take((chosen or first).asks, 0.0)
        assert row is not None
        del passed[row.index]
        for index in passed:
            passed[index] += index < row.index
    assert all(times <= MOST_PASSES for times in passed.values())


def test_equal_costs_pass_none():
    queue = KeyQueue("api", 0.2)
    for index in range(100):
        queue.put(item(index))
    assert queue.smaller(0.0) is None


def test_retries_take_their_turn_only_within_their_budget():
    queue = KeyQueue("api", 0.0)
    for index in range(5):
        queue.put(item(index, attempts=1))
    for index in range(5, 8):
        queue.put(item(index))
    assert [queue.take(1, 0.0).index for _ in range(6)] == [0, 1, 2, 5, 6, 7]
    assert queue.first(0.0) is None
    assert len(queue) == 2
    queue.budget.ended()
    assert queue.first(0.0).index == 3


def test_a_failed_row_waits_for_its_time():
    scheduler = Scheduler(0.2)
    row = item(1)
    row.ready_at = 10.0
    assert not scheduler.put(row, 0.0)
    assert scheduler.next_at() == 10.0
    assert scheduler.due(9.9) == []
    assert scheduler.due(10.0) == [row]


def test_a_row_past_its_deadline_is_taken_out_wherever_it_waits():
    scheduler = Scheduler(0.2)
    rows = [item(index) for index in range(3)]
    rows[1].ready_at = 100.0
    for row in rows:
        scheduler.set_deadline(row, 5.0)
        scheduler.put(row, 0.0)
    on_its_way = scheduler.queue("api").take(1, 0.0)
    on_its_way.place = Place.NOWHERE
    assert scheduler.late(4.9) == []
    assert scheduler.late(5.0) == [rows[1], rows[2]]
    assert scheduler.clear() == []


def test_clearing_gives_each_once():
    scheduler = Scheduler(0.2)
    for index in range(200):
        row = item(index, key=f"key-{index % 3}", attempts=index % 2)
        row.ready_at = float(index % 5)
        scheduler.put(row, 0.0)
    assert sorted(row.index for row in scheduler.clear()) == list(range(200))
    assert scheduler.clear() == []


@pytest.mark.parametrize("keep", [0, 5, 100])
def test_a_queue_is_cut_back_to_its_first_rows_and_those_the_store_knows(keep):
    queue = KeyQueue("api", 0.2)
    rows = [item(index) for index in range(200)]
    rows[150].is_stored = True
    for row in rows[::-1]:
        queue.put(row)
    taken = queue.cut_back(keep)
    assert sorted(row.index for row in taken) == [index for index in range(keep, 200) if index != 150]
    left = []
    while (first := queue.first(0.0)) is not None:
        left.append(queue.take(first.asks, 0.0).index)
    assert left == [*range(keep), 150]
    assert len(queue) == 0
