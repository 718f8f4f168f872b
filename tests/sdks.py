"""The vendors' SDKs, imported when a test first uses them: together they take three seconds, in each worker."""

from importlib import import_module
from typing import Any


class LazyModule:
    """A module that is imported when something is taken from it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for some at everything in a module
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


anthropic = LazyModule("anthropic")
openai = LazyModule("openai")
langchain = LazyModule("headgate.integrations.langchain")
