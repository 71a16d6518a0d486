"""Programs that answer questions: typed_rag and its baselines, found by name."""

from typedrag.programs.coverage import CoverageDefinition, CoverageEndToEnd, CoverageRetrieval, CoverageSubQuestions
from typedrag.programs.direct_lm import DirectLM
from typedrag.programs.options import Options, SubQueryOptions
from typedrag.programs.program import Program, build_program, program_class, program_names
from typedrag.programs.rag import RAG
from typedrag.programs.typed_rag import TypedRAG

__all__ = [
    "RAG",
    "CoverageDefinition",
    "CoverageEndToEnd",
    "CoverageRetrieval",
    "CoverageSubQuestions",
    "DirectLM",
    "Options",
    "Program",
    "SubQueryOptions",
    "TypedRAG",
    "build_program",
    "program_class",
    "program_names",
]
