"""What an answer should cover, and what a text covers of it: asked by metrics, and within programs."""

from typedrag.sub_questions.coverage_judge import (
    AnyCoverageJudge,
    Coverage,
    CoverageJudge,
    SentenceCoverageJudge,
)
from typedrag.sub_questions.coverage_judges import (
    CascadeCoverageJudge,
    Cite,
    SimilarityCoverageJudge,
    build_coverage_judge,
)
from typedrag.sub_questions.decomposition import SubQuestionDecomposer, SubQuestionTyper

__all__ = [
    "AnyCoverageJudge",
    "CascadeCoverageJudge",
    "Cite",
    "Coverage",
    "CoverageJudge",
    "SentenceCoverageJudge",
    "SimilarityCoverageJudge",
    "SubQuestionDecomposer",
    "SubQuestionTyper",
    "build_coverage_judge",
]
