"""Search APIs behind one interface: real requests and answers, typed results, every call through the gate.

    async with TavilyProvider(api_key) as tavily:
        for found in await tavily.search("rate limits", max_results=5):
            print(found.title, found.url)

A new provider is one file: a subclass of ``SearchProvider`` with ``ask`` and ``read``.
"""

from .base import Question, Request, SearchProvider
from .crossref import CrossrefProvider
from .google import GoogleProvider
from .perplexity import PerplexityProvider
from .results import Page, SearchResult
from .semantic_scholar import SemanticScholarProvider
from .tavily import Extraction, TavilyExtractProvider, TavilyProvider

PROVIDERS: dict[str, type[SearchProvider]] = {
    provider.name: provider
    for provider in (
        TavilyProvider,
        TavilyExtractProvider,
        GoogleProvider,
        PerplexityProvider,
        SemanticScholarProvider,
        CrossrefProvider,
    )
}
"""Every provider by its name."""

__all__ = [
    "PROVIDERS",
    "CrossrefProvider",
    "Extraction",
    "GoogleProvider",
    "Page",
    "PerplexityProvider",
    "Question",
    "Request",
    "SearchProvider",
    "SearchResult",
    "SemanticScholarProvider",
    "TavilyExtractProvider",
    "TavilyProvider",
]
