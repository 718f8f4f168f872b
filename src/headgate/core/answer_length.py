"""How long answers are: what is reserved for a call instead of all that its request allows.

    max_tokens 4,000, answers of about 200 tokens ──> after a few answers some 200 are reserved

A vendor that counts what is produced does not care for ``max_tokens``. For each template of a key the lengths of its
answers are kept in a bounded sketch: mean, spread and a histogram by powers of ``STEP``. Reserved is

    the mean + (what is allowed - the mean) / (answers + 1)^2                    while little is known
             + what calls in flight may take beyond it together, above 1 % of the limit, spread over them

so that a window exceeds its limit by 1 % at most, by what answers exceed their estimate. What an answer takes beyond
it is charged when it ends. The prompt's estimate is corrected by the same means: by what prompts have really taken.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from math import ceil, log, sqrt
from typing import Any, Self

MOST_TEMPLATES = 32
"""Kept for each key; of more, the one that was used longest ago is forgotten."""
STEP = 1.1
"""The histogram's resolution: a quantile is right within so much."""
MOST_STEPS = 150
"""... up to more than a million tokens."""
REMEMBERED = 512
"""Answers after which what is older counts half."""
SLOWEST_LEARNING = 1.0 / 100
"""How much the newest answer counts at least for mean and spread; the first ones count in full."""
FROM_OTHERS = 3
"""What the answers to other templates are worth, in answers, to a template that has none yet."""
OVER = 0.01
"""The share of a limit by which answers may exceed their estimates."""
SPREADS = 3.0
"""How many standard deviations the answers in flight may be off together."""
LEAST_RATIO, MOST_RATIO = 0.05, 20.0
"""How far a prompt's estimate may be corrected."""
_STEP_LOG = log(STEP)


