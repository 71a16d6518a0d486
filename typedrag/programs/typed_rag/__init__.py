"""Typed-RAG: answers a question by the strategy of its type."""
