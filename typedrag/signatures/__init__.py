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
from typedrag.signatures.coverage import (
    AnswerByDefinition,
    AnswerCoveringSubQuestions,
    CombineSubAnswers,
    ReviseAnswer,
)
from typedrag.signatures.decomposition import (
    DecomposeInstruction,
    DecomposeReason,
    ExtractKeywords,
    FrameComparison,
    FrameDebate,
)
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.grading import GradeCorrectness, GradeEquivalence, GradeFaithfulness, GradeRelevance
from typedrag.signatures.linkage import PlaceAmongReferences, RankAmongReferences
from typedrag.signatures.pairwise import CompareAnswers
from typedrag.signatures.question_type import ClassifyQuestion
from typedrag.signatures.sub_questions import (
    DecomposeIntoSubQuestions,
    FindAnsweringSentences,
    FindAnswers,
    TypeSubQuestions,
)

__all__ = [
    "AggregateReasons",
    "AnswerByDefinition",
    "AnswerComparison",
    "AnswerCoveringSubQuestions",
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
    "CombineSubAnswers",
    "CompareAnswers",
    "DecomposeInstruction",
    "DecomposeIntoSubQuestions",
    "DecomposeReason",
    "ExtractKeywords",
    "FindAnsweringSentences",
    "FindAnswers",
    "FrameComparison",
    "FrameDebate",
    "GradeCorrectness",
    "GradeEquivalence",
    "GradeFaithfulness",
    "GradeRelevance",
    "MediatePerspectives",
    "PlaceAmongReferences",
    "RankAmongReferences",
    "ReplyToRemark",
    "ReviseAnswer",
    "TypeSubQuestions",
    "predictor",
]
