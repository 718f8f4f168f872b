"""Batches: push any number of rows through an API, lose none, do none twice."""

from .attempt import ItemContext
from .config import BatchConfig
from .item import Result
from .ledger import Ledger, LedgerError, RowState
from .memory_ledger import MemoryLedger
from .report import BatchEvent, BatchReport
from .runner import BatchRunner
from .sqlite_ledger import SqliteLedger
from .standing import LaneStanding

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
