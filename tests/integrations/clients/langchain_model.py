"""A chat model of LangChain's that asks a server over HTTP."""

from typing import Any

import requests
from langchain_core.caches import InMemoryCache
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

__all__ = ["InMemoryCache", "Model"]


class Model(BaseChatModel):
    """Asks a server over HTTP, with a client that nobody gates."""

    url: str
    usage: int | None = None

    @property
    def _llm_type(self) -> str:
        return "test"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        answer = requests.post(self.url, json={}, timeout=5)
        answer.raise_for_status()
        usage = None
        if self.usage is not None:
            usage = {"input_tokens": 1, "output_tokens": self.usage - 1, "total_tokens": self.usage}
        message = AIMessage("hi", usage_metadata=usage, response_metadata={"headers": dict(answer.headers)})
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, *_: Any, **__: Any) -> Any:
        for word in ("hi", "there"):
            yield ChatGenerationChunk(message=AIMessageChunk(word))
