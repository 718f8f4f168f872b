"""OpenAI's own client behind the gate: its limits on requests and tokens are kept, and its retries are the gate's.

client = headgate.openai_client()
client.responses.create(model=..., input=...)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import httpx2
import openai

from ..resilience.context import Credentials
from .client_gate import Passing
from .model_clients import client_options

USUAL_BASE_URL = "https://api.openai.com/v1"


def openai_client(*, keys: Credentials | None = None, passing: Passing | None = None, **options: Any) -> openai.OpenAI:
    """An ``openai.OpenAI(**options)`` behind the gate.

    ``keys``: several keys in turn, a ``CredentialCoordinator``. ``passing``: a gate that other clients go through too.
    Else the settings of ``Passing`` may stand among the options: ``limits={"requests": "500/min", "tokens":
    "30000/min"}``, ``store="machine"``, ``max_wait=30``, ... ``fallback``: other models or targets for requests that
    this one cannot take, ``[Fallback(to="groq", model=...)]``. Everything else is the vendor's.
    """
    return openai.OpenAI(
        **client_options(_base_url(options), keys, passing, options, httpx2.Client, openai.DefaultHttpxClient)
    )


def async_openai_client(
    *, keys: Credentials | None = None, passing: Passing | None = None, **options: Any
) -> openai.AsyncOpenAI:
    """The same for ``openai.AsyncOpenAI``."""
    return openai.AsyncOpenAI(
        **client_options(_base_url(options), keys, passing, options, httpx2.AsyncClient, openai.DefaultAsyncHttpxClient)
    )


def _base_url(options: Mapping[str, Any]) -> str:
    return str(options.get("base_url") or os.environ.get("OPENAI_BASE_URL") or USUAL_BASE_URL)
