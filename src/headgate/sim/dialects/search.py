"""Search APIs, in the words that their mocks use too: nothing is announced, and most refusals say no more than 429."""

from __future__ import annotations

from ..providers.contract import ProviderApi
from ..providers.perplexity import Perplexity
from ..providers.semantic_scholar import SemanticScholar
from ..providers.tavily import Tavily
from ..quota import Standing
from ..reply import Reply
from .contract import Dialect, says_nothing, whole_seconds


def _spoken_by(api: ProviderApi) -> Dialect:
    def refuse(unit: str, standing: Standing, wall: float) -> Reply:
        return api.refuse("rate_limited", retry_after=whole_seconds(standing.retry))

    return Dialect(says_nothing, refuse, api.refuse("unavailable"))


TAVILY = _spoken_by(Tavily())
PERPLEXITY = _spoken_by(Perplexity())
SEMANTIC_SCHOLAR = _spoken_by(SemanticScholar())
