"""PreQRAG: questions to one document or to many, rewritten for each kind of search."""

from typedrag.programs.preqrag.program import PreQRAG

__all__ = ["PreQRAG"]
