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
from .endpoints import InvalidPathError
from .input.rows import InputRow
from .item import Result
from .pricing import Prices
from .stalls import NoResponseMonitor
from .target import RowAnswer, RowContext, Target, TargetConfig

if TYPE_CHECKING:
    from ..credentials import CredentialCoordinator


MOST_MODELS = 100
"""Models with a gate key of their own; those beyond share one."""


class RowValidator:
    """Whether a row can be sent, under which key and for how much."""

    def __init__(self, target: Target, *, has_cap: bool, counts_tokens: Callable[[str], bool], name: str = "") -> None:
        """``has_cap``: on money, which takes prices. ``counts_tokens``: whether a key's tokens must fit anything.
        ``name``: what keys of a fallback begin with, whose rows have no tier."""
        self._name = name
        self._target, self._prices, self._has_cap, self._counts_tokens = target, target.prices, has_cap, counts_tokens
        self._keys: dict[str, tuple[str, bool]] = {}
        """By model and tier."""
        self.owners: dict[str, str] = {}
        """By the key of a tier: the key of its model, where it shares the limits of that."""
        self._valid_path: str | None = None

    def check(self, row: InputRow) -> None:
        """Raises ``BrokenRowError`` for a row that cannot be sent, and so does the row from then on."""
        request = row.request()
        if request.path != self._valid_path:  # most rows ask for the same
            try:
                self._target.endpoint.url(request.path or self._target.config.path)
            except InvalidPathError as error:
                raise row.reject(str(error)) from None
            self._valid_path = request.path
        if self._has_cap and not self._prices.is_known(request.model):
            what = f"no price for model {request.model[:80]!r}, which max_cost needs"
            raise row.reject(f"{what} (a price for '*' covers all models)")

    def key(self, row: InputRow) -> str:
        """Vendors count for each model by itself, and its flex tier may be full while the usual one is not. The key is
        displayed, so a name with control characters is not used."""
        request = row.request()
        model = self._target.model_of(request)[:80]
        tier = "" if self._name else request.tier
        if tier:
            model = f"{model}/{tier}"
        known = self._keys.get(model)
        if known is None:
            key = name = self._name or self._target.endpoint.name
            if model and model.isprintable() and len(self._keys) < MOST_MODELS:
                key = f"{name}/{model}"
                if tier and not self._target.has_own_tiers:
                    self.owners[key] = key.removesuffix(f"/{tier}")
            known = key, self._counts_tokens(key)
            if key != name:
                self._keys[model] = known
        key, row.counts_tokens = known
        return key

    def cost(self, row: InputRow) -> Cost:
        """Tokens are estimated only where they must fit something: it takes longer than all else about a row. Its
        ``key`` is asked for first, and says whether they must."""
        return self._target.cost(row) if row.counts_tokens else 1


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
        self._fallbacks = tuple(fallbacks)
        self.has_fallbacks = bool(self._fallbacks)
        self.accepts = accepted_reasons(self._fallbacks)
        self.targets = [Target(to, prices=prices)] + [
            Target(to.for_fallback(one), prices=prices, fallback=one) for one in self._fallbacks
        ]
        self.for_run(run_id)
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

    def keys(self, row: InputRow) -> list[str]:
        """The row's key at each target."""
        return [validator.key(row) for validator in self._validators]

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
        """See ``Target.for_run``: the id is known once the run's ledger is open."""
        for target in self.targets:
            target.for_run(run_id)

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
