"""LlamaIndex's SubQuestionQueryEngine over its own BM25."""

from llama_index.core.query_engine import RetrieverQueryEngine, SubQuestionQueryEngine
from llama_index.core.question_gen import LLMQuestionGenerator
from llama_index.core.schema import TextNode
from llama_index.core.tools import QueryEngineTool
from llama_index.llms.openai_like import OpenAILike
from llama_index.retrievers.bm25 import BM25Retriever

from benchmarks.peers.asking import SUB_QUESTION, TEMPLATE, api_base, measure, passages

ITEM = {"type": "object", "properties": {"sub_question": SUB_QUESTION, "tool_name": {"enum": ["passages"]}}}
SCHEMA = {"type": "object", "properties": {"items": {"type": "array", "items": ITEM}}}
FORM = {"type": "json_schema", "json_schema": {"name": "questions", "schema": SCHEMA}}


def lm(**settings: object) -> OpenAILike:
    return OpenAILike(
        model="stub", api_base=api_base(), api_key="none", is_chat_model=True, context_window=32_768, **settings
    )


if __name__ == "__main__":
    nodes = [TextNode(id_=p["id"], text=p["text"]) for p in passages()]
    retriever = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=5)
    tool = QueryEngineTool.from_defaults(
        RetrieverQueryEngine.from_args(retriever, llm=lm(), use_async=True), name="passages", description="passages"
    )
    generator = LLMQuestionGenerator.from_defaults(
        llm=lm(additional_kwargs={"response_format": FORM}),
        prompt_template_str="Tools: {tools_str}\n" + TEMPLATE.format("{query_str}"),
    )
    engine = SubQuestionQueryEngine.from_defaults(
        [tool], llm=lm(), question_gen=generator, use_async=True, verbose=False
    )
    measure(engine.aquery)
