"""What the tests of all clients share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collects_only_its_own() -> Iterator[None]:
    """``gc.collect()`` looks at what a test has made, not at every module that was ever imported."""
    gc.freeze()
    yield
    gc.unfreeze()
