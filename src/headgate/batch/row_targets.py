"""The targets of a batch, in their order: the primary, then its fallbacks.

    row ─> validator of its target: may it be sent, under which key, for how much
        └> target: adapted, sent with the target's own keys ─> its line, with "headgate": {"target", "why", ...}

Each target has connections, keys and limits of its own; the keys of the limiter begin with the target's name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ..core.fallback import PRIMARY
from ..errors import ConfigError, Failed
from ..limiter.permit import Cost
from ..resilience.fallback import Fallback, accepted_reasons
from .input.rows import InputRow
from .item import Result
from .job_input import RowValidator
from .pricing import Prices
from .stalls import NoResponseMonitor
from .target import RowAnswer, RowContext, Target, TargetConfig

if TYPE_CHECKING:
    from ..credentials import CredentialCoordinator


class TargetContext(RowContext, Protocol):
    """What a worker is handed with its row, with the target that it goes to."""

    @property
    def target(self) -> int: ...


class RowTargets:
    def __init__(
        self,
        to: TargetConfig,
        fallbacks: Sequence[Fallback] = (),
        *,
        prices: Prices,
        has_cap: bool,
        counts_tokens: Callable[[str], bool],
        credentials: Sequence[CredentialCoordinator | None] = (),
        run_id: str = "",
        responses: NoResponseMonitor | None = None,
    ) -> None:
        """``credentials``: of each fallback; None for one that needs none, or is at the primary's own origin and uses
        its keys. ``responses`` is told of each call whether it had an answer. Raises ``ConfigError``."""
        self._responses = responses
        self._to, self._fallbacks, self._prices = to, tuple(fallbacks), prices
        self.has_fallbacks = bool(self._fallbacks)
        self.accepts = accepted_reasons(self._fallbacks)
        self.targets = self._made(run_id)
        credentials = credentials or (None,) * len(self._fallbacks)
        self.names = self._named(credentials)
        """What the limiter's keys of each target begin with."""
        self.labels = self._labelled()
        """What each target is called in output lines and summaries."""
        own = zip(self.names[1:], credentials, strict=True)
        self._credentials = {name: keys for name, keys in own if name != self.names[PRIMARY]}
        self._validators = [
            RowValidator(target, has_cap=has_cap, counts_tokens=counts_tokens, name=name if number else "")
            for number, (target, name) in enumerate(zip(self.targets, self.names, strict=True))
        ]
        for number, (target, fallback) in enumerate(zip(self.targets[1:], self._fallbacks, strict=True), 1):
            if has_cap and fallback.model and not target.prices.is_known(fallback.model):
                raise ConfigError(f"fallback {self.labels[number]}: max_cost needs a price for it; pass --price")

    def _made(self, run_id: str) -> list[Target]:
        primary = Target(self._to, prices=self._prices, run_id=run_id)
        others = (
            Target(self._to.for_fallback(one), prices=self._prices, run_id=run_id, fallback=one)
            for one in self._fallbacks
        )
        return [primary, *others]

    def _named(self, credentials: Sequence[CredentialCoordinator | None]) -> list[str]:
        """By the endpoint; with other keys than an earlier target of that name, or another scheme, its number too."""
        names: list[str] = []
        owners: dict[str, tuple[object, str]] = {}
        for number, (target, keys) in enumerate(zip(self.targets, (None, *credentials), strict=True)):
            name, owner = target.endpoint.name, (keys, target.endpoint.base_url.partition(":")[0])
            if owners.setdefault(name, owner) != owner:
                name = f"{name}({number})"
            names.append(name)
        return names

    def _labelled(self) -> list[str]:
        labels = [self.names[PRIMARY]]
        for name, fallback in zip(self.names[1:], self._fallbacks, strict=True):
            label = f"{name}/{fallback.model}" if fallback.model else name
            if label in labels:
                raise ConfigError(f"fallback {label} is given twice, or is the primary target itself")
            labels.append(label)
        return labels

    # ------------------------------------------------------------------ what a run asks

    @property
    def primary(self) -> Target:
        return self.targets[PRIMARY]

    @property
    def validator(self) -> RowValidator:
        """The validator of the primary target."""
        return self._validators[PRIMARY]

    def key(self, row: InputRow, target: int) -> str:
        return self._validators[target].key(row)

    def cost(self, row: InputRow, target: int) -> Cost:
        """What the row is likely to take at this target. Call ``key`` first."""
        return self._validators[target].cost(row)

    def limits_of(self, key: str) -> str:
        """The key whose known limits this one shares; most have their own."""
        return self.validator.owners.get(key, key)

    def account_of(self, key: str) -> str:
        """The account behind a key: empty for the primary's."""
        name = key.partition("/")[0]
        return "" if name == self.names[PRIMARY] else name

    @property
    def own_credentials(self) -> dict[str, CredentialCoordinator]:
        """The credentials of fallbacks that do not use the primary's, by their names."""
        return {name: keys for name, keys in self._credentials.items() if keys is not None}

    def credentials_of(self, key: str, primary: CredentialCoordinator | None) -> CredentialCoordinator | None:
        """The keys that rows of this key are sent with; ``primary`` are those of the primary target."""
        name = key.partition("/")[0]
        return self._credentials.get(name, primary)

    # ------------------------------------------------------------------ sending

    def for_run(self, run_id: str) -> None:
        """Make the targets of a run; its id is known once its ledger is open."""
        self.targets = self._made(run_id)

    async def fetch(self, row: InputRow, ctx: TargetContext) -> RowAnswer:
        """Send the row to its target. Raises a ``Failed`` if there is no usable answer."""
        try:
            answer = await self.targets[ctx.target].fetch(row, ctx)
        except Failed as error:
            if self._responses is not None:
                self._responses.on_no_answer(str(error))
            raise
        if self._responses is not None:
            self._responses.on_answer()
        return answer

    def line(self, result: Result) -> bytes:
        """A row's line of output; with fallbacks it says which target has answered, and why that one."""
        line = Target.line(result)
        if not self.has_fallbacks:
            return line
        told = {
            "target": self.labels[result.target],
            "why": result.why or None,
            "attempts": result.attempts,
            "cost": result.cost,
        }
        return b'%b, "headgate": %b}\n' % (line.rstrip().removesuffix(b"}"), json.dumps(told).encode())

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for target in self.targets:
                await stack.enter_async_context(target)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()
