"""OpenAI's own client behind the gate: its limits on requests and tokens are kept, and its retries are the gate's.

client = headgate.openai_client()
client.responses.create(model=..., input=...)
"""

from __future__ import annotations

from typing import Any

import openai

from ..resilience.context import Credentials
from .client_gate import Passing
from .model_clients import Vendor, client_options

VENDOR = Vendor("openai", "https://api.openai.com/v1", "OPENAI_BASE_URL")


def openai_client(*, keys: Credentials | None = None, passing: Passing | None = None, **options: Any) -> openai.OpenAI:
    """An ``openai.OpenAI(**options)`` behind the gate.

    ``keys``: several keys in turn, a ``CredentialCoordinator``. ``passing``: a gate that other clients go through too.
    Else the settings of ``Passing`` may stand among the options: ``limits={"requests": "500/min", "tokens":
    "30000/min"}``, ``store="machine"``, ``max_wait=30``, ... ``fallback``: other models or targets for requests that
    this one cannot take, ``[Fallback(to="groq", model=...)]``. Everything else is the vendor's.
    """
    return openai.OpenAI(**client_options(VENDOR, openai.DefaultHttpxClient, keys, passing, options))


def async_openai_client(
    *, keys: Credentials | None = None, passing: Passing | None = None, **options: Any
) -> openai.AsyncOpenAI:
    """The same for ``openai.AsyncOpenAI``."""
    return openai.AsyncOpenAI(**client_options(VENDOR, openai.DefaultAsyncHttpxClient, keys, passing, options))
