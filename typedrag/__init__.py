"""typedrag answers non-factoid questions over a document collection, by the type of the question."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Otherwise DSPy looks for its price catalogue on the internet at the first call.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

if TYPE_CHECKING:
    from typedrag.core.errors import TypedRAGError
    from typedrag.core.question_types import QuestionType
    from typedrag.core.records import Answer, Answered, Passage
    from typedrag.experiments.loading import load_program
    from typedrag.lms.lm import open_lm, use_lm
    from typedrag.programs import RAG, DirectLM, Options, TypedRAG, build_program
    from typedrag.retrieval import BM25Retriever, open_reranker, open_retriever

__version__ = "0.1.0"

# Imported at first use: `import typedrag` and `typedrag --help` must not wait for DSPy.
_HOMES = {
    **dict.fromkeys(("Answer", "Answered", "Passage"), "core.records"),
    **dict.fromkeys(("BM25Retriever", "open_reranker", "open_retriever"), "retrieval"),
    **dict.fromkeys(("DirectLM", "Options", "RAG", "TypedRAG", "build_program"), "programs"),
    **dict.fromkeys(("open_lm", "use_lm"), "lms.lm"),
    "QuestionType": "core.question_types",
    "TypedRAGError": "core.errors",
    "load_program": "experiments.loading",
}

__all__ = [
    "RAG", "Answer", "Answered", "BM25Retriever", "DirectLM", "Options", "Passage", "QuestionType", "TypedRAG",
    "TypedRAGError", "build_program", "load_program", "open_lm", "open_reranker", "open_retriever", "use_lm",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'typedrag' has no attribute '{name}'")
    from typedrag.core.extras import name_missing_extras

    with name_missing_extras():
        return getattr(import_module(f"typedrag.{_HOMES[name]}"), name)
