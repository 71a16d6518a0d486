"""Programs that answer questions: typed_rag and its baselines, found by name."""

from typedrag.programs.direct_lm import DirectLM
from typedrag.programs.options import Options, PreQRAGOptions, SubQueryOptions
from typedrag.programs.preqrag import PreQRAG
from typedrag.programs.program import Program, build_program, program_class, program_names
from typedrag.programs.rag import RAG
from typedrag.programs.typed_rag import TypedRAG

__all__ = [
    "RAG",
    "DirectLM",
    "Options",
    "PreQRAG",
    "PreQRAGOptions",
    "Program",
    "SubQueryOptions",
    "TypedRAG",
    "build_program",
    "program_class",
    "program_names",
]
