"""Programs that answer questions: typed_rag and its baselines, found by name."""

from typedrag.programs.direct_lm import DirectLM
from typedrag.programs.options import Options, RichRAGOptions, SubQueryOptions
from typedrag.programs.program import Program, build_program, program_class, program_names
from typedrag.programs.rag import RAG
from typedrag.programs.rag_fusion import RAGFusion
from typedrag.programs.richrag import RichRAG
from typedrag.programs.typed_rag import TypedRAG

__all__ = [
    "RAG",
    "DirectLM",
    "Options",
    "Program",
    "RAGFusion",
    "RichRAG",
    "RichRAGOptions",
    "SubQueryOptions",
    "TypedRAG",
    "build_program",
    "program_class",
    "program_names",
]
