import math
import random
from collections import Counter
from email.utils import parsedate_to_datetime

import pytest
from bench.lab.random_scenarios import random_scenario

from headgate.lab.scenario import Budget, Limit, Neighbour, Queue, Scenario
from headgate.lab.scenario_file import bundled, named
from headgate.lab.simulated_server import Answer, SimulatedServer
from headgate.mock.quota import ALGORITHMS
from headgate.units import Outage, Rate, Step
from headgate.wire.parse import read

pytestmark = pytest.mark.no_cover

BUCKET = Limit(rate=Rate(10.0), burst=5)
WALL = 1_800_000_000.0


def server(*limits, seed=0, **changes):
    given = {"name": "test", "budgets": (Budget(limits=limits or (BUCKET,)),), **changes}
    return SimulatedServer(Scenario(**given), seed)


def statuses(server, instants, key=0):
    return [server.answer(now, key).status for now in instants]


def obey(server, until, key=0):
    """Call whenever the oracle may, and say what came of it."""
    now, seen = 0.0, Counter()
    while now < until:
        wait = server.free_in(now, key)
        if wait > 0:
            now += wait
            continue
        seen[server.answer(now, key).status] += 1
    return seen


class TestAnswers:
    def test_what_fits_is_served_and_the_rest_refused(self):
        here = server()
        assert statuses(here, [0.0] * 7) == [200] * 5 + [429] * 2
        assert statuses(here, [0.1, 0.15, 0.2]) == [200, 429, 200]

    def test_a_refusal_is_quick_and_says_no_more_than_it_must(self):
        here = server()
        statuses(here, [0.0] * 5)
        assert here.answer(0.0, 0) == Answer(429, 0.002, None, True)

    def test_service_times_have_the_mean_and_the_spread_they_should(self):
        here = server(Limit(rate=Rate(1000.0)), service_time=0.4, service_variation=0.5)
        times = [here.answer(n / 500, 0).after for n in range(20_000)]
        mean = sum(times) / len(times)
        assert mean == pytest.approx(0.4, rel=0.02)
        assert math.sqrt(sum((each - mean) ** 2 for each in times) / len(times)) == pytest.approx(0.2, rel=0.05)

    def test_a_step_changes_the_pace_and_not_the_size_of_a_bucket(self):
        here = server(steps=(Step(0.5, 10.0),))
        assert statuses(here, [20.0] * 6).count(200) == 5
        assert statuses(here, [20 + n / 100 for n in range(1, 1001)]).count(200) == 50

    def test_a_step_holds_for_keys_that_come_later(self):
        here = server(budgets=(Budget(limits=(BUCKET,), keys=2),), steps=(Step(0.5, 10.0),))
        statuses(here, [11.0], key=0)
        assert statuses(here, [20 + n / 100 for n in range(1000)], key=1).count(200) == pytest.approx(55, abs=1)

    def test_in_an_outage_everything_fails_and_nothing_is_spent(self):
        here = server(outages=(Outage(1.0, 2.0),))
        assert here.answer(1.0, 0) == Answer(503, 0.002, None, False)
        assert statuses(here, [2.999] * 9) == [503] * 9
        assert statuses(here, [3.0] * 6) == [200] * 5 + [429]

    def test_a_server_that_hangs_never_answers(self):
        here = server(hangs=(Outage(1.0, 2.0),))
        assert here.answer(1.5, 0) == Answer(0, math.inf, None, False)
        assert here.answer(3.0, 0).status == 200

    def test_flapping_fails_its_share_of_what_was_admitted(self):
        here = server(Limit(rate=Rate(1000.0)), flapping=0.05)
        seen = Counter(here.answer(n / 500, 0).status for n in range(10_000))
        assert seen[500] / 10_000 == pytest.approx(0.05, rel=0.15)
        assert seen[429] == 0

    def test_a_neighbour_takes_while_it_is_there(self):
        here = server(Limit(rate=Rate(60.0), burst=30), neighbour=Neighbour(rate=Rate(30.0), on=40.0, off=40.0))
        crowded = statuses(here, [n / 200 for n in range(8000)]).count(200)
        alone = statuses(here, [40 + n / 200 for n in range(8000)]).count(200)
        assert crowded / 40 == pytest.approx(30, rel=0.1)
        assert alone / 40 == pytest.approx(60, rel=0.03)

    def test_places_are_free_again_when_the_answer_has_gone_out(self):
        here = server(Limit(algorithm="concurrency", at_once=2), service_time=1.0, service_variation=0.0)
        assert statuses(here, [0.0, 0.5, 0.9, 1.0, 1.1, 1.5]) == [200, 200, 429, 200, 429, 200]

    def test_a_key_that_does_not_exist_is_refused_as_a_mistake(self):
        with pytest.raises(ValueError, match="key=1 must be within 0 and 0"):
            server().answer(0.0, 1)

    def test_the_same_seed_gives_the_same_answers(self):
        def answers(seed):
            here = SimulatedServer(named("flap5xx"), seed)
            return [here.answer(n / 60, 0) for n in range(3000)]

        assert answers(4) == answers(4)
        assert answers(4) != answers(5)


