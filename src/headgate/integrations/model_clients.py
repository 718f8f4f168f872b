"""The gate as the clients of language models need it.

Vendors limit each model on its own, so each has a key of its own. Their clients repeat what failed by themselves, also
a POST; as that is switched off in favour of the gate, the gate does it for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..config import RateLimitConfig
from ..errors import ConfigError
from ..resilience.context import Credentials
from .client_gate import Passing

STAND_IN = "leased-for-each-request"
"""The key of a client that needs one, where the gate puts in the real one."""
_SETTINGS = frozenset(Passing.__init__.__kwdefaults__ or ()) - {"credentials"}
"""Of the gate; its credentials are called ``keys`` here, since only one origin is asked."""


def model_gate(base_url: str, passing: Passing | None, keys: Credentials | None, options: dict[str, Any]) -> Passing:
    """The gate that a vendor's client was given, or one with the settings among the options; it takes those out.

    ``keys`` go to the origin of ``base_url`` alone.
    """
    settings = {name: options.pop(name) for name in _SETTINGS & options.keys() if _is_ours(name, options[name])}
    if keys is not None:
        settings["credentials"] = {base_url: keys}
        if passing is not None:
            raise ConfigError("passing: it has credentials of its own; keys cannot be given beside it")
    return Passing.given(passing, settings).for_models()


def http_client(given: Any, kind: type[Any], makes: Callable[[], Any]) -> Any:
    """The HTTP client that a vendor's client was given, which must be of the kind it is built on, or a new one."""
    if given is None:
        return makes()
    if not isinstance(given, kind):
        given_kind = f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"
        raise ConfigError(f"http_client={given_kind} must be an httpx2.{kind.__name__}, as this client needs")
    return given


def without_retries(options: Mapping[str, Any], keys: Credentials | None) -> dict[str, Any]:
    """A client's options with its own retries off, unless their number is given."""
    stand_in = {} if keys is None else {"api_key": STAND_IN}
    return {"max_retries": 0, **stand_in, **options}


def _is_ours(name: str, value: object) -> bool:
    """anthropic's client has a ``config`` too, of another kind."""
    return name != "config" or isinstance(value, RateLimitConfig)
