"""What a mocked API answers, before it is put on a socket or handed to a simulated client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: Any
    """An object for JSON, or text or bytes as they are."""
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
