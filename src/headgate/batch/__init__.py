"""Batches: push any number of rows through an API, lose none, do none twice.

The names here are what programs use; each is loaded when it is first taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .attempt import ItemContext
    from .config import BatchConfig
    from .item import Result
    from .lanes import LaneStanding
    from .ledger import Ledger, LedgerError, RowState
    from .ledger.memory import MemoryLedger
    from .ledger.sqlite import SqliteLedger
    from .report import BatchEvent, BatchReport
    from .runner import BatchRunner

__all__ = [
    "BatchConfig",
    "BatchEvent",
    "BatchReport",
    "BatchRunner",
    "ItemContext",
    "LaneStanding",
    "Ledger",
    "LedgerError",
    "MemoryLedger",
    "Result",
    "RowState",
    "SqliteLedger",
]

__getattr__ = lazy_names(
    __name__,
    {
        "attempt": ("ItemContext",),
        "config": ("BatchConfig",),
        "item": ("Result",),
        "lanes": ("LaneStanding",),
        "ledger.memory": ("MemoryLedger",),
        "ledger": ("Ledger", "LedgerError", "RowState"),
        "ledger.sqlite": ("SqliteLedger",),
        "report": ("BatchEvent", "BatchReport"),
        "runner": ("BatchRunner",),
    },
)
