"""Mocks of language models' APIs: their requests, their streams, their limits, in their own words.

A new one is one file with one ``LanguageApi``, and one row here.
"""

from __future__ import annotations

from .anthropic import Anthropic
from .language_api import LanguageApi
from .openai import OpenAI

LANGUAGE_APIS: dict[str, LanguageApi] = {api.name: api for api in (OpenAI(), Anthropic())}
