"""A proxied request that may go to another target: where, with what, and what its client is told.

request ─> its API ─> no: why? ─> integrations/fallback ─> another API, adapted ─> response, with headgate-target
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from ..integrations.client_gate import ClientGate
from ..integrations.fallback import RequestRoute
from ..integrations.origins import OriginCredentials
from ..integrations.request import OutgoingRequest
from .mounts import Mount

TARGET_HEADER, WHY_HEADER = "Headgate-Target", "Headgate-Why"
"""Added to the response of a fallback."""


class ProxiedRoute:
    """The way of one request over several targets."""

    def __init__(self, request: RequestRoute, mount: Mount, target: str, body: bytes) -> None:
        self.request = request
        self._first = mount, target, body

    @classmethod
    def begin(cls, gate: ClientGate, outgoing: OutgoingRequest, mount: Mount, target: str) -> ProxiedRoute | None:
        """None for a request that never moves."""
        if gate.fallbacks is None or outgoing.body is None:
            return None
        route = gate.fallbacks.begin(outgoing, gate.limiter.clock.now())
        return None if route is None else cls(route, mount, target, outgoing.body)

    @property
    def is_moved(self) -> bool:
        return self.request.moved is not None

    @property
    def is_elsewhere(self) -> bool:
        """Whether it goes to another origin, which is not sent what the client has for the first."""
        moved = self.request.moved
        return moved is not None and not moved.url.startswith(self._first[0].origin + "/")

    @property
    def credentials(self) -> OriginCredentials | None:
        moved = self.request.moved
        return None if moved is None else moved.credentials

    def place(self) -> tuple[Mount, str, bytes]:
        """The API, the path and query, and the body that are sent now."""
        moved = self.request.moved
        if moved is None:
            return self._first
        parts = urlsplit(moved.url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        origin = f"{parts.scheme}://{parts.netloc}"
        return replace(self._first[0], origin=origin, address=self.request.endpoint), target, moved.body

    def told(self) -> dict[str, str]:
        """For the client: which fallback has answered, and why that one."""
        if not self.is_moved:
            return {}
        return {TARGET_HEADER: self.request.label, WHY_HEADER: self.request.why}
