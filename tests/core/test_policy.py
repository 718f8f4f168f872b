"""The list of a gate's policies: each hook is called for the policies that have it, in order; and what a call costs."""

import pytest

from headgate.controllers.fixed import Fixed
from headgate.core.circuit_breaker import Breaker, BreakerSettings
from headgate.core.concurrency import InFlight
from headgate.core.gate_config import GateConfig, local_policies
from headgate.core.policy import HookPlaces, PolicyList, costs_of, requests_of
from headgate.core.quota import Quota


def those_with(hook, policies):
    return [policies.in_order[place] for place in getattr(policies.hooks, hook)]


def policies_of(**config):
    settings = GateConfig(controller=lambda: Fixed(10.0), **config)
    return local_policies(settings, settings.controller(), Breaker(BreakerSettings()), InFlight())


class Bound:
    """A policy with one hook beside ``check``."""

    def check(self, now, demand):
        return None

    def may_object(self):
        return True


def test_known_limits_come_before_the_pace_and_only_where_there_are_any():
    assert policies_of().quotas is None
    policies = policies_of(quotas=(Quota(dimension="tokens", amount=10.0, window=1.0, burst=5.0),))
    assert policies.in_order[-2:] == (policies.quotas, policies.pacer)
    assert those_with("settle", policies) == [policies.quotas]


def test_a_policy_is_in_the_lists_of_the_hooks_that_it_has():
    local, bound = policies_of(), Bound()
    policies = PolicyList(local.circuit, local.hold, (bound,), local.pacer)
    assert bound in policies.in_order
    assert [hook for hook in HookPlaces._fields if bound in those_with(hook, policies)] == ["may_object"]


def test_every_list_has_those_with_its_hook_in_order():
    policies = policies_of()
    for hook in HookPlaces._fields:
        assert those_with(hook, policies) == [one for one in policies.in_order if hasattr(one, hook)]


@pytest.mark.parametrize(
    ("cost", "costs", "requests"),
    [
        (1, {"requests": 1}, 1),
        (2.5, {"requests": 2.5}, 2.5),
        ({"tokens": 9}, {"requests": 1, "tokens": 9}, 1),
        ({"requests": 3, "tokens": 9}, {"requests": 3, "tokens": 9}, 3),
    ],
)
def test_a_call_takes_at_least_one_request(cost, costs, requests):
    assert (costs_of(cost), requests_of(cost)) == (costs, requests)
