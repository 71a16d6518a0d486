"""A Haystack pipeline of the same calls as typedrag's `rag`: BM25 over the same passages, then one LM call."""

import json
import os
from pathlib import Path

from hayhooks import BasePipelineWrapper
from haystack import Document, Pipeline
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret

TEMPLATE = """[[ ## passages ## ]]
{% for document in documents %}[{{ loop.index }}] {{ document.content }}
{% endfor %}
[[ ## question ## ]]
{{ question }}
"""


class PipelineWrapper(BasePipelineWrapper):
    """Answers questions."""

    def setup(self) -> None:
        """Build the pipeline over the passages and the LM server of the environment."""
        lines = Path(os.environ["BENCHMARK_PASSAGES"]).read_text(encoding="utf-8").splitlines()
        store = InMemoryDocumentStore()
        store.write_documents([Document(content=json.loads(line)["text"]) for line in lines])
        pipeline = Pipeline()
        pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=5))
        pipeline.add_component("prompt", ChatPromptBuilder([ChatMessage.from_user(TEMPLATE)], required_variables="*"))
        base = os.environ["TYPEDRAG_API_BASE"]
        llm = OpenAIChatGenerator(api_key=Secret.from_token("EMPTY"), model="stub", api_base_url=base)
        pipeline.add_component("llm", llm)
        pipeline.connect("retriever.documents", "prompt.documents")
        pipeline.connect("prompt.prompt", "llm.messages")
        self.pipeline = pipeline

    async def run_api_async(self, question: str) -> str:
        """The answer to a question."""
        values = {"retriever": {"query": question}, "prompt": {"question": question}}
        result = await self.pipeline.run_async(values)
        return str(result["llm"]["replies"][0].text)
