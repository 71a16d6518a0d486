"""Programs that answer questions: typed_rag, the systems of the papers and the baselines, found by name."""

from typedrag.programs.adaptive_rag import AdaptiveRAG, IRCoT
from typedrag.programs.baselines import RAG, DirectLM, RAGFusion, ReferenceAnswer
from typedrag.programs.coverage import CoverageDefinition, CoverageEndToEnd, CoverageRetrieval, CoverageSubQuestions
from typedrag.programs.hanrag import HANRAG
from typedrag.programs.options import (
    AdaptiveRAGOptions,
    CoverageWeights,
    HANRAGOptions,
    IRCoTOptions,
    Options,
    PreQRAGOptions,
    RichRAGOptions,
    SubQueryOptions,
)
from typedrag.programs.preqrag import PreQRAG
from typedrag.programs.program import Program, build_program, program_class, program_names
from typedrag.programs.richrag import RichRAG
from typedrag.programs.typed_rag.program import TypedRAG

__all__ = [
    "HANRAG",
    "RAG",
    "AdaptiveRAG",
    "AdaptiveRAGOptions",
    "CoverageDefinition",
    "CoverageEndToEnd",
    "CoverageRetrieval",
    "CoverageSubQuestions",
    "CoverageWeights",
    "DirectLM",
    "HANRAGOptions",
    "IRCoT",
    "IRCoTOptions",
    "Options",
    "PreQRAG",
    "PreQRAGOptions",
    "Program",
    "RAGFusion",
    "ReferenceAnswer",
    "RichRAG",
    "RichRAGOptions",
    "SubQueryOptions",
    "TypedRAG",
    "build_program",
    "program_class",
    "program_names",
]
