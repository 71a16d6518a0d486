"""Typed-RAG: answers a question by the strategy of its type."""

from typedrag.programs.typed_rag.program import TypedRAG

__all__ = ["TypedRAG"]
