"""What a run of ``bench.batch`` found out, and the tables it becomes."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from bench.report import Section, circumstances, verdict

Figures = dict[str, float]

OURS = "headgate, durable ledger"
ITEMS_PER_SECOND = 10_000
SHARE_OF_BARE = 0.6
PEAK_MB = 150
SECONDS_TO_FIRST_CALL = 3.0
ITEMS_NOTES = [
    "A bare queue keeps nothing: it is what asyncio itself allows, not a way to do it.",
    "Both SQLite stores commit with synchronous=FULL; the ledger also claims each row, with a fence, before it starts.",
]


@dataclass(slots=True)
class BatchReport:
    command: str
    rounds: int
    figures: dict[str, Figures] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return "Batches from end to end"

    def circumstances(self) -> list[str]:
        beside = ", ".join(f"{name} {_version(name)}" for name in ("async-batch-llm", "aiohttp"))
        return [
            circumstances(self.command),
            f"Beside {beside}. Contenders take turns; of {self.rounds} rounds each one's best counts.",
        ]

    def sections(self) -> list[Section]:
        found = []
        if "items" in self.figures:
            found.append(self._items(self.figures["items"]))
        whole = [row for row in (self._http(), self._memory(), self._resume()) if row is not None]
        if whole:
            found.append(Section("Whole jobs", ("job", "measured", "mark", "met"), whole, []))
        return found

    def verdicts(self) -> dict[str, bool]:
        """Each mark by its figure's name, and whether it is met."""
        met = {}
        if items := self.figures.get("items"):
            met["items"] = items[OURS] >= ITEMS_PER_SECOND
        if http := self.figures.get("http"):
            met["http"] = http["headgate"] >= SHARE_OF_BARE * http["bare"]
        if memory := self.figures.get("memory"):
            met["memory"] = memory["peak_mb"] < PEAK_MB
        if resume := self.figures.get("resume"):
            met["resume"] = resume["first_call_seconds"] <= SECONDS_TO_FIRST_CALL
        return met

    def summary(self) -> str:
        verdicts = self.verdicts()
        missed = [name for name, met in verdicts.items() if not met]
        met = f"{len(verdicts) - len(missed)} of {len(verdicts)} marks met."
        return f"{met} Missed: {', '.join(missed)}." if missed else met

    def as_json(self) -> dict[str, object]:
        return {
            "command": self.command,
            "rounds": self.rounds,
            "python": platform.python_version(),
            "versions": {name: _version(name) for name in ("headgate", "async-batch-llm", "aiohttp")},
            "figures": self.figures,
            "marks": self.verdicts(),
        }

    def _items(self, speeds: Figures) -> Section:
        rows = [
            (
                name,
                f"{speed:,.0f}" if speed else "not installed",
                f"{speeds[OURS] / speed:.3g} x" if speed else "",
                f">= {ITEMS_PER_SECOND:,}" if name == OURS else "",
                verdict(self.verdicts()["items"]) if name == OURS else "",
            )
            for name, speed in speeds.items()
        ]
        head = ("50 workers that do nothing", "items/s", "the ledger beside it", "mark", "met")
        return Section("Items a second", head, rows, ITEMS_NOTES)

    def _http(self) -> tuple[str, ...] | None:
        if (speeds := self.figures.get("http")) is None:
            return None
        share = speeds["headgate"] / speeds["bare"]
        told = f"{speeds['headgate']:,.0f}/s, {share:.0%} of a bare aiohttp loop's {speeds['bare']:,.0f}/s"
        title = "over loopback HTTP, file to file"
        return (title, told, f">= {SHARE_OF_BARE:.0%}", verdict(self.verdicts()["http"]))

    def _memory(self) -> tuple[str, ...] | None:
        if (found := self.figures.get("memory")) is None:
            return None
        told = f"{found['peak_mb']:.0f} MB at the most ({found['before_mb']:.0f} before), "
        told += f"{found['rows_per_second']:,.0f} rows/s"
        return (f"{found['rows']:,.0f} rows", told, f"< {PEAK_MB} MB", verdict(self.verdicts()["memory"]))

    def _resume(self) -> tuple[str, ...] | None:
        if (found := self.figures.get("resume")) is None:
            return None
        told = f"{found['first_call_seconds']:.2f} s to the first call"
        title = f"going on with {found['rows']:,.0f} rows, 99 % of them done"
        return (title, told, f"<= {SECONDS_TO_FIRST_CALL:g} s", verdict(self.verdicts()["resume"]))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"
