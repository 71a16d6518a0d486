"""Typed-RAG: a question is answered the way of its type."""

from typedrag.programs.typed_rag.program import TypedRAG

__all__ = ["TypedRAG"]
