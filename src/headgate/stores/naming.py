"""What keys and members are called in a store: keys by a keyed hash, members so that people can find them."""

from __future__ import annotations

import os
import secrets
import socket

LONGEST_MEMBER = 80
SHOWN_DIGITS = 6
"""Of a key's hash, where people read it."""


def member_name() -> str:
    """A name that nobody else has, ending in what a person can look for: ``9f0c...-1234@host``."""
    host = "".join(letter for letter in socket.gethostname() if letter.isascii() and letter.isprintable())
    return f"{secrets.token_hex(8)}-{os.getpid()}@{host}"[:LONGEST_MEMBER]


def shown(name: str) -> str:
    return name[:SHOWN_DIGITS]
