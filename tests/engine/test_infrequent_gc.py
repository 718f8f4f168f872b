from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from headgate.engine.infrequent_gc import NEW_OBJECTS, infrequent_gc


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_garbage_is_looked_for_less_often_until_the_last_job_has_ended() -> None:
    gc.set_threshold(700, 9, 8)
    first, second = infrequent_gc(), infrequent_gc()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() == (NEW_OBJECTS, 9, 8)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 9, 8)


@pytest.mark.parametrize("chosen", [0, NEW_OBJECTS * 2])
def test_who_looks_even_less_often_is_left_alone(chosen: int) -> None:
    gc.set_threshold(chosen, 9, 8)
    with infrequent_gc():
        assert gc.get_threshold() == (chosen, 9, 8)
    assert gc.get_threshold() == (chosen, 9, 8)
