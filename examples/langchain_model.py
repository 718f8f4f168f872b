"""LangChain models behind one gate: `python langchain_model.py`

    headgate mock --provider openai --rate 600/min --port 8080

Both chains use one HTTP client, so all their calls share one learned rate, and 429s become waits. With langchain-openai
the model is one line: ChatOpenAI(http_client=gate(httpx2.Client()), max_retries=0).
"""

import os
from typing import Any

import httpx2
from langchain_core.language_models import SimpleChatModel
from langchain_core.messages import BaseMessage
from langchain_core.prompts import ChatPromptTemplate

from headgate.integrations.httpx2 import gate

API = os.environ.get("API", "http://127.0.0.1:8080") + "/openai/v1/chat/completions"


class ChatModel(SimpleChatModel):
    """A chat model over an OpenAI-compatible API."""

    client: Any
    model: str = "gpt-4o-mini"

    @property
    def _llm_type(self) -> str:
        return "openai-compatible"

    def _call(self, messages: list[BaseMessage], stop=None, run_manager=None, **_: Any) -> str:
        body = {"model": self.model, "messages": [{"role": "user", "content": one.content} for one in messages]}
        response = self.client.post(API, json=body, headers={"Authorization": "Bearer any-key"})
        response.raise_for_status()
        return response.json()["choices"][0]["message"]["content"]


def main(cities: list[str]) -> list[str]:
    with gate(httpx2.Client(timeout=30)) as client:
        model = ChatModel(client=client)
        describe = ChatPromptTemplate.from_template("One sentence about {city}.") | model
        translate = ChatPromptTemplate.from_template("Translate into Dutch: {text}") | model
        described = describe.batch([{"city": city} for city in cities])  # in threads, all behind the gate
        translated = translate.batch([{"text": one.content} for one in described])
    return [str(one.content) for one in translated]


if __name__ == "__main__":
    for line in main(["Delft", "Leeds", "Kyoto"]):
        print(line)