class TestQueue:
    QUEUE = Queue(servers=2, room=4)

    def test_calls_wait_for_a_server(self):
        here = server(budgets=(Budget(),), queue=self.QUEUE, service_time=1.0, service_variation=0.0)
        assert [here.answer(0.0, 0).after for _ in range(6)] == pytest.approx([1, 1, 2, 2, 3, 3])

    def test_a_call_that_finds_no_room_is_refused_with_503(self):
        here = server(budgets=(Budget(),), queue=self.QUEUE, service_time=1.0, service_variation=0.0)
        statuses(here, [0.0] * 6)
        assert here.answer(0.0, 0) == Answer(503, 0.002, None, True)
        assert here.answer(1.0, 0).status == 200

    def test_a_thrashing_server_is_slower_the_more_wait(self):
        thrashing = Queue(servers=1, room=10, thrash=0.5)
        here = server(budgets=(Budget(),), queue=thrashing, service_time=1.0, service_variation=0.0)
        assert [here.answer(0.0, 0).after for _ in range(4)] == pytest.approx([1.0, 2.0, 3.5, 5.5])

    def test_a_step_changes_the_speed_of_its_servers(self):
        here = server(
            budgets=(Budget(),), queue=self.QUEUE, service_time=1.0, service_variation=0.0, steps=(Step(0.5, 5.0),)
        )
        assert here.answer(5.0, 0).after == pytest.approx(2.0)


class TestSeveralLimits:
    def test_all_must_agree(self):
        here = server(Limit(rate=Rate(10.0), burst=3), Limit(algorithm="window", rate=Rate(5.0, 60.0), phase=0.0))
        assert statuses(here, [0.0] * 4) == [200, 200, 200, 429]
        assert statuses(here, [10.0] * 3) == [200, 200, 429]
        assert statuses(here, [59.9, 60.0]) == [429, 200]

    def test_what_one_refuses_costs_nothing_of_the_other(self):
        here = server(Limit(rate=Rate(1.0), burst=1), Limit(algorithm="window", rate=Rate(5.0, 60.0), phase=0.0))
        for second in range(5):
            assert statuses(here, [second + 0.0] * 20) == [200] + [429] * 19

    def test_a_strict_log_counts_what_another_limit_refused(self):
        here = server(Limit(rate=Rate(1.0), burst=1), Limit(algorithm="strict-log", rate=Rate(5.0, 60.0)))
        assert statuses(here, [0.0] * 6 + [30.0]) == [200] + [429] * 6

    def test_tokens_are_counted_beside_calls(self):
        tokens = Limit(rate=Rate(6000.0, 60.0), burst=2000, of="tokens")
        here = server(Limit(rate=Rate(10.0)), tokens, tokens=100)
        assert [here.answer(0.0, 0, 900.0).status for _ in range(3)] == [200, 200, 429]
        assert here.answer(0.0, 0, 200.0).status == 200
        assert here.answer(6.9, 0, 700.0).status == 429
        assert here.answer(7.0, 0, 700.0).status == 200


