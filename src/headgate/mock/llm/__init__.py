"""Mocks of language models' APIs: their requests, their streams, their limits, in their own words.

A new one is one ``LanguageApi``, which is a description, and one row here.
"""

from __future__ import annotations

from .anthropic import ANTHROPIC
from .gemini import GEMINI
from .language_api import LanguageApi
from .openai_vendors import AZURE_OPENAI, GROQ, MISTRAL, OPENAI

LANGUAGE_APIS: dict[str, LanguageApi] = {
    api.name: api for api in (OPENAI, ANTHROPIC, AZURE_OPENAI, GROQ, GEMINI, MISTRAL)
}
