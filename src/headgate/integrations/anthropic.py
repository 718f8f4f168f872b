"""Anthropic's own client behind the gate: its limits on requests and tokens are kept, and its retries are the gate's.

client = headgate.anthropic_client()
client.messages.create(model=..., max_tokens=..., messages=...)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anthropic

from ..config import Limits
from ..resilience.context import Credentials
from .httpx2 import gate
from .language_models import model_gate, without_retries
from .passing import Passing

if TYPE_CHECKING:
    from ..stores.contract import Store

USUAL_BASE_URL = "https://api.anthropic.com"


def anthropic_client(
    *,
    limits: Limits | None = None,
    store: Store | str | None = None,
    keys: Credentials | None = None,
    passing: Passing | None = None,
    **options: Any,
) -> anthropic.Anthropic:
    """An ``anthropic.Anthropic(**options)`` behind the gate.

    ``limits``: what is known, ``{"requests": "500/min", "tokens": "30000/min"}``; what is not, is learned.
    ``store``: share them with other processes. ``keys``: several keys in turn, a ``CredentialCoordinator``.
    ``passing``: a gate with settings of your own, or one that other clients go through too.
    """
    passing = model_gate(_base_url(options), passing, limits=limits, store=store, keys=keys)
    http_client = options.pop("http_client", None) or anthropic.DefaultHttpxClient()
    return anthropic.Anthropic(http_client=gate(http_client, passing=passing), **without_retries(options, keys))


def async_anthropic_client(
    *,
    limits: Limits | None = None,
    store: Store | str | None = None,
    keys: Credentials | None = None,
    passing: Passing | None = None,
    **options: Any,
) -> anthropic.AsyncAnthropic:
    """The same for ``anthropic.AsyncAnthropic``."""
    passing = model_gate(_base_url(options), passing, limits=limits, store=store, keys=keys)
    http_client = options.pop("http_client", None) or anthropic.DefaultAsyncHttpxClient()
    return anthropic.AsyncAnthropic(http_client=gate(http_client, passing=passing), **without_retries(options, keys))


def _base_url(options: Mapping[str, Any]) -> str:
    return str(options.get("base_url") or os.environ.get("ANTHROPIC_BASE_URL") or USUAL_BASE_URL)
