"""``Fallback``: another model, vendor or set of keys, and the reasons that may move a call there.

    fallback=["gpt-4o-mini"]                                        another model of the same API
    fallback=[Fallback(to="groq", model="llama-3.3-70b-versatile")]     another vendor, with its usual key
    fallback=["to=groq,model=llama-3.3-70b-versatile,on=spend+circuit_open"]    the same as text, for some reasons only

The order is that of preference, and a call always starts with the primary. ``core.fallback`` decides.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.fallback import USUAL_REASONS, MoveReason, read_reasons
from ..errors import ConfigError
from .context import Credentials, check_credentials

MOST_FALLBACKS = 10
LONGEST_NAME = 200
_SEVERAL = ("header", "keys", "query")
"""What may be given more than once in a text."""
_NAMES = ("model", "to", "keys", "on", "header", "query", "dialect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """One target after the primary. Raises ``ConfigError``, which repeats no key."""

    model: str = ""
    """The model that is asked instead; empty: the same."""
    to: str = ""
    """A vendor's name or a base URL, for ``execute_with_resilience`` a provider; empty: the same API."""
    keys: Credentials | tuple[str, ...] = field(default=(), repr=False)
    """Where its keys are (``env:NAME``, ``file:PATH``, ``cmd:WORDS``), or a ``CredentialCoordinator``. Empty: those of
    the primary for the same API, else the vendor's usual variable."""
    on: frozenset[MoveReason] = USUAL_REASONS
    """The reasons that may move a call here; any but ``refused_content`` unless they are given."""
    header: tuple[str, ...] = field(default=(), repr=False)
    """``Name: value`` each, for another API than the primary's; a credential as ``Name: env:NAME``."""
    query: tuple[str, ...] = ()
    """``name=value`` each, added to its URLs."""
    dialect: str = ""
    """Whose requests a base URL takes: openai, anthropic or azure."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("model", "to", "dialect"):
            value = getattr(self, name)
            if not isinstance(value, str) or len(value) > LONGEST_NAME or not value.isprintable():
                raise ConfigError(f"fallback {name} must be a text of at most {LONGEST_NAME} characters")
        if not self.model and not self.to and not self.keys:
            raise ConfigError("fallback: name another model, target or set of keys")
        for name in ("header", "query"):
            put(self, name, _texts(name, getattr(self, name)))
        if isinstance(self.keys, str | Sequence):
            put(self, "keys", _texts("keys", self.keys))
            if any(not one.startswith(("env:", "file:", "cmd:")) for one in self.sources):
                raise ConfigError(
                    "fallback keys: each is env:NAME, file:PATH or cmd:WORDS, or all of them a CredentialCoordinator; "
                    "a key itself is not taken here"
                )
        else:
            check_credentials(self.keys)
        try:
            put(self, "on", read_reasons(self.on.split("+") if isinstance(self.on, str) else self.on))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"fallback on: {error}") from None

    @property
    def sources(self) -> tuple[str, ...]:
        """Where its keys are, if they are not a coordinator's."""
        return self.keys if isinstance(self.keys, tuple) else ()

    @classmethod
    def of(cls, given: Fallback | str | Mapping[str, Any]) -> Fallback:
        """A fallback as it is given in a program, on the command line or in a configuration file."""
        if isinstance(given, Fallback):
            return given
        if isinstance(given, str):
            return cls(**_read(given))
        if not isinstance(given, Mapping):
            raise ConfigError(f"fallback: {type(given).__name__} is not a Fallback, a text or a mapping")
        if unknown := [str(name) for name in given if name not in _NAMES]:
            raise ConfigError(f"fallback: unknown field {unknown[0][:40]!r}; the fields are {', '.join(_NAMES)}")
        return cls(**given)


Fallbacks = Iterable[Fallback | str | Mapping[str, Any]]


def read_fallbacks(given: Fallbacks | None) -> tuple[Fallback, ...]:
    """The fallbacks in their order, checked. Raises ``ConfigError``."""
    if given is None:
        return ()
    if isinstance(given, str | Mapping | Fallback):
        given = [given]
    found = tuple(Fallback.of(one) for one in given)
    if len(found) > MOST_FALLBACKS:
        raise ConfigError(f"fallback has {len(found)} targets; the limit is {MOST_FALLBACKS}")
    return found


def accepted_reasons(fallbacks: Sequence[Fallback]) -> tuple[frozenset[MoveReason], ...]:
    """The reasons that may move a call to each target, for ``core.fallback``: none for the primary."""
    return (frozenset(), *(one.on for one in fallbacks))


def account_of(api: str, keys: object, header: tuple[str, ...] = ()) -> Hashable:
    """Who pays for a call, for ``core.fallback``: the API, and the credentials that are sent there."""
    return api, keys if isinstance(keys, Hashable) else id(keys), header


def _read(text: str) -> dict[str, Any]:
    """``model``, ``name=value`` pairs with commas between them, or both."""
    model, comma, pairs = text.partition(",")
    if "=" not in text:
        return {"model": text.strip()}
    found: dict[str, Any] = {}
    if comma and model.strip() and "=" not in model:
        found["model"], text = model.strip(), pairs
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in _NAMES or not value:
            shown = repr(name[:40]) if equals and name not in _NAMES else "a part"
            raise ConfigError(
                f"fallback: {shown} is not one of {', '.join(f'{one}=...' for one in _NAMES)}, with commas between them"
            )
        if name in _SEVERAL:
            found[name] = (*found.get(name, ()), value)
        elif name in found:
            raise ConfigError(f"fallback: {name} is given twice; write --fallback once for each target")
        else:
            found[name] = value
    return found


def _texts(name: str, given: Any) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(one, str) for one in texts):
        raise ConfigError(f"fallback {name} must be texts")
    return texts
