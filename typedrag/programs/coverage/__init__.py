"""Four ways to use core sub-questions in RAG."""

from typedrag.programs.coverage.ways import (
    CoverageDefinition,
    CoverageEndToEnd,
    CoverageRetrieval,
    CoverageSubQuestions,
)

__all__ = ["CoverageDefinition", "CoverageEndToEnd", "CoverageRetrieval", "CoverageSubQuestions"]
