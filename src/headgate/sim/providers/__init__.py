"""Mocks of real search APIs: their requests, their pages, their errors, in their own words.

A new one is one file with one ``ProviderApi``, and one row here.
"""

from __future__ import annotations

from .contract import ProviderApi
from .crossref import Crossref
from .google import Google
from .perplexity import Perplexity
from .semantic_scholar import SemanticScholar
from .tavily import Tavily, TavilyExtract

PROVIDER_APIS: dict[str, ProviderApi] = {
    api.name: api for api in (Tavily(), TavilyExtract(), Google(), Perplexity(), SemanticScholar(), Crossref())
}
