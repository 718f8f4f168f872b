"""What a key of the mock may do, as it is typed: ``60/min,burst=20,tokens=30000/min,per-day=500,0.5@10s``."""

from __future__ import annotations

from headgate.sim.api import MockPlan
from headgate.sim.notation import read_rate, read_step, read_whole_number


def read_key(text: str) -> MockPlan:
    """Calls come first; their burst, tokens, the day and any number of steps may follow in any order."""
    rate, *others = text.split(",")
    named = dict(other.split("=", 1) for other in others if "=" in other)
    steps = tuple(read_step(other) for other in others if "=" not in other)
    burst, tokens, per_day = (named.pop(name, None) for name in ("burst", "tokens", "per-day"))
    if named:
        raise ValueError(f"{next(iter(named))!r} is nothing a key has; write burst=20, tokens=30000/min or per-day=500")
    try:
        calls = read_rate(rate)
    except ValueError:  # not repeated: it may be an API key in the wrong place
        raise ValueError("it is what the key may do: write 50/s, 600/min or 200/10s first") from None
    return MockPlan(
        rate=calls,
        burst=None if burst is None else read_whole_number(burst),
        tokens=None if tokens is None else read_rate(tokens),
        per_day=None if per_day is None else read_whole_number(per_day),
        steps=steps,
    )
