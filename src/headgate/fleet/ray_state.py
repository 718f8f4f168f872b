"""Fleet runs in a named actor of a Ray cluster, beside the quotas of ``store="ray"``."""

from __future__ import annotations

from ..distributed.backends.ray_actor import NamedActor
from .protocol import FleetRunView, MemberReply, MemberRequest
from .state_store import MemoryRunState

RUNS = "headgate-runs"


class RayRunState:
    """Keeps the contract of ``RunStateStore``. An actor that was restarted has the run again once members report."""

    def __init__(self) -> None:
        self._actor = NamedActor(RUNS, MemoryRunState)
        self.where = self._actor.where

    def exchange(self, run: str, request: MemberRequest) -> MemberReply:
        reply: MemberReply = self._actor.do("exchange", run, request)
        return reply

    def order(self, run: str, kind: str) -> bool:
        return bool(self._actor.do("order", run, kind))

    def views(self) -> list[FleetRunView]:
        views: list[FleetRunView] = self._actor.do("views")
        return views

    def view(self, run: str) -> FleetRunView | None:
        view: FleetRunView | None = self._actor.do("view", run)
        return view

    def close(self) -> None:
        """The actor stays, for the others."""