class TokenCost(dict[str, float]):
    """What a call takes of each dimension at most, and what of that is an estimate that can be learned."""

    __slots__ = ("answer", "asked", "of_answer", "of_prompt", "prompt", "template")

    def __init__(
        self,
        amounts: Mapping[str, float],
        *,
        prompt: float,
        answer: float,
        of_prompt: frozenset[str],
        of_answer: frozenset[str],
        template: int = 0,
        asked: TokenCost | None = None,
    ) -> None:
        """``prompt`` is part of the dimensions ``of_prompt``, ``answer``, all that is allowed, of ``of_answer``."""
        super().__init__(amounts)
        self.prompt, self.answer = prompt, answer
        self.of_prompt, self.of_answer = of_prompt, of_answer
        self.template = template
        """Calls of the same one get answers of about the same length."""
        self.asked = self if asked is None else asked
        """What was asked for, of one that a gate has replaced by what it reserves."""

    def replaced(self, amounts: Mapping[str, float]) -> TokenCost:
        return TokenCost(
            amounts,
            prompt=self.prompt,
            answer=self.answer,
            of_prompt=self.of_prompt,
            of_answer=self.of_answer,
            template=self.template,
            asked=self.asked,
        )

    @property
    def least(self) -> dict[str, float]:
        """Without the answers, which may turn out to be short."""
        return {name: amount - self.answer if name in self.of_answer else amount for name, amount in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class LengthSketch:
    """The answers to one template."""

    __slots__ = ("_counts", "_total", "answers", "mean", "p99", "ratio", "variance")

    def __init__(self) -> None:
        self.answers = 0
        self.mean = self.variance = self.p99 = 0.0
        self.ratio = 1.0
        """What prompts really take, as a share of their estimate."""
        self._counts: dict[int, float] = {}
        """Answers by their length's power of ``STEP``."""
        self._total = 0.0

    def add(self, length: float, ratio: float | None) -> None:
        self.answers += 1
        share = max(1.0 / self.answers, SLOWEST_LEARNING)
        off = length - self.mean
        self.mean += share * off
        self.variance = (1.0 - share) * (self.variance + share * off * off)
        if ratio is not None:
            self.ratio += share * (min(max(ratio, LEAST_RATIO), MOST_RATIO) - self.ratio)
        power = min(MOST_STEPS, ceil(log(length) / _STEP_LOG)) if length > 1.0 else 0
        self._counts[power] = self._counts.get(power, 0.0) + 1.0
        self._total += 1.0
        if self._total >= REMEMBERED:
            self._counts = {at: count / 2.0 for at, count in self._counts.items() if count >= 1.0}
            self._total = sum(self._counts.values())
        if self.answers < 32 or self.answers % 16 == 0:
            self.p99 = self.quantile(0.99)

    def quantile(self, share: float) -> float:
        """A length that this share of the answers does not exceed, within ``STEP``."""
        above = (1.0 - share) * self._total
        for power in sorted(self._counts, reverse=True):
            above -= self._counts[power]
            if above < 0.0:
                return float(STEP**power)
        return 0.0

    def to_state(self) -> tuple[Any, ...]:
        return self.answers, self.mean, self.variance, self.p99, self.ratio

    @classmethod
    def from_state(cls, state: tuple[Any, ...]) -> Self:
        sketch = cls()
        sketch.answers, sketch.mean, sketch.variance, sketch.p99, sketch.ratio = state
        return sketch


class AnswerLengths:
    """What is known of the answers of one key, by template. Every operation is O(1)."""

    __slots__ = ("_all", "_templates")

    def __init__(self) -> None:
        self._all = LengthSketch()
        self._templates: OrderedDict[int, LengthSketch] = OrderedDict()

    @property
    def p99(self) -> float:
        return self._all.p99

    def learn(self, cost: TokenCost, took_in: float | None, took_out: float) -> None:
        """A call of this cost has taken so many tokens of its prompt and of its answer, as they are counted."""
        sketch = self._templates.get(cost.template)
        if sketch is None:
            sketch = self._templates[cost.template] = LengthSketch()
            if len(self._templates) > MOST_TEMPLATES:
                self._templates.popitem(last=False)
        self._templates.move_to_end(cost.template)
        prompt = cost.asked.prompt
        ratio = None if took_in is None or prompt <= 0.0 else took_in / prompt
        for one in (sketch, self._all):
            one.add(took_out, ratio)

    def reserved(self, cost: TokenCost, limits: Iterable[tuple[str, float]], in_flight: int) -> TokenCost:
        """What the call is likely to take, by what others have taken; never more than a whole window holds.

        ``limits``: the dimensions that are limited, and how much fits into a window; of several the first decides.
        """
        asked, amounts, off = cost.asked, {}, self.prompt(cost) - cost.prompt
        for name, limit in limits:
            if name not in asked or name in amounts:
                continue
            amount = asked[name] + (off if name in asked.of_prompt else 0.0)
            if name in asked.of_answer:
                amount = min(amount + self.answer(asked, in_flight, OVER * limit) - asked.answer, limit)
            amounts[name] = amount
        return asked.replaced({**asked, **amounts})

    def settled(self, cost: object, real: Mapping[str, float]) -> bool:
        """A call of this cost has taken so much. Returns whether anything was learned of answers."""
        if not isinstance(cost, TokenCost) or not cost.answer or "output_tokens" not in real:
            return False
        self.learn(cost, real.get("input_tokens"), real["output_tokens"])
        return True

    def answer(self, cost: TokenCost, in_flight: int, spare: float) -> float:
        """Tokens to reserve for the answer beside so many calls in flight, which may exceed theirs by ``spare``."""
        known = self._templates.get(cost.template)
        sketch, answers = (self._all, min(FROM_OTHERS, self._all.answers)) if known is None else (known, known.answers)
        allowed = cost.answer
        if not answers:
            return allowed
        calls = in_flight + 1
        doubt = max(0.0, allowed - sketch.mean) / (answers + 1) ** 2
        off = max(0.0, SPREADS * sqrt(sketch.variance * calls) - spare) / calls
        return min(allowed, float(sketch.mean + doubt + off))

    def prompt(self, cost: TokenCost) -> float:
        """Tokens to reserve for the prompt."""
        return cost.prompt * self._templates.get(cost.template, self._all).ratio

    def to_state(self) -> tuple[Any, ...]:
        """The moments only, of the templates used last."""
        recent = list(self._templates.items())[-8:]
        return self._all.to_state(), tuple((template, sketch.to_state()) for template, sketch in recent)

    def load_state(self, state: tuple[Any, ...]) -> None:
        own, templates = state
        self._all = LengthSketch.from_state(own)
        self._templates = OrderedDict((template, LengthSketch.from_state(one)) for template, one in templates)
