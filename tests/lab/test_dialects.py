"""Servers that speak, in every dialect: where limit, remaining and reset are told, they are followed without refusals.

Some dialects say too little to steer by. There the limiter has to learn the quota from refusals, and may only wait as
long as it is told to. Why each of them is too vague stands beside it.
"""

from functools import cache
from itertools import pairwise

import pytest

from headgate.lab.adapters import plug
from headgate.lab.experiment import run
from headgate.lab.scenario import Budget, Limit, Scenario
from headgate.lab.simulated_server import SimulatedServer
from headgate.mock.dialects import DIALECTS
from headgate.units import Outage, Rate

pytestmark = pytest.mark.no_cover

SEED = 1
WINDOW = Limit(algorithm="window", rate=Rate(600.0, 60.0), phase=0.0)
BUCKET = Limit(rate=Rate(30.0), burst=30)

STEERED = (
    "ratelimit", "x-ratelimit", "ietf", "ietf-one-field", "openai", "azure-openai", "anthropic", "github", "gitlab",
    "reddit", "discord", "cloudflare",
)  # fmt: skip
VAGUE = {
    "none": "nothing is said",
    "retry-after": "only how long to wait, and only on refusals",
    "retry-after-date": "the same",
    "gemini": "the same, in the body",
    "tavily": "the same",
    "slack": "the same",
    "google-search": "the limit's name, and only on refusals",
    "perplexity": "nothing but the status",
    "semantic-scholar": "nothing but the status",
    "stripe": "which limit it was, and only on refusals",
    "mistral": "limit and remaining, but no reset",
    "shopify": "limit and remaining, but no reset and no window",
    "openrouter": "limit and reset, but not what remains",
    "groq": "of calls only the day's limit, which is too long to spread calls over",
}
WRONG = {"github-secondary": "what is announced is another limit than the one that refuses"}


def scenario(dialect, limit, **changes):
    return Scenario(
        name="following", budgets=(Budget(limits=(limit,)),), headers=dialect, **{"horizon": 120.0} | changes
    )


@cache
def oracle(limit):
    return run(scenario("none", limit), "oracle", SEED)


def judged(dialect, limit):
    """The share of an oracle's calls that were done, and the share of calls that were refused."""
    result = run(scenario(dialect, limit), "adaptive", SEED)
    return result.goodput_against(oracle(limit)), result.refused_share


def test_every_dialect_is_judged():
    missing = set(DIALECTS).symmetric_difference({*STEERED, *VAGUE, *WRONG})
    assert not missing, "can their headers be followed? Put each into STEERED, VAGUE or WRONG above"


CORNERS = ("openai", "discord", "openrouter")
"""Dialects that stand for the others of their kind in a quick run."""


def corners(dialects):
    return [pytest.param(name, marks=[] if name in CORNERS else [pytest.mark.chaos]) for name in dialects]


@pytest.mark.parametrize("limit", [WINDOW, pytest.param(BUCKET, marks=pytest.mark.chaos)], ids=["window", "bucket"])
@pytest.mark.parametrize("dialect", corners(STEERED))
def test_a_server_that_says_what_is_left_is_followed(dialect, limit):
    goodput, refused = judged(dialect, limit)
    assert goodput >= 0.99, f"{goodput:.2%}"
    assert refused <= 0.0005, f"{refused:.2%}"


@pytest.mark.parametrize("dialect", corners(VAGUE))
def test_a_server_that_says_less_is_learned(dialect):
    goodput, refused = judged(dialect, BUCKET)
    assert goodput >= 0.95, f"{goodput:.2%}"
    assert refused <= 0.02, f"{refused:.2%}"


def test_a_server_that_speaks_of_another_limit_is_asked_once_a_minute():
    result = run(scenario("github-secondary", BUCKET), "adaptive", SEED)
    refused_at = [number / 2 for number, count in enumerate(result.refused_per_bin) if count]
    assert refused_at
    assert all(later - at <= 1 or later - at >= 60 for at, later in pairwise(refused_at)), refused_at


@pytest.mark.parametrize("dialect", ["gemini", "openai", "discord"])
def test_a_wait_that_the_body_tells_is_kept(dialect):
    """Windows of 20 calls in 30 s: a refused call comes back in the next one."""
    limit = Limit(algorithm="window", rate=Rate(20.0, 30.0), phase=0.0)
    told, silent = (run(scenario(each, limit, workers=2), "fixed", SEED) for each in (dialect, "none"))
    assert told.refused <= 2 * 4 < silent.refused


def test_a_plugged_strategy_reads_the_body_too():
    here = SimulatedServer(scenario("gemini", Limit(algorithm="window", rate=Rate(1.0, 30.0), phase=0.0)), SEED)
    client = plug("adaptive", SEED)
    assert client.on_send(1.0) == 0.0
    here.answer(1.0, 0)
    refused = here.answer(1.0, 0)
    client.on_response(1.1, refused.status, 0.1, refused.headers, refused.body)
    assert 28.0 <= client.on_send(1.2) <= 32.0


def test_several_processes_behind_one_controller_read_it_as_well():
    limit = Limit(algorithm="window", rate=Rate(20.0, 30.0), phase=0.0)
    shared = {"workers": 2, "processes": 2, "together": True, "horizon": 120.0}
    told, silent = (run(scenario(each, limit, **shared), "adaptive", SEED) for each in ("gemini", "none"))
    assert told.refused < silent.refused


def test_an_error_inside_a_200_is_no_success():
    down = run(scenario("openrouter", BUCKET, outages=(Outage(0.0, 15.0),), horizon=15.0), "adaptive", SEED)
    assert (down.ok, sum(down.admitted_per_bin)) == (0, 0)
    assert down.errors > 0


@pytest.mark.parametrize(("kind", "says"), [("none", 28.0), ("exact", 28.0), ("short", 1.0), ("long", 20.0)])
@pytest.mark.parametrize("dialect", ["gemini", "slack", "discord", "openai"])
def test_a_dialect_tells_the_truth_or_not_as_the_scenario_wants(dialect, kind, says):
    limit = Limit(algorithm="window", rate=Rate(1.0, 30.0), phase=0.0)
    here = SimulatedServer(scenario(dialect, limit, retry_after=kind), SEED)
    here.answer(2.0, 0)
    answer = here.answer(2.0, 0)
    client = plug("fixed", SEED)
    client.on_send(2.0)
    client.on_response(2.0, answer.status, 0.0, answer.headers, answer.body)
    assert client.on_send(2.0) == pytest.approx(says, rel=0.3)
