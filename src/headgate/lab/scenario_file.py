"""Scenarios as small TOML files, and the ones that come with the package.

    note = "token bucket of 80/s that falls to 30/s; bare 429s"
    horizon = "5min"
    limits = [{ algorithm = "bucket", rate = "80/s", burst = 40 }]      all of them hold at once
    steps = ["0.375@100s"]

    [marks]
    down = "100s"

Fields are those of ``Scenario``. ``limits``, ``keys`` and ``shared`` at the top describe the only budget;
keys with different limits have a ``[[budgets]]`` table each. ``based_on = "tb50"`` starts from a
scenario of the package. Rates, durations and changes are written as on the command line; a bare number is seconds.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ..units import Rate, read_duration, read_outage, read_rate, read_step
from .scenario import Budget, Limit, Mark, Neighbour, Queue, Scenario, Stream

LARGEST_FILE = 65_536
MOST_BASES = 4
"""How many scenarios may stand on one another."""

Reader = Callable[[Any], Any]


class ScenarioError(ValueError):
    """This describes no scenario: which file, which field, and how it is written."""


class _FieldError(ValueError):
    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}" if path else what)
        self.path, self.what = path, what

    def under(self, place: str) -> _FieldError:
        dot = "." if self.path and not self.path.startswith("[") else ""
        return _FieldError(f"{place}{dot}{self.path}", self.what)


def read_scenario(path: Path) -> Scenario:
    """The scenario in a file; raises ``OSError`` or ``ScenarioError``."""
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    return _read(path.stem, str(path), content)


def bundled() -> dict[str, Scenario]:
    """Every scenario that comes with the package, by name."""
    return {name: named(name) for name in bundled_names()}


def bundled_names() -> list[str]:
    names = (file.name for file in _folder().iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def named(name: str) -> Scenario:
    """A scenario that comes with the package; raises ``ScenarioError``."""
    return _read(name, f"{name}.toml", _content(name))


def written(name: str) -> str:
    """The file of such a scenario, with a word on where to read on; raises ``ScenarioError``."""
    text = _content(name).decode()
    base = _parse(text.encode()).get("based_on")
    rest = f"; the rest is in {base}: headgate simulate --show {base}" if base else ""
    return f"# {name}.toml; docs/scenarios.md explains every field{rest}\n{text}"


def _folder() -> Traversable:
    return files("headgate.lab") / "scenarios"


def _content(name: str) -> bytes:
    names = bundled_names()
    if name not in names:
        raise ScenarioError(f"unknown scenario {name!r}{_closest(name, names)}; known are {', '.join(names)}")
    return (_folder() / f"{name}.toml").read_bytes()


def _read(name: str, source: str, content: bytes) -> Scenario:
    try:
        table = _with_bases(_parse(content))
        return _scenario(name, table)
    except ValueError as error:
        raise ScenarioError(f"{source}: {error}") from None


def _parse(content: bytes) -> dict[str, Any]:
    if len(content) > LARGEST_FILE:
        raise ValueError(f"larger than {LARGEST_FILE:,} bytes; a scenario is a small file")
    try:
        return tomllib.loads(content.decode())
    except (UnicodeDecodeError, RecursionError):
        raise ValueError("not TOML, which is text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not TOML: {error}") from None


def _with_bases(table: dict[str, Any]) -> dict[str, Any]:
    """The table with everything it does not say itself taken from what it is based on."""
    for _ in range(MOST_BASES):
        if "based_on" not in table:
            return table
        own = dict(table)
        base = _parse(_content(_text(own.pop("based_on"))))
        if {"limits", "budgets"} & own.keys():
            base = {name: value for name, value in base.items() if name not in ("limits", "budgets", "keys", "shared")}
        table = base | own
    raise ValueError(f"based_on: more than {MOST_BASES} scenarios are based on one another")


def _scenario(name: str, table: dict[str, Any]) -> Scenario:
    known = _fields(table, _SCENARIO, "a scenario")
    lone = {field: known.pop(field) for field in ("limits", "keys", "shared") if field in known}
    if lone and "budgets" in known:
        raise _FieldError(next(iter(lone)), "set this in each of the [[budgets]], or remove them")
    known.setdefault("budgets", (Budget(**lone),))
    return Scenario(name=name, **known)


def _fields(table: Any, readers: Mapping[str, Reader], what: str) -> dict[str, Any]:
    """Every value of a table as its field wants it."""
    if not isinstance(table, dict):
        raise ValueError(f"{_shown(table)} is not a table; {what} is written {{ {next(iter(readers))} = ... }}")
    values = {}
    for name, value in table.items():
        if name not in readers:
            hint = _closest(name, readers)
            raise _FieldError("", f"unknown field {name!r}{hint}; {what} has {', '.join(readers)}")
        values[name] = _at(name, readers[name], value)
    return values


def _at(place: str, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except _FieldError as error:
        raise error.under(place) from None
    except ValueError as error:
        raise _FieldError(place, str(error)) from None


def _closest(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, list(names), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not text; write it in quotes")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} must be true or false")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{_shown(value)} is not a number")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{_shown(value)} is not a whole number")
    return value


def _duration(value: Any) -> float:
    return _number(value) if isinstance(value, int | float) else read_duration(_text(value))


def _rate(value: Any) -> Rate:
    return read_rate(str(value))


def _stream(value: Any) -> Stream:
    rate, at_sign, at = _text(value).partition("@")
    if not at_sign:
        raise ValueError(f"{value!r} is not a stream; write 20/s@0s for 20 a second from the start on")
    return Stream(read_rate(rate), read_duration(at))


def _each(read: Reader) -> Reader:
    def read_all(values: Any) -> tuple[Any, ...]:
        if not isinstance(values, list):
            raise ValueError(f"{_shown(values)} is not a list; write it in [ ]")
        return tuple(_at(f"[{number}]", read, value) for number, value in enumerate(values, 1))

    return read_all


def _made(make: Callable[..., Any], readers: Mapping[str, Reader], what: str) -> Reader:
    def read(table: Any) -> Any:
        known = _fields(table, readers, what)
        try:
            return make(**known)
        except TypeError:
            missing = next(name for name in readers if name not in known)
            raise _FieldError(missing, f"{what} needs it") from None

    return read


def _marks(table: Any) -> tuple[Mark, ...]:
    if not isinstance(table, dict):
        raise ValueError(f'{_shown(table)} is not a table; write [marks] and below it: start = "0s"')
    return tuple(Mark(name, _at(name, _duration, at)) for name, at in table.items())


_LIMIT: dict[str, Reader] = {
    "algorithm": _text,
    "rate": _rate,
    "burst": _number,
    "at_once": _whole,
    "phase": _duration,
    "of": _text,
}
_BUDGET: dict[str, Reader] = {
    "limits": _each(_made(Limit, _LIMIT, "a limit")),
    "keys": _whole,
    "shared": _flag,
}
_SCENARIO: dict[str, Reader] = {
    "note": _text,
    "horizon": _duration,
    **_BUDGET,
    "budgets": _each(_made(Budget, _BUDGET, "a budget")),
    "steps": _each(lambda text: read_step(_text(text))),
    "outages": _each(lambda text: read_outage(_text(text))),
    "hangs": _each(lambda text: read_outage(_text(text))),
    "flapping": _number,
    "neighbour": _made(Neighbour, {"rate": _rate, "on": _duration, "off": _duration}, "a neighbour"),
    "queue": _made(Queue, {"servers": _whole, "room": _whole, "thrash": _number}, "a queue"),
    "service_time": _duration,
    "service_variation": _number,
    "retry_after": _text,
    "retry_after_long": _duration,
    "headers": _text,
    "round_trip": _duration,
    "jitter": _number,
    "workers": _whole,
    "processes": _whole,
    "starts": _each(_duration),
    "together": _flag,
    "timeout": _duration,
    "arrivals": _each(_stream),
    "arrive_together": _whole,
    "tokens": _number,
    "tokens_variation": _number,
    "marks": _marks,
    "settling": _duration,
}


# -- a scenario in one line: its own note, or what its fields say

MOST_TOLD = 3
"""Of more limits, budgets or changes than this, only their number is told."""

KINDS = {
    "bucket": "token bucket",
    "gcra": "GCRA",
    "window": "fixed window",
    "log": "sliding log",
    "strict-log": "strict sliding log",
}


def about(scenario: Scenario) -> str:
    return scenario.note or "; ".join(_facts(scenario))


def _facts(scenario: Scenario) -> Iterator[str]:
    if any(budget.limits for budget in scenario.budgets):
        yield _few([_budget(budget) for budget in scenario.budgets], "budgets", " beside ")
    if scenario.queue:
        yield f"{scenario.queue.servers:,} servers behind a queue for {scenario.queue.room:,}"
    if scenario.steps:
        yield _few([f"x{step.factor:g} from {step.at:g} s" for step in scenario.steps], "steps")
    for name, troubles in (("outage", scenario.outages), ("hang", scenario.hangs)):
        if troubles:
            told = [f"{name} from {trouble.at:g} to {trouble.until:g} s" for trouble in troubles]
            yield _few(told, f"{name}s")
    if scenario.flapping:
        yield f"{scenario.flapping:.3g} of the calls fail"
    if scenario.neighbour:
        yield f"a neighbour of {scenario.neighbour.rate}"
    if scenario.arrivals:
        yield "work at " + _few([f"{stream.rate} from {stream.at:g} s" for stream in scenario.arrivals], "rates")
    said = [f"{scenario.headers} headers"] if scenario.headers != "none" else []
    said += [f"Retry-After ({scenario.retry_after})"] if scenario.retry_after != "none" else []
    yield " and ".join(said) or "bare 429s"


def _budget(budget: Budget) -> str:
    limits = _few([_limit(limit) for limit in budget.limits], "limits", " and ")
    if budget.keys == 1:
        return limits
    return f"{budget.keys:,} keys {'that share' if budget.shared else 'with each'} {limits}"


def _limit(limit: Limit) -> str:
    if limit.rate is None:
        return f"{limit.at_once:,} at once"
    burst = f", burst {limit.burst:g}" if limit.burst is not None else ""
    return f"{KINDS[limit.algorithm]} of {limit.rate}{' tokens' if limit.of == 'tokens' else ''}{burst}"


def _few(told: list[str], what: str, between: str = ", ") -> str:
    return between.join(told) if len(told) <= MOST_TOLD else f"{len(told):,} {what}"
