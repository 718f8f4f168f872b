"""What is reserved for a call by what earlier answers took."""

import random

import pytest

from headgate.core.answer_length import MOST_TEMPLATES, AnswerLengths, LengthSketch, TokenCost
from headgate.core.policy import Demand
from headgate.core.quota import Quota, QuotaPolicy, never_fits
from headgate.wire.token_usage import Usage, admitted, template_of


def cost(template=1, allowed=4000, prompt=100, vendor="anthropic"):
    return admitted(vendor, Usage(prompt, allowed), template)


def learned(lengths, template=1, prompt=100):
    known = AnswerLengths()
    for length in lengths:
        known.learn(cost(template), prompt, length)
    return known


def test_all_that_is_allowed_is_reserved_until_an_answer_has_come():
    assert AnswerLengths().answer(cost(), 0, 0.0) == 4000
    one, few, many = (learned([200] * count).answer(cost(), 0, 0.0) for count in (1, 4, 100))
    assert 4000 > one > few > many
    assert many == pytest.approx(200, rel=0.01)


def test_what_calls_in_flight_may_take_beyond_it_is_reserved_above_the_spare():
    known = learned([100, 300] * 100)
    alone, among_others = known.answer(cost(), 0, 0.0), known.answer(cost(), 24, 0.0)
    assert alone > among_others > 200, "together they are off by less, each"
    assert known.answer(cost(), 24, 1e6) == pytest.approx(200, rel=0.02), "within what may be exceeded"


def test_templates_are_learned_apart_and_help_a_new_one():
    known = learned([200] * 50)
    for _ in range(50):
        known.learn(cost(2), 100, 1000)
    assert known.answer(cost(1), 0, 1e6) == pytest.approx(200, rel=0.02)
    assert known.answer(cost(2), 0, 1e6) == pytest.approx(1000, rel=0.02)
    assert 600 < known.answer(cost(3), 0, 1e6) < 1000, "of which nothing is known but the others"


def test_memory_is_bounded():
    known, rng = AnswerLengths(), random.Random(1)
    for number in range(5000):
        known.learn(cost(number), 100, rng.lognormvariate(5, 3))
    assert len(known._templates) == MOST_TEMPLATES
    assert len(known._all._counts) <= 151


def test_quantiles_are_right_within_a_tenth_and_follow_a_change():
    sketch = LengthSketch()
    for length in range(1, 1001):
        sketch.add(length % 500 + 1, None)
    assert sketch.quantile(0.99) == pytest.approx(495, rel=0.11)
    for _ in range(3000):
        sketch.add(20, None)
    assert sketch.p99 == pytest.approx(20, rel=0.11)


def test_prompts_are_corrected_by_what_they_take():
    known = learned([200] * 50, prompt=130)
    assert known.prompt(cost()) == pytest.approx(130, rel=0.05)


def test_a_copy_goes_on_where_it_was():
    known, copy = learned([100, 300] * 20), AnswerLengths()
    copy.load_state(known.to_state())
    assert copy.answer(cost(), 3, 10.0) == known.answer(cost(), 3, 10.0)


# ---------------------------------------------------------------------- in a gate's quotas


def policy(amount=60000.0, dimension="output_tokens", in_flight=()):
    return QuotaPolicy([Quota(dimension=dimension, amount=amount, window=60.0, burst=amount / 10)], in_flight)


class Ticket:
    def __init__(self, asked):
        self.cost, self.sent_at = asked, 0.0


def test_a_quota_reserves_what_is_learned_and_charges_the_rest():
    quotas = policy()
    ticket = Ticket(cost())
    assert quotas.check(0.0, Demand(ticket.cost)) is None
    quotas.admit(ticket, 0.0)
    assert (ticket.cost["output_tokens"], quotas.all[0].quota.burst) == (4000, 1200)
    quotas.settle(ticket, {"input_tokens": 100, "output_tokens": 200})
    assert quotas.all[0].level == 1000, "all that was too much has come back"
    for _ in range(50):
        quotas.settle(Ticket(cost()), {"input_tokens": 100, "output_tokens": 200})
    assert quotas.reserved(cost())["output_tokens"] == pytest.approx(200, rel=0.02)
    assert quotas.reserved(cost()).asked == cost(), "what was asked for is not forgotten"


def test_answers_longer_than_the_burst_widen_it():
    quotas = policy()
    for _ in range(5):
        quotas.reserved(cost())
        quotas.settle(Ticket(cost()), {"output_tokens": 3000})
    assert quotas.all[0].quota.burst == pytest.approx(3000, rel=0.11)


def test_a_burst_that_was_set_stays():
    quotas = QuotaPolicy([Quota(dimension="output_tokens", amount=60000.0, window=60.0, burst=9000)])
    quotas.reserved(cost())
    assert quotas.all[0].quota.burst == 9000


@pytest.mark.parametrize(
    ("vendor", "tokens"), [("anthropic", 300), ("openai", 4000), ("groq", 4100), ("azure-openai", 4100), ("", 4100)]
)
def test_max_tokens_stays_reserved_where_the_vendor_counts_it(vendor, tokens):
    quotas = policy(dimension="tokens")
    for _ in range(200):
        quotas.reserved(cost(vendor=vendor))
        quotas.settle(Ticket(cost(vendor=vendor)), {"input_tokens": 100, "output_tokens": 200})
    assert quotas.reserved(cost(vendor=vendor))["tokens"] == pytest.approx(tokens, rel=0.02)


def test_an_allowance_above_the_limit_is_no_cost_that_never_fits():
    quotas = [Quota(dimension="output_tokens", amount=3000.0, window=60.0, burst=300)]
    assert never_fits(quotas, cost()) is None
    assert never_fits(quotas, {"output_tokens": 4000}) is quotas[0]
    assert QuotaPolicy(quotas).reserved(cost())["output_tokens"] == 3000


def test_what_was_learned_is_packed():
    quotas, copy = policy(), policy()
    quotas.reserved(cost())
    quotas.settle(Ticket(cost()), {"input_tokens": 90, "output_tokens": 200})
    copy.load_state(quotas.to_state())
    assert copy.reserved(cost()) == quotas.reserved(cost())
    assert (copy.all[0].quota, copy.all[0].is_learned) == (quotas.all[0].quota, True)
    assert TokenCost.__reduce__(cost()) == (dict, (dict(cost()),))


def test_templates_are_told_apart_by_what_shapes_an_answer():
    def body(question="q", **more):
        return {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": question}], **more}

    assert template_of(body("a")) == template_of(body("b"))
    assert len({template_of(one) for one in (body(), body(max_tokens=5), body(tools=[1]), {"system": "x"}, None)}) == 5
