"""Several credentials used as one: ``CredentialCoordinator`` and what it hands out."""

from ..identity import Identities
from .coordinator import CredentialCoordinator
from .credential import Credential, CredentialState
from .lease import Lease
from .record import CredentialStore, Record
from .sources import credentials_from
from .stores import FileStore, StoreError

__all__ = [
    "Credential",
    "CredentialCoordinator",
    "CredentialState",
    "CredentialStore",
    "FileStore",
    "Identities",
    "Lease",
    "Record",
    "StoreError",
    "credentials_from",
]
