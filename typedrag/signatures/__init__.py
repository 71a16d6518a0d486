"""The typed DSPy signatures by which modules ask an LM, and nothing else: one file a concern."""

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
from typedrag.signatures.compound import AskAboutEntity, JoinQuestions
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
from typedrag.signatures.fabrications import GuessAnswer, ProposeWrongAnswer, StateAnswer
from typedrag.signatures.grading import GradeCorrectness, GradeEquivalence, GradeFaithfulness, GradeRelevance
from typedrag.signatures.hanrag import (
    ComposeAnswer,
    DecomposeCompound,
    JudgeEnding,
    JudgeRelevance,
    RefineQuestion,
    RouteQuestion,
)
from typedrag.signatures.linkage import PlaceAmongReferences, RankAmongReferences
from typedrag.signatures.pairwise import CompareAnswers
from typedrag.signatures.phrases import AnswerInPhrase, AnswerInPhraseWithoutPassages, ComposePhrase
from typedrag.signatures.plain import (
    AggregateParaphrases,
    AnswerPlainly,
    ComparePlainly,
    FrameSides,
    ParaphraseInstruction,
    ParaphraseReason,
    TellPlainly,
)
from typedrag.signatures.preqrag import (
    AnswerAfterReasoning,
    AnswerAsExpert,
    AnswerDirectly,
    AnswerFromSubAnswers,
    AnswerInSentences,
    ClassifyDocumentScope,
    RewriteForDense,
    RewriteForSparse,
    SplitQuestion,
)
from typedrag.signatures.question_type import ClassifyQuestion
from typedrag.signatures.reference_answers import LabelAnswers, RewriteAnswer, WriteWorseAnswers
from typedrag.signatures.relevance import JudgePassages
from typedrag.signatures.reranking import GradePassage, OrderPassages
from typedrag.signatures.richrag import AnswerByAspects, AnswerRichly, DivideAnswer, ExploreSubAspects, VaryQuery
from typedrag.signatures.roles import Role, plays
from typedrag.signatures.standalone import StandaloneQuestion
from typedrag.signatures.stepwise import JudgeComplexity, ReasonOneStep
from typedrag.signatures.sub_questions import (
    DecomposeIntoSubQuestions,
    FindAnsweringSentences,
    FindAnswers,
    TypeSubQuestions,
)
from typedrag.signatures.support import JudgeSupport
from typedrag.signatures.synthetic_questions import AskOfOnePassage, AskOfTwoPassages, WriteQuestions

__all__ = [
    "AggregateParaphrases",
    "AggregateReasons",
    "AnswerAfterReasoning",
    "AnswerAsExpert",
    "AnswerByAspects",
    "AnswerByDefinition",
    "AnswerComparison",
    "AnswerCoveringSubQuestions",
    "AnswerDebate",
    "AnswerDirectly",
    "AnswerExperience",
    "AnswerFromPassages",
    "AnswerFromPerspective",
    "AnswerFromSubAnswers",
    "AnswerInPhrase",
    "AnswerInPhraseWithoutPassages",
    "AnswerInSentences",
    "AnswerInstruction",
    "AnswerPlainly",
    "AnswerReason",
    "AnswerRichly",
    "AnswerSubQuery",
    "AnswerWithoutPassages",
    "ArrangeSteps",
    "AskAboutEntity",
    "AskOfOnePassage",
    "AskOfTwoPassages",
    "ClassifyDocumentScope",
    "ClassifyQuestion",
    "CombineSubAnswers",
    "CompareAnswers",
    "ComparePlainly",
    "ComposeAnswer",
    "ComposePhrase",
    "DecomposeCompound",
    "DecomposeInstruction",
    "DecomposeIntoSubQuestions",
    "DecomposeReason",
    "DivideAnswer",
    "ExploreSubAspects",
    "ExtractKeywords",
    "FindAnsweringSentences",
    "FindAnswers",
    "FrameComparison",
    "FrameDebate",
    "FrameSides",
    "GradeCorrectness",
    "GradeEquivalence",
    "GradeFaithfulness",
    "GradePassage",
    "GradeRelevance",
    "GuessAnswer",
    "JoinQuestions",
    "JudgeComplexity",
    "JudgeEnding",
    "JudgePassages",
    "JudgeRelevance",
    "JudgeSupport",
    "LabelAnswers",
    "MediatePerspectives",
    "OrderPassages",
    "ParaphraseInstruction",
    "ParaphraseReason",
    "PlaceAmongReferences",
    "ProposeWrongAnswer",
    "RankAmongReferences",
    "ReasonOneStep",
    "RefineQuestion",
    "ReplyToRemark",
    "ReviseAnswer",
    "RewriteAnswer",
    "RewriteForDense",
    "RewriteForSparse",
    "Role",
    "RouteQuestion",
    "SplitQuestion",
    "StandaloneQuestion",
    "StateAnswer",
    "TellPlainly",
    "TypeSubQuestions",
    "VaryQuery",
    "WriteQuestions",
    "WriteWorseAnswers",
    "plays",
    "predictor",
]
