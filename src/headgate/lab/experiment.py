"""Run one strategy through one scenario in virtual time, and keep its result.

    run(scenario, "adaptive", seed)          the real limiter, one per process
    run(scenario, "cubic", seed)             a published controller
    run(scenario, "adaptive+cubic", seed)    side by side against one quota, the processes taking them in turn

The same arguments give the same ``Run`` to the byte: the server, the network, the items and every
client draw from random streams of their own, all of them named after the scenario and the seed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from ..config import RateLimitConfig
from ..controllers import CONTROLLERS, is_controller
from ..controllers.adaptive.trace import Step, TraceEvent
from ..core.gate import Gate
from ..formatting import format_number
from . import virtual_time
from .adapters import LAB_CONFIG, plug_shared
from .baselines import BASELINES, ClientSetup, Contract
from .clients import Client, ContractClient, LimiterClient
from .measures import BIN, Decision, Run, Sample
from .scenario import Scenario
from .simulated_server import SimulatedServer
from .traffic import Backlog, Network, RunContext
from .virtual_time import LoopClock, VirtualLoop

OURS = tuple(CONTROLLERS)
"""Strategies that are run by the real limiter, or by one real gate for all processes that are together."""


def strategies_of(strategy: str) -> list[str]:
    """The single strategies of ``a`` or ``a+b``; ``ValueError`` names one that is not known."""
    names = strategy.split("+")
    for name in names:
        if name not in BASELINES and not is_controller(name):
            raise ValueError(f"strategy {name!r} must be one of {', '.join([*OURS, *BASELINES])}")
    return names


def run(
    scenario: Scenario,
    strategy: str,
    seed: int,
    *,
    watch: bool = False,
    config: RateLimitConfig = LAB_CONFIG,
    server: SimulatedServer | None = None,
) -> Run:
    """Simulate ``scenario`` from 0 to its horizon.

    With ``watch`` the run also gets a sample for each half second and the controllers' decisions. ``config`` is for our
    strategies, each of which takes the place of the one it names. ``server`` takes the calls, if it is not to be the
    scenario's own.
    """
    names = strategies_of(strategy)
    if len(names) > 1:
        scenario = _with_processes(scenario, max(2, scenario.processes, len(names)))
    experiment = _Experiment(scenario, names, seed, watch, config, server or SimulatedServer(scenario, seed))
    virtual_time.run(experiment.main)
    return experiment.result


def _with_processes(scenario: Scenario, processes: int) -> Scenario:
    """The same with this many processes or more; those that come on top start at once."""
    starts = scenario.starts and (*scenario.starts, *[0.0] * (processes - scenario.processes))
    return replace(scenario, processes=processes, starts=starts)


class _Experiment:
    def __init__(
        self,
        scenario: Scenario,
        names: Sequence[str],
        seed: int,
        watch: bool,
        config: RateLimitConfig,
        server: SimulatedServer,
    ) -> None:
        self.scenario, self.seed, self.watch, self.config, self.server = scenario, seed, watch, config, server
        self.strategies = [names[process % len(names)] for process in range(scenario.processes)]
        marks = {mark.name: mark.at for mark in scenario.marks}
        changes = [change.at for kind in (scenario.steps, scenario.outages, scenario.hangs) for change in kind]
        self.result = Run(
            scenario=scenario.name,
            strategy="+".join(names),
            seed=seed,
            horizon=scenario.horizon,
            starts=scenario.starts or (0.0,) * scenario.processes,
            marks=marks,
            changes_at=tuple(sorted({*marks.values(), *changes})),
            window=scenario.settling,
        )
        self.clients: list[Client] = []

    async def main(self, clock: LoopClock) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.over: asyncio.Future[None] = loop.create_future()
        loop.set_exception_handler(lambda _, context: self._fail(context))
        network = Network(loop, clock, self.server, self.scenario, self.result, self._rng("net"))
        backlog = Backlog(loop, clock, self.scenario, self._rng("items"))
        self.context = RunContext(self.scenario, loop, clock, network, backlog)
        shared = self._shared_contracts() if self.scenario.together else {}
        for process, start in enumerate(self.result.starts):
            for client in self._clients(process, shared.get(process)):
                self.clients.append(client)
                loop.call_at(start, client.start)
        if self.watch:
            self._sample()
        loop.call_at(math.nextafter(self.scenario.horizon, math.inf), self.over.set_result, None)
        await self.over
        allowed, bins = self.server.allowed_between, range(len(self.result.admitted_per_bin))
        self.result.allowed_per_bin = [allowed(number * BIN, (number + 1) * BIN) for number in bins]

    def _clients(self, process: int, shared: list[Contract] | None) -> list[Client]:
        """The clients of one process, none of them started."""
        name, scenario = self.strategies[process], self.scenario
        rng = self._rng(f"client{process}")
        if shared is not None:
            return [ContractClient(self.context, process=process, contracts=shared, workers=scenario.workers)]
        if name not in BASELINES:
            return [
                LimiterClient(
                    self.context,
                    process=process,
                    config=replace(self.config, strategy=name),
                    rng=rng,
                    tell=partial(self._note, process) if self.watch else None,
                    failed=self._stop,
                )
            ]
        baseline = BASELINES[name]
        setup = ClientSetup(
            processes=scenario.processes,
            workers=scenario.workers,
            keys=self.server.keys,
            rng=rng,
            nominal=scenario.nominal,
            server=self.server,
        )
        return [
            ContractClient(
                self.context, process=process, contracts=contracts, workers=workers, foreseen=baseline.foresees
            )
            for contracts, workers in baseline.make(setup)
        ]

    def _shared_contracts(self) -> dict[int, list[Contract]]:
        """For each process that is together with others, its contract for each key: one gate behind all of them."""
        contracts: dict[int, list[Contract]] = {}
        for name in dict.fromkeys(self.strategies):
            if name in BASELINES:
                continue
            members = [process for process, own in enumerate(self.strategies) if own == name]
            for key in range(self.server.keys):
                clients = plug_shared(name, len(members), self.seed * self.server.keys + key, self.config)
                if self.watch:
                    clients[0].gate.controller.listen(partial(self._note, members[0], key))
                for process, client in zip(members, clients, strict=True):
                    contracts.setdefault(process, []).append(client)
        return contracts

    def _note(self, process: int, key: int, now: float, event: TraceEvent) -> None:
        self.result.note_decision(Decision(now, process, key, event.kind, decision_text(event)))

    def _sample(self) -> None:
        statuses = [client.status() for client in self.clients]
        learned: dict[Gate, float] = {}
        for status in statuses:
            learned.update(status.learned)
        sample = Sample(
            at=self.context.clock.time,
            learned=math.fsum(learned.values()) if learned else None,
            in_flight=sum(status.in_flight for status in statuses),
            waiting=len(self.context.backlog) + sum(status.waiting for status in statuses),
            reason=next((status.reason for status in statuses if status.reason), ""),
        )
        self.result.samples.append(sample)
        self.context.loop.call_at(len(self.result.samples) * BIN, self._sample)

    def _fail(self, context: dict[str, Any]) -> None:
        """Something raised in a callback: that ends the run instead of being logged."""
        self._stop(context.get("exception") or RuntimeError(context["message"]))

    def _stop(self, error: BaseException) -> None:
        if not self.over.done():
            self.over.set_exception(error)

    def _rng(self, purpose: str) -> Random:
        return Random(f"{self.scenario.name}/{self.seed}/{purpose}")


# ---------------------------------------------------------------------- what the controller decided, in words

_GIVEN_UP = {
    Step.HEADERS_STOPPED: "the headers have stopped",
    Step.HEADERS_USELESS: "the headers are no longer useful",
    Step.HEADERS_WRONG: "the headers do not describe the limit that refused calls",
    Step.NOT_A_CAP: "not a concurrency cap after all",
}


def decision_text(event: TraceEvent) -> str:
    """What an adaptive controller learned or decided: one sentence without a full stop, for pictures and
    ``headgate simulate --explain``."""
    step, numbers = event
    if step in _GIVEN_UP:
        return f"{_GIVEN_UP[step]}; continuing at {_rate(numbers['pace'])}"
    match step:
        case Step.CUT:
            return _cut(**numbers)
        case Step.CUT_AGAIN:
            share = f"{numbers['refused']:.0f} of {numbers['sent']} refused right after a cut"
            return f"{share}: down to {_rate(numbers['pace'])}"
        case Step.FELL_BACK:
            return f"refused while searching: back to {_rate(numbers['pace'])}, measuring on the way up"
        case Step.PROBING:
            held = f"{numbers['age']:.1f} s at {_rate(numbers['quota'])}"
            return f"{held}: probing at {_rate(numbers['pace'])} for more"
        case Step.CLIMBING:
            return f"more than {_rate(numbers['quota'])} admitted: the quota has grown, searching upwards"
        case Step.BLOCKED:
            why = f"asked to wait {numbers['floor']:g} s" if numbers["floor"] else "no call is admitted"
            return f"{why}: a probe in {numbers['seconds']:.2f} s"
        case Step.RESUMED:
            return f"a probe was admitted after {numbers['blocked_for']:.2f} s"
        case Step.LEARNED_WINDOW:
            window, penalty = numbers["window"], numbers["penalty"]
            what = f"counts over about {window:.3g} s" if window else f"blocks for {penalty:.3g} s"
            quota = _rate(numbers["quota"])
            return f"blocked for {numbers['blocked_for']:.3g} s: the server {what}, {quota} on average"
        case Step.LEARNED_LOG:
            held = f"{numbers['calls']:.4g} calls in the last {numbers['window']:g} s"
            return f"refused as before with {held}: that is the quota; continuing at {_rate(numbers['new_pace'])}"
        case Step.SHARED:
            return "measurements of the quota vary: other clients use it too; yielding"
        case Step.NOT_SHARED:
            return "measurements of the quota agree: no other client uses it now"
        case Step.FOLLOWING_HEADERS:
            return f"the headers state what remains of {numbers['limit']:g}: following them"
        case Step.CAPPED:
            return f"always refused with {numbers['cap']} in flight: a concurrency cap, staying below it"
        case _:
            return f"latency doubled without more throughput: at most {numbers['cap']:.0f} in flight"


def _cut(
    pace: float,
    calls: float,
    span: float,
    silence: float,
    measured: float,
    quota: float,
    rough: float,
    shared: float,
    new_pace: float,
) -> str:
    found = f"{calls:.0f} admitted in the {span:.3g} s since the last refusal, {_rate(calls / span)}"
    if silence >= 0.05 * span:
        found += f" with {min(silence, span):.2g} s of silence"
    if shared:
        made = "other clients share this quota, so a part is released"
    elif measured:
        made = f"the quota is {'about ' if rough else ''}{_rate(quota)}"
    else:
        found, made = "too few admitted to measure", f"assuming {_rate(quota)}"
    return f"refused at {_rate(pace)}; {found}: {made}; continuing at {_rate(new_pace)}"


def _rate(calls: float) -> str:
    return f"{format_number(calls)}/s"