class TestKeys:
    def test_each_has_a_budget_of_its_own(self):
        here = server(budgets=(Budget(limits=(BUCKET,), keys=3),))
        assert [statuses(here, [0.0] * 7, key).count(200) for key in range(3)] == [5, 5, 5]

    def test_or_they_share_one(self):
        here = server(budgets=(Budget(limits=(BUCKET,), keys=3, shared=True),))
        assert statuses(here, [0.0] * 4, key=2) + statuses(here, [0.0] * 4, key=0) == [200] * 5 + [429] * 3

    def test_budgets_follow_one_another(self):
        small, large = Limit(rate=Rate(1.0), burst=1), Limit(rate=Rate(1.0), burst=9)
        here = server(budgets=(Budget(limits=(small,), keys=2), Budget(limits=(large,))))
        assert [statuses(here, [0.0] * 20, key).count(200) for key in range(3)] == [1, 1, 9]

    def test_a_million_keys_cost_nothing_until_they_call(self):
        here = server(budgets=(Budget(limits=(BUCKET,), keys=1_000_000),))
        assert here.answer(0.0, 999_999).status == 200
        assert here.keys == 1_000_000

    def test_how_windows_lie_depends_on_the_seed_and_not_on_the_order_of_calls(self):
        budgets = (Budget(limits=(Limit(algorithm="window", rate=Rate(1.0, 60.0)),), keys=2),)

        def turn(seed, first):
            here = server(budgets=budgets, seed=seed)
            here.answer(0.0, first)
            here.answer(0.0, 0)
            return here.free_in(0.0, 0)

        assert turn(1, first=1) == turn(1, first=0)
        assert len({turn(seed, first=0) for seed in range(5)}) == 5


