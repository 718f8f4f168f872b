"""Identities: names for secrets that do not give them away.

A plain hash of a key could be checked against a list of leaked ones, and the first letters of
a key are a part of it. So a credential is known by a HMAC with a random secret that is made
once for each user and never leaves its file: 128 bits identify, 6 hex digits are shown.
"""

from __future__ import annotations

import logging
import os

from .private_files import create_private, restrict_to_owner, state_folder

log = logging.getLogger("headgate")

KEY_BYTES = 32
IDENTITY_DIGITS = 32
"""128 bits."""
SHOWN_DIGITS = 6
_UNKEPT: dict[str, bytes] = {}
"""Keys of this process in place of files that cannot be used."""


class Identities:
    """Names for secrets. The same key gives the same names, so simulations pass their seed."""

    def __init__(self, key: bytes | None) -> None:
        """Without a ``key``, the random one of this user is read from its file when a name is first needed."""
        self._key = key

    def of(self, secret: str) -> str:
        """32 hex digits that stand for this secret wherever something is stored."""
        import hmac  # here, because most programs never name a credential

        if self._key is None:
            self._key = _user_key()
        return hmac.digest(self._key, secret.encode("utf-8", "surrogatepass"), "sha256").hex()[:IDENTITY_DIGITS]

    @classmethod
    def of_user(cls) -> Identities:
        """With the random key of this user, made at the first use; where no file can be kept, for this process only."""
        return cls(None)

    def __repr__(self) -> str:
        return "<Identities>"


def _user_key() -> bytes:
    path = os.path.join(state_folder(), "identity.key")
    try:
        return _kept_key(path)
    except OSError as error:
        if path not in _UNKEPT:
            log.warning("credential ids will differ in each run: cannot use %s (%s)", path, error.strerror)
        return _UNKEPT.setdefault(path, os.urandom(KEY_BYTES))


def _kept_key(path: str) -> bytes:
    """Read the key; make one if there is none."""
    for _ in range(2):
        try:
            with open(path, "rb") as file:
                key = file.read(KEY_BYTES)
        except FileNotFoundError:
            create_private(path, os.urandom(KEY_BYTES))
            continue
        if len(key) == KEY_BYTES:
            restrict_to_owner(path)
            return key
        break
    raise OSError(0, "not a Headgate key file; remove it", path)
