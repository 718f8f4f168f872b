"""The gate as the clients of language models need it.

Vendors limit each model on its own, so each has a line of its own. Their clients repeat what failed by themselves, also
a POST; as that is switched off in favour of the gate, the gate does it for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..config import Limits
from ..errors import ConfigError
from ..resilience.context import Credentials
from .outgoing import by_model, is_idempotent_or_generates
from .passing import Passing

if TYPE_CHECKING:
    from ..stores.contract import Store

STAND_IN = "leased-for-each-request"
"""What a client is told that asks for a key, where the gate puts in the real one."""


def model_gate(
    base_url: str,
    passing: Passing | None,
    *,
    limits: Limits | None,
    store: Store | str | None,
    keys: Credentials | None,
) -> Passing:
    """The gate that a vendor's client was given, or one of its own. ``keys`` go to the origin of ``base_url`` alone."""
    if passing is None:
        return Passing(
            limits=limits,
            store=store,
            credentials=None if keys is None else {base_url: keys},
            key=by_model,
            repeatable=is_idempotent_or_generates,
        )
    if limits is not None or store is not None or keys is not None:
        raise ConfigError("passing: it has limits, a store and credentials of its own; give either it or these")
    return passing


def without_retries(options: Mapping[str, Any], keys: Credentials | None) -> dict[str, Any]:
    """A client's options with its own retries off, unless it was told how many it shall make."""
    stand_in = {} if keys is None else {"api_key": STAND_IN}
    return {"max_retries": 0, **stand_in, **options}
