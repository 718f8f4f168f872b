"""What ``headgate simulate --list`` tells: scenarios by what they are about, strategies, and a file to start from."""

from __future__ import annotations

from headgate.sim.scenario import Scenario

OUR_STRATEGIES = {
    "adaptive": "the default: measures the quota between two refusals, or heeds what the server says of it",
    "aimd": "additive increase, multiplicative decrease, one cut for a burst of refusals",
    "gradient": "slows down when answers take longer than they used to",
    "fixed": "always the configured pace; here the default of 2/s",
    "leaky": "always the configured pace, and nothing at once; here the default of 2/s",
}

YOUR_OWN = """\
note = "half the quota after two minutes, and OpenAI's headers"
horizon = "4min"
workers = 100
limits = [{ algorithm = "bucket", rate = "50/s", burst = 20 }]
steps = ["0.5@2min"]
headers = "openai"

[marks]
drop = "2min"
"""


def group_of(scenario: Scenario) -> str:
    """What a scenario is about, in words; the number before them is for their order."""
    if scenario.processes > 1:
        return "6 Several processes on one quota"
    if scenario.headers != "none":
        return "2 Servers that say what is left"
    changes = (scenario.steps, scenario.outages, scenario.hangs, scenario.flapping, scenario.neighbour)
    if any(changes) or scenario.arrivals:
        return "4 Something changes on the way"
    if scenario.keys > 1 or scenario.tokens or any(len(budget.limits) > 1 for budget in scenario.budgets):
        return "5 Several keys or limits at once"
    if scenario.retry_after != "none":
        return "3 Servers that say when to come back"
    return "1 A quota that stays, and bare 429s"
