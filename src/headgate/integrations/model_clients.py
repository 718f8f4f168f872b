"""The gate as the clients of language models need it.

Vendors limit each model on its own, so each has a key of its own. Their clients repeat what failed by themselves, also
a POST; as that is switched off in favour of the gate, the gate does it for them.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import httpx2

from ..config import RateLimitConfig
from ..errors import ConfigError
from ..resilience.context import Credentials
from ..resilience.fallback import read_fallbacks
from .client_gate import Passing
from .fallback import ClientFallbacks
from .httpx2 import gate

STAND_IN = "leased-for-each-request"
"""The key of a client that needs one, where the gate puts in the real one."""
_SETTINGS = frozenset(Passing.__init__.__kwdefaults__ or ()) - {"credentials"}
"""Of the gate; its credentials are called ``keys`` here, since only one origin is asked."""


class Vendor(NamedTuple):
    dialect: str
    """Of its requests."""
    base_url: str
    """Its usual one."""
    variable: str
    """The environment variable in which its client looks for another base URL."""


def client_options(
    vendor: Vendor,
    make: type[httpx2.Client | httpx2.AsyncClient],
    keys: Credentials | None,
    passing: Passing | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    """The options of a vendor's client: its HTTP client behind the gate, its own retries off unless they are given.

    ``make`` is the HTTP client that it has by default.
    """
    base_url = str(options.get("base_url") or os.environ.get(vendor.variable) or vendor.base_url)
    fallbacks = read_fallbacks(options.pop("fallback", None))
    passing = _model_gate(base_url, passing, keys, options)
    passing.answers_spend_stops = True
    if fallbacks:
        primary = passing.credentials_at(base_url)
        passing.fallbacks = ClientFallbacks(base_url, fallbacks, dialect=vendor.dialect, primary=primary)
    inside = options.pop("http_client", None)
    kind = httpx2.AsyncClient if issubclass(make, httpx2.AsyncClient) else httpx2.Client
    if inside is None:
        inside = make()
    elif not isinstance(inside, kind):
        given = f"{type(inside).__module__.partition('.')[0]}.{type(inside).__name__}"
        raise ConfigError(f"http_client={given} must be an httpx2.{kind.__name__}, as this client needs")
    stand_in = {} if keys is None else {"api_key": STAND_IN}
    return {"max_retries": 0, **stand_in, **options, "http_client": gate(inside, passing=passing)}


def _model_gate(base_url: str, passing: Passing | None, keys: Credentials | None, options: dict[str, Any]) -> Passing:
    """The gate that a vendor's client was given, or one with the settings among the options; it takes those out.

    ``keys`` go to the origin of ``base_url`` alone.
    """
    settings = {name: options.pop(name) for name in _SETTINGS & options.keys() if _is_ours(name, options[name])}
    if keys is not None:
        settings["credentials"] = {base_url: keys}
        if passing is not None:
            raise ConfigError("passing has its own credentials; remove keys")
    return Passing.given(passing, settings).for_models()


def _is_ours(name: str, value: object) -> bool:
    """anthropic's client has a ``config`` too, of another kind."""
    return name != "config" or isinstance(value, RateLimitConfig)
