"""A store in which a key and a credential go by what the credential is, not by what this process happens to call it.

    openai/gpt-4o/key-1  ──>  openai/gpt-4o/6b00a5ab...     its keyed hash: the same in every process that has this key
    openai/gpt-4o/org-1  ──>  the same                      a group, by its name

Two programs that both call their first key "key-1" have nothing to do with each other unless it is the same key; and
if it is, they must find each other whatever they call it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.sharing.visit import Reply, Visit
from ..credentials import CredentialCoordinator
from ..credentials.record import FarCredentialStore
from ..identity import Identities
from ..stores.contract import DeskView, Store, StoreDown
from .target import pair_key

MOST_NAMES = 10_000
"""Keys whose names are remembered."""


class PairedStore:
    def __init__(self, store: Store, whose: Callable[[str], CredentialCoordinator | None]) -> None:
        """``whose``: the credentials that calls under this key are made with, if any."""
        self.where = store.where
        self._store = store
        self._whose = whose
        self._identities: Identities | None = None
        self._names: dict[str, str] = {}

    def visit(self, visits: Sequence[tuple[str, Visit]]) -> list[Reply]:
        before = self._present_identities()
        replies = self._store.visit([(self._name(key, before), visit) for key, visit in visits])
        if self._present_identities() is not before:  # the server has lost its data: these desks are nobody else's
            raise StoreDown(f"{self.where}: it has begun anew")
        return replies

    def look(self) -> list[DeskView]:
        return self._store.look()

    def close(self) -> None:
        self._store.close()

    def __repr__(self) -> str:
        return f"<PairedStore: {self.where}>"

    def _present_identities(self) -> Identities:
        if isinstance(self._store, FarCredentialStore):
            identities = self._store.identities()
        else:
            identities = self._identities or Identities.of_user()
        if identities is not self._identities or len(self._names) > MOST_NAMES:
            self._identities = identities
            self._names.clear()
        return identities

    def _name(self, key: str, identities: Identities) -> str:
        name = self._names.get(key)
        if name is None:
            front, _, last = key.rpartition("/")
            coordinator = self._whose(front)
            names = {} if coordinator is None else coordinator.shared_names(identities)
            quoted = {pair_key("", paced_by): known for paced_by, known in names.items()}
            name = self._names[key] = f"{front}/{quoted[f'/{last}']}" if f"/{last}" in quoted else key
        return name
