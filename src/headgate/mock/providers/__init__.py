"""Mocks of real search APIs: their requests, their pages, their errors, in their own words.

A new one is one file with one ``ProviderApi``, and one row here.
"""

from __future__ import annotations

from .papers import Crossref, SemanticScholar
from .provider_api import ProviderApi
from .search_engines import Google, Perplexity, Tavily, TavilyExtract

PROVIDER_APIS: dict[str, ProviderApi] = {
    api.name: api for api in (Tavily(), TavilyExtract(), Google(), Perplexity(), SemanticScholar(), Crossref())
}
