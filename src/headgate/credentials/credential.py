"""A credential has two faces: the secret, which only the caller that holds it sees, and the label, for all others.

Nothing here prints, formats or raises a secret, not even a part of one. An argument that may
hold a secret by mistake (label and secret in the wrong order) is not repeated in the error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from string import ascii_lowercase
from typing import NoReturn

from ..core.credential_pool import PoolEntry
from ..core.decision import UNKNOWN
from ..errors import ConfigError

MOST_CREDENTIALS = 10_000
MOST_NUMBERS = 2 * MOST_CREDENTIALS
"""Up to which labels are numbered."""
LONGEST_SECRET = 65_536
LONGEST_LABEL = 64
SHORTEST_TELLTALE = 4
"""A shorter secret may well occur inside of a label by chance."""


class Credential:
    """A secret, its label, and the group with which it shares a rate limit. Immutable.

    It is no dataclass and cannot be pickled: ``asdict``, a log of a process pool's arguments or a cache on disk would
    have the secret in it without being asked to.
    """

    __slots__ = ("group", "label", "secret")

    label: str
    """Shown in logs, events and tables. An empty one becomes key-1, key-2, ... in a coordinator."""
    secret: str
    group: str | None
    """Credentials of one group share one rate limit: when one is rate limited, all rest."""

    def __init__(self, label: str, secret: str, group: str | None = None) -> None:
        for name, text, least in (("label", label, 0), ("group", group, 1)):
            fine = isinstance(text, str) and text.isprintable() and least <= len(text) <= LONGEST_LABEL
            if not fine and not (text is None and name == "group"):
                raise ConfigError(f"a credential's {name} must be printable text of at most {LONGEST_LABEL} characters")
        if not isinstance(secret, str) or not 0 < len(secret) <= LONGEST_SECRET:
            raise ConfigError(f"a credential's secret must be text of 1 to {LONGEST_SECRET} characters")
        for name, text in (("label", label), ("group", group or "")):
            if secret == text or (len(secret) >= SHORTEST_TELLTALE and secret in text):
                raise ConfigError(f"a credential's {name} must not contain its secret: Credential(label, secret)")
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
        raise TypeError("credentials cannot be pickled, to keep the secret here; read them again in the other process")


class Key(PoolEntry):
    """A credential's place in the pool."""

    __slots__ = ("credential",)

    def __init__(self, credential: Credential) -> None:
        super().__init__(credential.label, credential.group)
        self.credential = credential

    @property
    def paced_by(self) -> str:
        """The name its pace is learned under: the group it was given, else of a group that was found its first."""
        return self.credential.group or (self.limit_group.members[0].label if self.group else self.label)


class BySecret(dict[str, Key]):
    """Finds a credential's place by its secret, and does not show what it holds, however it is printed."""

    def __repr__(self) -> str:
        return f"<{len(self)} credentials>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialState:
    """The state of one credential, for display and monitoring."""

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


def state_of(key: Key, shown: str, is_resting: bool, now: float) -> CredentialState:
    return CredentialState(
        label=key.label,
        shown=shown,
        group=key.group,
        state=key.state(now),
        back_in=key.until - now if is_resting else None,
        budget=None if key.budget == UNKNOWN else max(0.0, key.budget),
        reason=key.reason,
    )


def labelled(credentials: Iterable[str | Credential]) -> list[Credential]:
    """Strings and credentials as credentials, each with a label and a secret of its own.

    Labels that are made up here give way to secrets and to labels that were given.
    """
    if isinstance(credentials, str | Credential):
        raise ConfigError("credentials must be a list, also of one")
    given = list(islice(credentials, MOST_CREDENTIALS + 1))
    if not 1 <= len(given) <= MOST_CREDENTIALS:
        raise ConfigError(f"credentials must be a list of 1 to {MOST_CREDENTIALS:,}")
    parts = [(one.secret, one.label, one.group) if isinstance(one, Credential) else (one, "", None) for one in given]
    secrets = {secret for secret, _, _ in parts if isinstance(secret, str)}
    taken = {name for _, *names in parts for name in names if name}
    free_labels = _FreeLabels(secrets, taken)
    named: dict[str, Credential] = {}
    label_of: dict[str, str] = {}
    for number, (secret, label, group) in enumerate(parts, 1):
        one = Credential(label or free_labels.take(number), secret, group)
        if one.label in named:
            raise ConfigError(f"credentials: two have the label {one.label!r}; labels must be unique")
        if secret in label_of:
            raise ConfigError(f"credentials: {label_of[secret]!r} and {one.label!r} are the same secret; remove one")
        named[one.label], label_of[secret] = one, one.label
    for number, one in enumerate(named.values(), 1):
        if one.label in label_of or one.group in label_of:
            name = "label" if one.label in label_of else "group"
            raise ConfigError(f"credentials: the {name} of number {number} is another credential's secret; change it")
    return list(named.values())


def gives_away(text: str, secrets: Collection[str]) -> bool:
    """Whether the text is one of the secrets, or holds one that is too long to stand there by chance."""
    if text in secrets:
        return True
    cuts = combinations(range(len(text) + 1), 2)
    return any(end - start >= SHORTEST_TELLTALE and text[start:end] in secrets for start, end in cuts)


class _FreeLabels:
    """Makes up labels: key-1, key-2, ... by position, or the next free number where that is or holds a secret."""

    def __init__(self, secrets: Collection[str], taken: Collection[str]) -> None:
        self._secrets = secrets
        self._taken = set(taken)
        names = ("key", "credential", *ascii_lowercase)
        self._next = {name: 1 for name in names if not gives_away(f"{name}-", secrets)}
        """The first number of each name that was not tried yet."""

    def take(self, number: int) -> str:
        for label in self._candidates(number):
            if label not in self._taken and not gives_away(label, self._secrets):
                self._taken.add(label)
                return label
        raise ConfigError(f"credentials: number {number} needs a label: Credential(label, secret)")

    def _candidates(self, number: int) -> Iterator[str]:
        for name, tried in self._next.items():
            for counted in range(max(number, tried), MOST_NUMBERS + 1):
                self._next[name] = counted + 1
                yield f"{name}-{counted}"
            spelled = "".join(chr(ord("a") + int(digit)) for digit in str(number))  # numbers may be secrets too
            yield f"{name}-{spelled}"
