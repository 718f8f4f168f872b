"""A credential has two faces: the secret, which only the caller who holds it sees, and the label, for all others.

Nothing here prints, formats or raises a secret, not even a part of one. An argument that may
hold a secret by mistake (label and secret in the wrong order) is not repeated in the error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from ..core.slot import Slot
from ..errors import ConfigError

MOST_CREDENTIALS = 10_000
LONGEST_SECRET = 65_536
LONGEST_LABEL = 64
SHORTEST_TELLTALE = 4
"""A shorter secret may well occur inside of a label by chance."""


class Credential:
    """A secret, what people call it, and with whom it shares a rate limit. It cannot be changed.

    It is no dataclass and cannot be pickled: ``asdict``, a log of a process pool's arguments or a cache on disk would
    have the secret in it without anybody having asked for that.
    """

    __slots__ = ("group", "label", "secret")

    label: str
    """Shown in logs, events and tables. An empty one becomes key-1, key-2, ... in a coordinator."""
    secret: str
    group: str | None
    """Credentials of one group share one rate limit: when one is told to wait, all rest."""

    def __init__(self, label: str, secret: str, group: str | None = None) -> None:
        for name, text, least in (("label", label, 0), ("group", group, 1)):
            fine = isinstance(text, str) and text.isprintable() and least <= len(text) <= LONGEST_LABEL
            if not fine and not (text is None and name == "group"):
                raise ConfigError(f"a credential's {name} must be printable text of at most {LONGEST_LABEL} characters")
        if not isinstance(secret, str) or not 0 < len(secret) <= LONGEST_SECRET:
            raise ConfigError(f"a credential's secret must be text of 1 to {LONGEST_SECRET} characters")
        for name, text in (("label", label), ("group", group or "")):
            if secret == text or (len(secret) >= SHORTEST_TELLTALE and secret in text):
                raise ConfigError(f"a credential's {name} must not give its secret away: Credential(label, secret)")
        for name, text in (("label", label), ("secret", secret), ("group", group)):
            object.__setattr__(self, name, text)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a credential cannot be changed ({name}); make another")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a credential cannot be changed ({name}); make another")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Credential):
            return NotImplemented
        return (self.label, self.secret, self.group) == (other.label, other.secret, other.group)

    def __hash__(self) -> int:
        return hash((self.label, self.secret, self.group))

    def __repr__(self) -> str:
        return f"Credential(label={self.label!r}, group={self.group!r})"

    def __copy__(self) -> Credential:
        return self

    def __deepcopy__(self, memo: object) -> Credential:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a credential is not pickled, for its secret would go with it; read it anew over there")


class Key(Slot):
    """A credential's place in the pool."""

    __slots__ = ("credential",)

    def __init__(self, credential: Credential) -> None:
        super().__init__(credential.label, credential.group)
        self.credential = credential


class BySecret(dict[str, Key]):
    """Finds a credential's place by its secret, and does not show what it holds, however it is printed."""

    def __repr__(self) -> str:
        return f"<{len(self)} credentials>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialState:
    """How one credential stands, for people and programs that watch."""

    label: str
    shown: str
    """Six digits that tell credentials apart and tell nothing of the secret."""
    group: str | None
    state: str
    """free, held, resting or retired."""
    back_in: float | None
    """Seconds until a resting one is back."""
    budget: float | None
    """Calls left, as far as the provider has said."""
    reason: str
    """Why it rests or is retired."""


def labelled(credentials: Iterable[str | Credential]) -> list[Credential]:
    """Strings and credentials as credentials, each with a label and a secret of its own."""
    if isinstance(credentials, str | Credential):
        raise ConfigError("credentials must be a list of them, even if there is only one")
    named: dict[str, Credential] = {}
    label_of: dict[str, str] = {}
    for number, given in enumerate(credentials, 1):
        if number > MOST_CREDENTIALS:
            raise ConfigError(f"credentials must be at most {MOST_CREDENTIALS:,}")
        secret, label, group = (
            (given.secret, given.label, given.group) if isinstance(given, Credential) else (given, "", None)
        )
        one = Credential(label or f"key-{number}", secret, group)
        if one.label in named:
            raise ConfigError(f"credentials: two of them are labelled {one.label!r}; each needs a label of its own")
        if secret in label_of:
            raise ConfigError(f"credentials: {label_of[secret]!r} and {one.label!r} are the same secret; remove one")
        named[one.label], label_of[secret] = one, one.label
    if not named:
        raise ConfigError("credentials must be at least one")
    for number, one in enumerate(named.values(), 1):
        if one.label in label_of or one.group in label_of:
            name = "label" if one.label in label_of else "group"
            raise ConfigError(f"credentials: the {name} of number {number} is the secret of another; change it")
    return list(named.values())
