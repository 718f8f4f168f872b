"""A store that names a key and a credential by what the credential is, not by the label it has in this process.

    openai/gpt-4o/key-1  ──>  openai/gpt-4o/6b00a5ab...     its keyed hash: the same in every process that has this key
    openai/gpt-4o/org-1  ──>  the same                      a group, by its name

Two programs with a credential of the label "key-1" share nothing unless it is the same credential; and if it is, they
share its quota whatever its labels are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..credentials import CredentialCoordinator
from ..credentials.record import FarCredentialStore
from ..distributed.protocol import SyncReply, SyncRequest
from ..distributed.store import QuotaView, Store, StoreDown
from ..identity import Identities
from ..wire.urls import pair_key

MOST_NAMES = 10_000
"""Keys whose names are remembered."""


class PairedStore:
    def __init__(self, store: Store, credentials_of: Callable[[str], CredentialCoordinator | None]) -> None:
        """``credentials_of``: the credentials that calls under this key are made with, if any."""
        self.where = store.where
        self._store = store
        self._credentials_of = credentials_of
        self._identities: Identities | None = None
        self._names: dict[str, str] = {}

    def sync(self, requests: Sequence[tuple[str, SyncRequest]]) -> list[SyncReply]:
        before = self._present_identities()
        replies = self._store.sync([(self._name(key, before), request) for key, request in requests])
        if self._present_identities() is not before:  # the server has lost its data, and its salt: no other knows these
            raise StoreDown(f"{self.where}: it lost its data and was reset")
        return replies

    def snapshot(self) -> list[QuotaView]:
        return self._store.snapshot()

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
            coordinator = self._credentials_of(front)
            names = {} if coordinator is None else coordinator.shared_names(identities)
            quoted = {pair_key("", paced_by): known for paced_by, known in names.items()}
            name = self._names[key] = f"{front}/{quoted[f'/{last}']}" if f"/{last}" in quoted else key
        return name
