"""A Haystack pipeline that decomposes: sub-questions, passages for each, their answers in one call, and the answer."""

import json
from typing import Any

from haystack import Document, Pipeline, component
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret

from benchmarks.peers.asking import SUB_QUESTION, TEMPLATE, api_base, measure, passages

QUESTION = TEMPLATE.format("{{ question }}")
PASSAGES = """{% for pair in pairs %}{{ pair.question }}
{% for document in pair.documents %}- {{ document.content }}
{% endfor %}{% endfor %}"""


def form(name: str, items: dict[str, str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {"type": "array", "items": items}}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}}


def lm(**settings: object) -> OpenAIChatGenerator:
    key = Secret.from_token("none")
    return OpenAIChatGenerator(api_key=key, model="stub", api_base_url=api_base(), generation_kwargs=settings)


@component
class RetrieverOfEach:
    """Retrieves for each sub-question."""

    def __init__(self, retriever: InMemoryBM25Retriever) -> None:
        self.retriever = retriever

    @component.output_types(pairs=list[dict[str, Any]])
    def run(self, replies: list[ChatMessage]) -> dict[str, Any]:
        """The sub-questions with their documents."""
        questions = json.loads(replies[0].text)["questions"]
        return {"pairs": [{"question": q, "documents": self.retriever.run(query=q)["documents"]} for q in questions]}


def pipeline() -> Pipeline:
    store = InMemoryDocumentStore()
    store.write_documents([Document(id=p["id"], content=p["text"]) for p in passages()])
    built = Pipeline()
    built.add_component("ask", ChatPromptBuilder([ChatMessage.from_user(QUESTION)], required_variables="*"))
    built.add_component("decomposer", lm(**form("questions", SUB_QUESTION)))
    built.add_component("retriever", RetrieverOfEach(InMemoryBM25Retriever(store, top_k=5)))
    built.add_component("read", ChatPromptBuilder([ChatMessage.from_user(PASSAGES)], required_variables="*"))
    built.add_component("answerer", lm(**form("answers", {"type": "string"})))
    last = ChatMessage.from_user("{{ replies[0].text }}\n" + QUESTION)
    built.add_component("reason", ChatPromptBuilder([last], required_variables="*"))
    built.add_component("reasoner", lm())
    for source, target in (
        ("ask.prompt", "decomposer.messages"),
        ("decomposer.replies", "retriever.replies"),
        ("retriever.pairs", "read.pairs"),
        ("read.prompt", "answerer.messages"),
        ("answerer.replies", "reason.replies"),
        ("reason.prompt", "reasoner.messages"),
    ):
        built.connect(source, target)
    return built


if __name__ == "__main__":
    decomposing = pipeline()
    measure(lambda question: decomposing.run_async({"ask": {"question": question}, "reason": {"question": question}}))
