"""Anthropic's own client behind the gate: its limits on requests and tokens are kept, and its retries are the gate's.

client = headgate.anthropic_client()
client.messages.create(model=..., max_tokens=..., messages=...)
"""

from __future__ import annotations

from typing import Any

import anthropic

from ..resilience.context import Credentials
from .client_gate import Passing
from .model_clients import Vendor, client_options

VENDOR = Vendor("anthropic", "https://api.anthropic.com", "ANTHROPIC_BASE_URL")


def anthropic_client(
    *, keys: Credentials | None = None, passing: Passing | None = None, **options: Any
) -> anthropic.Anthropic:
    """An ``anthropic.Anthropic(**options)`` behind the gate.

    ``keys``: several keys in turn, a ``CredentialCoordinator``. ``passing``: a gate that other clients go through too.
    Else the settings of ``Passing`` may stand among the options: ``limits={"requests": "500/min", "tokens":
    "30000/min"}``, ``store="machine"``, ``max_wait=30``, ... ``fallback``: other models or targets for requests that
    this one cannot take, ``[Fallback(to="groq", model=...)]``. Everything else is the vendor's.
    """
    return anthropic.Anthropic(**client_options(VENDOR, anthropic.DefaultHttpxClient, keys, passing, options))


def async_anthropic_client(
    *, keys: Credentials | None = None, passing: Passing | None = None, **options: Any
) -> anthropic.AsyncAnthropic:
    """The same for ``anthropic.AsyncAnthropic``."""
    return anthropic.AsyncAnthropic(**client_options(VENDOR, anthropic.DefaultAsyncHttpxClient, keys, passing, options))
