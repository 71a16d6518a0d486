"""What each module asks of an LM, and nothing else: typed DSPy signatures, one file a concern."""

from typedrag.signatures.aggregation import AggregateReasons, ArrangeSteps, MediatePerspectives
from typedrag.signatures.answering import (
    AnswerComparison,
    AnswerDebate,
    AnswerExperience,
    AnswerFromPassages,
    AnswerFromPerspective,
    AnswerInstruction,
    AnswerReason,
    AnswerSubQuery,
    AnswerWithoutPassages,
    ReplyToRemark,
)
from typedrag.signatures.decomposition import (
    DecomposeInstruction,
    DecomposeReason,
    ExtractKeywords,
    FrameComparison,
    FrameDebate,
)
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.question_type import ClassifyQuestion

__all__ = [
    "AggregateReasons",
    "AnswerComparison",
    "AnswerDebate",
    "AnswerExperience",
    "AnswerFromPassages",
    "AnswerFromPerspective",
    "AnswerInstruction",
    "AnswerReason",
    "AnswerSubQuery",
    "AnswerWithoutPassages",
    "ArrangeSteps",
    "ClassifyQuestion",
    "DecomposeInstruction",
    "DecomposeReason",
    "ExtractKeywords",
    "FrameComparison",
    "FrameDebate",
    "MediatePerspectives",
    "ReplyToRemark",
    "predictor",
]
