"""Which names rows have, where no ledger knows: kept on disk, so that millions of them cost no memory."""

from __future__ import annotations

import sqlite3


class Names:
    def __init__(self) -> None:
        self._names = sqlite3.connect("")  # a file that nobody sees, gone when it is closed
        self._names.execute("CREATE TABLE names (name TEXT PRIMARY KEY, line INTEGER NOT NULL) WITHOUT ROWID")

    def line_before(self, name: str, line: int) -> int | None:
        """The line on which this name was seen first, if it was before."""
        if self._names.execute("INSERT OR IGNORE INTO names VALUES (?, ?)", (name, line)).rowcount:
            return None
        (first,) = self._names.execute("SELECT line FROM names WHERE name = ?", (name,)).fetchone()
        return int(first)

    def close(self) -> None:
        self._names.close()
