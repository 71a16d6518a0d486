"""What each predictor does in its program, by its signature: feedback depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from typedrag import signatures as s
from typedrag.metrics.feedback import PredictorCall, Role

FROM_PASSAGES: tuple[type[dspy.Signature], ...] = (
    s.AnswerFromPassages,
    s.AnswerReason,
    s.AnswerInstruction,
    s.AnswerExperience,
    s.AnswerDebate,
    s.AnswerComparison,
    s.AnswerSubQuery,
    s.AnswerFromPerspective,
    s.AnswerRichly,
    s.AnswerDirectly,
    s.AnswerAsExpert,
    s.AnswerInSentences,
    s.AnswerAfterReasoning,
    s.AnswerInPhrase,
    s.AnswerByDefinition,
    s.AnswerCoveringSubQuestions,
)
"""What writes an answer, or a part of one, from passages."""

ROLES: Mapping[Role, tuple[type[dspy.Signature], ...]] = {
    Role.CLASSIFIER: (s.ClassifyQuestion, s.ClassifyDocumentScope, s.RouteQuestion, s.JudgeComplexity),
    Role.SEARCHER: (
        s.DecomposeReason,
        s.DecomposeInstruction,
        s.FrameDebate,
        s.FrameComparison,
        s.ExtractKeywords,
        s.ExploreSubAspects,
        s.VaryQuery,
        s.RewriteForSparse,
        s.RewriteForDense,
        s.SplitQuestion,
        s.DecomposeCompound,
        s.RefineQuestion,
        s.ReasonOneStep,
        s.DecomposeIntoSubQuestions,
        s.TypeSubQuestions,
    ),
    Role.ANSWERER: (*FROM_PASSAGES, s.ReviseAnswer),
    Role.COMBINER: (
        s.AggregateReasons,
        s.ArrangeSteps,
        s.MediatePerspectives,
        s.AnswerFromSubAnswers,
        s.CombineSubAnswers,
        s.ComposeAnswer,
        s.ComposePhrase,
    ),
    Role.TELLER: (s.AnswerWithoutPassages, s.AnswerInPhraseWithoutPassages, s.ReplyToRemark),
    Role.JUDGE: (
        s.FindAnswers,
        s.RankAmongReferences,
        s.JudgeRelevance,
        s.JudgePassages,
        s.JudgeEnding,
    ),
}
"""One home for what predictors do."""

_Layout = tuple[tuple[str, ...], tuple[str, ...]]


def role_of(signature: type[dspy.Signature]) -> Role | None:
    """What a predictor of this signature does; None if that is not known.

    A signature is known by its fields: compiling puts another with other instructions in its place.

    Example:
        >>> from typedrag.signatures import DecomposeReason
        >>> role_of(DecomposeReason.with_instructions("Ask more."))
        <Role.SEARCHER: 'searcher'>
    """
    return _BY_LAYOUT.get(_layout(signature))


def read_call(pred_name: str, pred_trace: Any) -> PredictorCall | None:
    """The call that GEPA asks for feedback on; None if the predictor's part is not known.

    Args:
        pred_name: As the program names it.
        pred_trace: The predictor, its inputs and its outputs, in a list.
    """
    if not pred_trace:
        return None
    predictor, inputs, outputs = pred_trace[0]
    role = role_of(predictor.signature)
    if role is None:
        return None
    return PredictorCall(
        role=role,
        asked=str(inputs.get("question") or ""),
        sources=_sources(inputs),
        written=str(outputs.get("answer") or ""),
        outputs=dict(outputs.items()),
    )


def _sources(inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of passages, or the answers to parts of a question."""
    passages: Sequence[Any] = inputs.get("passages") or ()
    answers: Sequence[Any] = inputs.get("sub_answers") or inputs.get("perspectives") or ()
    return tuple([p.text for p in passages] or [a.answer for a in answers])


def _layout(signature: type[dspy.Signature]) -> _Layout:
    return tuple(signature.input_fields), tuple(signature.output_fields)


_BY_LAYOUT = {_layout(signature): role for role, known in ROLES.items() for signature in known}