class TestWords:
    def refusal(self, **changes):
        here = server(Limit(rate=Rate(0.3), burst=1), **changes)
        statuses(here, [0.4])
        return here.answer(0.4, 0)

    @pytest.mark.parametrize(("kind", "says"), [("exact", "4"), ("short", "1"), ("long", "20")])
    def test_retry_after_tells_the_truth_or_not(self, kind, says):
        assert self.refusal(retry_after=kind).headers == {"retry-after": says}

    def test_retry_after_may_be_a_date(self):
        headers = self.refusal(retry_after="date").headers
        told = parsedate_to_datetime(headers["retry-after"]).timestamp()
        assert 3.3 <= told - (WALL + 0.4) <= 4.4
        assert read(429, headers, wall=WALL + 0.4).retry_after == pytest.approx(told - WALL, abs=0.5)

    def test_full_places_say_when_the_first_will_be_free(self):
        limit = Limit(algorithm="concurrency", at_once=1)
        here = server(limit, retry_after="exact", service_time=6.5, service_variation=0.0)
        statuses(here, [0.0])
        assert here.answer(1.0, 0).headers == {"retry-after": "6"}

    def test_the_older_fields_speak_of_what_a_bucket_holds(self):
        here = server(Limit(rate=Rate(50.0), burst=50), headers="ratelimit", steps=(Step(0.5, 10.0),))
        assert here.answer(0.0, 0).headers == {
            "ratelimit-limit": "50",
            "ratelimit-policy": '"default";q=50;w=1',
            "ratelimit-remaining": "49",
            "ratelimit-reset": "1",
        }
        assert here.answer(10.0, 0).headers["ratelimit-policy"] == '"default";q=50;w=2'

    def test_the_older_fields_of_a_log_look_at_its_oldest_call(self):
        here = server(Limit(algorithm="log", rate=Rate(5.0, 60.0)), headers="ratelimit")
        statuses(here, [0.0, 10.0])
        headers = here.answer(20.0, 0).headers
        assert (headers["ratelimit-remaining"], headers["ratelimit-reset"]) == ("2", "40")

    @pytest.mark.parametrize("dialect", ["ratelimit", "ietf", "openai", "anthropic", "github"])
    def test_every_dialect_is_understood_by_our_own_reader(self, dialect):
        here = server(Limit(algorithm="window", rate=Rate(600.0, 60.0), phase=0.0), headers=dialect)
        headers = here.answer(20.0, 0).headers
        assert all(name == name.lower() for name in headers)
        limits = read(200, headers, wall=WALL + 20.0).limits
        assert [limit.remaining for limit in limits if limit.remaining is not None] == [599]
        assert limits[0].reset == pytest.approx(40.0, abs=1.0)

    @pytest.mark.parametrize("dialect", ["openai", "anthropic"])
    def test_chat_dialects_speak_of_tokens_too(self, dialect):
        tokens = Limit(algorithm="window", rate=Rate(9000.0, 60.0), phase=0.0, of="tokens")
        here = server(Limit(algorithm="window", rate=Rate(600.0, 60.0), phase=0.0), tokens, headers=dialect, tokens=100)
        limits = read(200, here.answer(20.0, 0, 700.0).headers, wall=WALL + 20.0).limits
        assert sorted(limit.remaining for limit in limits) == [599, 8000 if dialect == "anthropic" else 8300]

    @pytest.mark.parametrize(
        ("dialect", "names"),
        [
            ("openai", ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"]),
            ("anthropic", [f"anthropic-ratelimit-tokens-{what}" for what in ("limit", "remaining", "reset")]),
        ],
    )
    def test_the_fields_of_tokens_are_the_vendors_own(self, dialect, names):
        tokens = Limit(algorithm="window", rate=Rate(9000.0, 60.0), phase=0.0, of="tokens")
        here = server(Limit(rate=Rate(10.0)), Limit(rate=Rate(100.0, 60.0)), tokens, headers=dialect, tokens=100)
        told = here.answer(20.0, 0, 700.0).headers
        left, reset = ("8300", "40s") if dialect == "openai" else ("8000", "2027-01-15T08:01:00Z")
        assert [told[name] for name in names] == ["9000", left, reset]
        assert len(told) == 6

    def test_the_draft_speaks_of_every_limit_of_calls(self):
        window = Limit(algorithm="window", rate=Rate(600.0, 60.0), phase=0.0)
        here = server(Limit(rate=Rate(10.0)), window, headers="ietf")
        assert here.answer(20.0, 0).headers["ratelimit-policy"] == '"limit-1";q=10;w=1, "limit-2";q=600;w=60'

    def test_a_server_without_limits_has_nothing_to_announce(self):
        here = server(budgets=(Budget(),), queue=Queue(servers=1, room=1), headers="ratelimit")
        assert here.answer(0.0, 0).headers is None

    def test_overload_has_its_dialect(self):
        assert server(outages=(Outage(0.0, 1.0),), headers="anthropic").answer(0.0, 0).status == 529


class TestOracle:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_a_client_that_obeys_is_never_refused_and_gets_the_whole_quota(self, algorithm):
        shape = {"rate": Rate(200.0, 10.0)} if algorithm != "concurrency" else {"at_once": 8}
        burst = {"burst": 5} if algorithm in ("bucket", "gcra") else {}
        here = server(Limit(algorithm=algorithm, **shape, **burst), service_time=0.4, steps=(Step(0.5, 60.0),))
        seen = obey(here, 120.0)
        assert seen[429] == 0
        assert seen[200] == pytest.approx(here.allowed_between(0.0, 120.0), rel=0.03)

    @pytest.mark.parametrize("name", [name for name, each in bundled().items() if each.tokens or "2" in name])
    def test_nor_under_several_limits(self, name):
        scenario = named(name)
        here, rng = SimulatedServer(scenario, 0), random.Random(0)
        now, seen = 0.0, Counter()
        while now < 600.0:
            wait = here.free_in(now, 0)
            now += wait
            if not wait:
                seen[here.answer(now, 0, scenario.draw_tokens(rng)).status] += 1
        assert set(seen) == {200}
        assert seen[200] >= 0.97 * here.allowed_between(0.0, 600.0)

    @pytest.mark.parametrize("number", range(12))
    def test_nor_where_nothing_was_tuned(self, number):
        scenario = random_scenario(number, seed=0)
        assert set(obey(SimulatedServer(scenario, 0), scenario.horizon)) == {200}, scenario

    def test_windows_are_spent_evenly(self):
        here = server(Limit(algorithm="window", rate=Rate(60.0, 60.0), phase=0.0))
        assert here.free_in(0.0, 0) == 0.0
        here.answer(0.0, 0)
        assert here.free_in(0.0, 0) == pytest.approx(1.0)

    def test_it_waits_for_the_end_of_an_outage(self):
        assert server(outages=(Outage(1.0, 5.0),)).free_in(2.0, 0) == pytest.approx(4.0)

    def test_it_comes_to_a_queue_just_before_a_server_is_free(self):
        queue = Queue(servers=1, room=9)
        here = server(budgets=(Budget(),), queue=queue, service_time=1.0, service_variation=0.0)
        here.answer(0.0, 0)
        assert here.free_in(0.0, 0) == pytest.approx(0.75)

    def test_it_knows_how_many_are_served_at_once(self):
        here = server(Limit(algorithm="concurrency", at_once=8), steps=(Step(0.5, 5.0),))
        assert [here.at_once(at, 0) for at in (0.0, 5.0)] == [8, 4]
        assert server().at_once(0.0, 0) == math.inf
