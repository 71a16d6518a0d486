"""What an answer should cover, and what a text covers of it: asked by metrics, and within programs."""

from typedrag.sub_questions.coverage_judge import (
    Cite,
    Coverage,
    CoverageJudge,
    SentenceCoverageJudge,
    build_coverage_judge,
)
from typedrag.sub_questions.decomposition import SubQuestionDecomposer, SubQuestionTyper

__all__ = [
    "Cite",
    "Coverage",
    "CoverageJudge",
    "SentenceCoverageJudge",
    "SubQuestionDecomposer",
    "SubQuestionTyper",
    "build_coverage_judge",
]
