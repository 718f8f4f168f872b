"""Which row is where, so that none is lost and none is done twice."""

from .protocol import Change, Claim, Counts, Ledger, LedgerError, Row, RowState, Written

__all__ = ["Change", "Claim", "Counts", "Ledger", "LedgerError", "Row", "RowState", "Written"]
