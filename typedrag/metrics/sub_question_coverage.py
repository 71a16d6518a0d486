"""The sub-questions that an answer and its passages cover (sub-question coverage, sections 3.2 and 4).

All values are shares: 0.36 is the paper's 36 %. Sub-questions of all questions are pooled, as in the
paper; to weigh every question equally, take the mean of values computed question by question. A value
is None if its denominator is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Passage, SubQuestion
from typedrag.lms.trace import run_concurrently
from typedrag.metrics.metric import Metric, PredictorCall, Scored, listed, metric, touched
from typedrag.metrics.ranking import knows_passages
from typedrag.signatures.roles import Role
from typedrag.sub_questions.coverage_judge import DEFAULT_CITE, AnyCoverageJudge, Cite, asks_lm, build_coverage_judge
from typedrag.sub_questions.decomposition import SUB_QUESTIONS_PER_CALL, SubQuestionDecomposer, SubQuestionTyper

CORE, BACKGROUND, FOLLOW_UP = SubQuestionType.CORE, SubQuestionType.BACKGROUND, SubQuestionType.FOLLOW_UP

WEIGHTS: Mapping[SubQuestionType, float] = {CORE: 1.0, BACKGROUND: 0.5, FOLLOW_UP: -1.0}
"""Found by the paper's grid search against human preferences (section 4)."""
CORE_ONLY: Mapping[SubQuestionType, float] = {CORE: 1.0, BACKGROUND: 0.0, FOLLOW_UP: 0.0}
"""The weights of its table 3, core only."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgment of one sub-question, for one program's answer.

    Attributes:
        type: The type of the sub-question.
        answered: Whether the answer covers it.
        retrieved: Whether each passage covers it; empty if none was retrieved.
        position: The place where the answer begins to address it, as a share of its words
            (see `locate_fragment`); None if it does not, or the place is not known.
    """

    type: SubQuestionType
    answered: bool
    retrieved: tuple[bool, ...] = ()
    position: float | None = None

    @property
    def scenario(self) -> Scenario:
        """The scenario of the sub-question."""
        if self.answered:
            return Scenario.BOTH if any(self.retrieved) else Scenario.ANSWERED_ONLY
        return Scenario.RETRIEVED_ONLY if any(self.retrieved) else Scenario.NEITHER


class Scenario(StrEnum):
    """Coverage of a sub-question by the answer, and by at least one of the passages."""

    NEITHER = "neither"
    RETRIEVED_ONLY = "retrieved-only"
    ANSWERED_ONLY = "answered-only"
    BOTH = "both"


def scenarios(judged: Sequence[Judged], type: SubQuestionType) -> dict[Scenario, float] | None:
    """The share of each scenario among the sub-questions of a type; the four sum to 1 (table 1).

    Example:
        >>> core = [Judged(CORE, True, (True, False)), Judged(CORE, False, (False, False))]
        >>> {s.value: share for s, share in scenarios(core, CORE).items()}
        {'neither': 0.5, 'retrieved-only': 0.0, 'answered-only': 0.0, 'both': 0.5}
    """
    counts = Counter(j.scenario for j in _of(judged, type))
    if not counts:
        return None
    return {scenario: counts[scenario] / counts.total() for scenario in Scenario}


def answer_coverage(judged: Sequence[Judged], type: SubQuestionType) -> float | None:
    """Metric 1: the share of a type's sub-questions that the answers cover.

    Example:
        >>> answer_coverage([Judged(CORE, True), Judged(CORE, False), Judged(FOLLOW_UP, True)], CORE)
        0.5
        >>> answer_coverage([Judged(CORE, True)], BACKGROUND) is None
        True
    """
    return _share(_of(judged, type), lambda j: j.answered)


def retrieval_coverage(judged: Sequence[Judged], type: SubQuestionType) -> float | None:
    """Metric 2: the share of a type's sub-questions that at least one passage covers.

    Example:
        >>> retrieval_coverage([Judged(CORE, False, (False, True)), Judged(CORE, False, (False, False))], CORE)
        0.5
    """
    return _share(_of(judged, type), lambda j: any(j.retrieved))


def knowledge_identification(judged: Sequence[Judged]) -> float | None:
    """Metric 3: the share that answers cover of the core sub-questions that passages cover.

    Example:
        >>> seen = [Judged(CORE, True, (True,)), Judged(CORE, False, (True,)), Judged(CORE, True, (False,))]
        >>> knowledge_identification(seen)
        0.5
    """
    return _share([j for j in _of(judged, CORE) if any(j.retrieved)], lambda j: j.answered)


def retrieval_potential(judged: Sequence[Judged]) -> float | None:
    """Metric 4: the share that no passage covers of the core sub-questions that answers leave open.

    Better retrieval could close these. The share is 1 if nothing was retrieved.

    Example:
        >>> retrieval_potential([Judged(CORE, False, (True,)), Judged(CORE, False, (False,)), Judged(CORE, True)])
        0.5
    """
    return _share([j for j in _of(judged, CORE) if not j.answered], lambda j: not any(j.retrieved))


def frequency_correlation(judged: Sequence[Judged]) -> float | None:
    """Metric 5: the difference in covering passages between core sub-questions that answers cover and others.

    The mean share of covering passages over the answered core sub-questions, less that over the
    others; from -1 to 1. Sub-questions for which nothing was retrieved are left out.

    Example:
        >>> frequency_correlation([Judged(CORE, True, (True, True)), Judged(CORE, False, (True, False))])
        0.5
    """
    with_passages = [j for j in _of(judged, CORE) if j.retrieved]
    covered = [fmean(j.retrieved) for j in with_passages if j.answered]
    not_covered = [fmean(j.retrieved) for j in with_passages if not j.answered]
    return fmean(covered) - fmean(not_covered) if covered and not_covered else None


def position_alignment(judged: Sequence[Judged]) -> float | None:
    """Metric 6: the distance by which answers address follow-up sub-questions later than the others.

    The mean position of follow-up, less the mean of the positions of core and background; from -1 to 1.
    None unless answers address all three types.

    Example:
        >>> places = {CORE: 0.2, BACKGROUND: 0.4, FOLLOW_UP: 0.9}
        >>> round(position_alignment([Judged(t, True, position=p) for t, p in places.items()]), 3)
        0.6
    """
    positions = {
        type: [j.position for j in _of(judged, type) if j.answered and j.position is not None]
        for type in SubQuestionType
    }
    if not all(positions.values()):
        return None
    mean = {type: fmean(values) for type, values in positions.items()}
    return mean[FOLLOW_UP] - (mean[CORE] + mean[BACKGROUND]) / 2


def coverage_measures(judged: Sequence[Judged]) -> dict[str, float]:
    """Metrics 1 to 6 by name, without those that are undefined.

    Metric 1 is `answered_core`, `answered_background`, `answered_follow_up`; metric 2 is
    `retrieved_core` and so on; the others have the names of their functions.

    Example:
        >>> coverage_measures([Judged(CORE, True, (False,)), Judged(FOLLOW_UP, False, (True,))])
        {'answered_core': 1.0, 'answered_follow_up': 0.0, 'retrieved_core': 0.0, 'retrieved_follow_up': 1.0}
    """
    values = {
        **{f"answered_{type.name.lower()}": answer_coverage(judged, type) for type in SubQuestionType},
        **{f"retrieved_{type.name.lower()}": retrieval_coverage(judged, type) for type in SubQuestionType},
        "knowledge_identification": knowledge_identification(judged),
        "retrieval_potential": retrieval_potential(judged),
        "frequency_correlation": frequency_correlation(judged),
        "position_alignment": position_alignment(judged),
    }
    return {name: value for name, value in values.items() if value is not None}


def rating(judged: Sequence[Judged], weights: Mapping[SubQuestionType, float] = WEIGHTS) -> float | None:
    """The weighted sum of an answer's coverage by type (section 4); for one question.

    Only answers to the same question compare, since they share its sub-questions. Types without a
    sub-question or without a weight are left out. None if that leaves no type.

    Example:
        >>> rating([Judged(CORE, True), Judged(CORE, False), Judged(FOLLOW_UP, True)])
        -0.5
        >>> rating([Judged(CORE, True), Judged(FOLLOW_UP, True)], weights={CORE: 1.0})
        1.0
    """
    covered = _covered(judged, weights)
    return sum(weights[type] * share for type, share in covered.items()) if covered else None


def scaled_rating(judged: Sequence[Judged], weights: Mapping[SubQuestionType, float] = WEIGHTS) -> float | None:
    """The rating as a score: 0 is the worst that the question's sub-questions allow, 1 the best.

    The best covers all sub-questions whose weight is positive and none whose weight is negative.

    Example:
        >>> scaled_rating([Judged(CORE, True), Judged(CORE, False), Judged(FOLLOW_UP, True)])
        0.25
        >>> scaled_rating([Judged(FOLLOW_UP, False)])
        1.0
    """
    covered = _covered(judged, weights)
    worst = sum(min(weights[type], 0.0) for type in covered)
    best = sum(max(weights[type], 0.0) for type in covered)
    if best == worst:
        return None
    # term by term, so that rounding cannot leave [0, 1]
    good = sum(abs(weights[type]) * (share if weights[type] > 0 else 1 - share) for type, share in covered.items())
    return min(good / (best - worst), 1.0)


def _covered(judged: Sequence[Judged], weights: Mapping[SubQuestionType, float]) -> dict[SubQuestionType, float]:
    shares = {type: answer_coverage(judged, type) for type in weights}
    return {type: share for type, share in shares.items() if share is not None}


def _of(judged: Sequence[Judged], type: SubQuestionType) -> list[Judged]:
    return [j for j in judged if j.type == type]


def _share(judged: Sequence[Judged], holds: Callable[[Judged], bool]) -> float | None:
    return fmean(holds(j) for j in judged) if judged else None


@metric
class SubQuestionCoverage(Metric):
    """Coverage of a question's sub-questions by an answer and by its passages.

    The example's own `sub_questions` are used if it has any; otherwise the question is decomposed, and
    the sub-questions are typed.

    The measures of an answer are metric 1 by type, `core`, `background` and `follow_up`; its
    `rating`; `invalid`, the share of sub-questions for which the judge quoted words that are not in
    the answer; and if the passages are judged, metric 2 by type, `retrieved_core` and so on. The
    score is the rating, scaled to between 0 and 1. Over many answers each is a mean of questions;
    measures that pool all sub-questions, as the paper's tables 1 and 2, have other names: see `over_all`.
    Of answers that do not tell their passages, those measures are left out.

    Args:
        scorer: The LM that writes and types sub-questions, and judges if the judge asks one. Without a scorer,
            examples with sub-questions are judged by similarity, and others are not measurable.
        weights: The weights of core, background and follow-up in the rating.
        passages: Whether to judge the passages too, each at the cost of a text.
        sub_questions_per_call: The most sub-questions that a call judges; 1 in the paper.
        types_per_call: The most sub-questions that a call types; 1 in the paper.
        few_shot: Whether types are asked for with examples.
        cite: How a sub-question is judged: by `similarity`, which asks no LM and shows the nearest sentences; in a
            `cascade`, which asks the LM only if similarity is unsure; or by the LM, which names
            `sentences` or quotes `words`, for ten times the tokens.
        threads: The number of texts judged at once.
        decomposer: The decomposer; by default a new `SubQuestionDecomposer`.
        typer: The typer; by default a new `SubQuestionTyper`.
        judge: The judge; by default a new one by `cite`.

    Raises:
        InputError: If an option has no such value.
    """

    name: ClassVar[str] = "coverage"
    judged = True

    def __init__(
        self,
        scorer: dspy.LM | None = None,
        *,
        weights: Sequence[float] = (1.0, 0.5, -1.0),
        passages: bool = True,
        sub_questions_per_call: int = 10,
        types_per_call: int = SUB_QUESTIONS_PER_CALL,
        few_shot: bool = True,
        cite: Cite = DEFAULT_CITE,
        threads: int = 8,
        decomposer: SubQuestionDecomposer | None = None,
        typer: SubQuestionTyper | None = None,
        judge: AnyCoverageJudge | None = None,
    ) -> None:
        if len(weights) != len(SubQuestionType):
            raise InputError(f"coverage has {len(weights)} weights", "Give those of core, background and follow-up")
        if min(sub_questions_per_call, types_per_call, threads) < 1:
            raise InputError("coverage asks nothing with 0 sub-questions a call, or 0 threads", "Use 1 or more")
        self.judge = judge or build_coverage_judge(cite, sub_questions_per_call)
        super().__init__(scorer)
        self.weights = dict(zip(SubQuestionType, map(float, weights), strict=True))
        self.passages = passages
        self.measures = (*_OF_ONE_ANSWER, *(_OF_ITS_PASSAGES if passages else ()), "rating", "invalid")  # type: ignore[misc]
        self.threads = threads
        self.decomposer = decomposer or SubQuestionDecomposer()
        self.typer = typer or SubQuestionTyper(sub_questions_per_call=types_per_call, few_shot=few_shot)

    @classmethod
    def check_scorer(cls, scorer: object | None, **options: Any) -> None:
        """Check that there is a scorer if the judge asks an LM; see `Metric.check_scorer`."""
        judge = options.get("judge")  # a judge, or the folder of a compiled one, which asks an LM
        if getattr(judge, "asks_lm", True) if judge else asks_lm(options.get("cite", DEFAULT_CITE)):
            super().check_scorer(scorer)

    def require(self, example: dspy.Example, measure: str = "") -> None:
        """Raise `NotMeasurable` if the example has no sub-questions, and no scorer writes them."""
        if self.scorer is None and not example.get("sub_questions"):
            raise NotMeasurable("the question has no sub-questions, and no scorer is named that would write them")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Score an answer by the sub-questions that it and its passages cover."""
        self.require(example)
        sub_questions = self.sub_questions(example)
        if not any(self.weights[s.type] for s in sub_questions):
            raise NotMeasurable(f"question '{example.get('id')}' has no sub-question of a type that has a weight")
        verdicts = self._find(sub_questions, prediction)
        judged = [_judged(f) for f in verdicts]
        known = knows_passages(prediction)
        return Scored(
            score=scaled_rating(judged, self.weights) or 0.0,
            feedback=_in_words(verdicts, self.passages),
            measures={
                **self._of_one_answer(judged, self.passages and known),
                "rating": rating(judged, self.weights) or 0.0,
                "invalid": fmean(f["invalid"] for f in verdicts),
            },
            details={"sub_questions": verdicts, "passages_known": known},
        )

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        """The core sub-questions that this predictor left open.

        Those that no passage answers were left open by the predictors that search; those that a predictor's
        sources answer, by that predictor. If passages are not judged, all predictors that write are told of
        all open ones.
        """
        judged = [(s["text"], _judged(s)) for s in scored.details["sub_questions"]]
        core = [(text, j) for text, j in judged if j.type is SubQuestionType.CORE]
        covered = f"The answer covers {sum(j.answered for _, j in core)} of {len(core)} core sub-questions."
        missed = [text for text, j in core if j.scenario is Scenario.NEITHER]
        if call.role is Role.SEARCHER:
            left_open = f"No passage that was found answers these core sub-questions: {listed(missed, _MOST_NAMED)}."
            return f"{covered} {left_open}" if missed and self.passages else ""
        if not call.role.writes:
            return ""
        messages = [covered]
        if call.role is Role.TELLER or not self.passages:
            if left := [text for text, j in core if not j.answered]:
                messages.append(f"It leaves these open: {listed(left, _MOST_NAMED)}.")
        elif lost := _lost_by(call, core, prediction.get("passages") or (), example.question):
            messages.append(f"Its sources answer these, but what it wrote does not: {listed(lost, _MOST_NAMED)}.")
        follow_up = [text for text, j in judged if j.answered and j.type is SubQuestionType.FOLLOW_UP]
        if self.weights[SubQuestionType.FOLLOW_UP] < 0 and follow_up:
            messages.append(f"It goes into what was not asked: {listed(follow_up, _MOST_NAMED)}.")
        return " ".join(messages)

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        """Metrics 1 to 6 and the scenarios, over the sub-questions of all questions (section 3.2).

        Metrics 1 and 2 are named `pooled_core`, `pooled_retrieved_core`, and so on, since a single answer has
        them too; shares of scenarios `core_neither`, `core_retrieved_only`, and so on. Undefined measures are
        left out, as are those that need judged passages without them. Answers that do not tell their passages
        count in measures of answers alone.
        """
        judged = _all_judged(scored)
        known = _all_judged([one for one in scored if one.details.get("passages_known", True)])
        passages = self.passages and any(j.retrieved for j in known)
        of_answers = self._renamed(coverage_measures(judged), passages=False)
        of_passages = {n: v for n, v in coverage_measures(known).items() if n in _BY_PASSAGES} if passages else {}
        shares = {type: scenarios(known, type) for type in SubQuestionType} if passages else {}
        return {
            **{
                f"pooled_{name}" if name in self.measures else name: value
                for name, value in {**of_answers, **of_passages}.items()
            },
            **{
                f"{type.name.lower()}_{scenario.name.lower()}": share
                for type, table in shares.items()
                for scenario, share in (table or {}).items()
            },
        }

    def sub_questions(self, example: dspy.Example) -> tuple[SubQuestion, ...]:
        """The example's own sub-questions, or else its question decomposed and typed.

        Raises:
            StepFailed: If no reply can be parsed.
            LMUnavailable: If the LM cannot be used.
        """
        if own := example.get("sub_questions"):
            return tuple(own)
        texts = self.decomposer(question=example.question).sub_questions
        types = self.typer(question=example.question, sub_questions=texts).types
        return tuple(SubQuestion(text, type) for text, type in zip(texts, types, strict=True))

    def _find(self, sub_questions: Sequence[SubQuestion], prediction: dspy.Prediction) -> list[dict[str, Any]]:
        """Each sub-question with its verdicts as JSON values: the words of the answer that cover it, and whether each
        passage does."""
        passages = [p.titled for p in prediction.get("passages") or ()] if self.passages else []
        texts = [s.text for s in sub_questions]
        answer, *behind = run_concurrently(
            lambda text: self.judge(text=text, sub_questions=texts).verdicts,
            [prediction.answer, *passages],
            self.threads,
        )
        return [
            {
                "text": sub_question.text,
                "type": sub_question.type.value,
                "answered": by_answer.answered,
                "retrieved": [p.answered for p in by_passages],
                "fragment": by_answer.fragment,
                "position": by_answer.position,
                "invalid": by_answer.invalid,
                "invalid_passages": sum(p.invalid for p in by_passages),
            }
            for sub_question, by_answer, *by_passages in zip(sub_questions, answer, *behind, strict=True)
        ]

    def _of_one_answer(self, judged: Sequence[Judged], passages: bool) -> dict[str, float]:
        measures = self._renamed(coverage_measures(judged), passages)
        return {name: value for name, value in measures.items() if name in self.measures}

    def _renamed(self, measures: Mapping[str, float], passages: bool) -> dict[str, float]:
        defined = measures if passages else {n: v for n, v in measures.items() if n not in _BY_PASSAGES}
        return {name.removeprefix("answered_"): value for name, value in defined.items()}


_OF_ONE_ANSWER = tuple(type.name.lower() for type in SubQuestionType)
_OF_ITS_PASSAGES = tuple(f"retrieved_{type}" for type in _OF_ONE_ANSWER)
_BY_PASSAGES = {
    *_OF_ITS_PASSAGES,
    "knowledge_identification",
    "retrieval_potential",
    "frequency_correlation",
}
"""Measures that are undefined if passages are not judged."""


_MOST_NAMED = 4
"""The most sub-questions of a kind that feedback names."""


def _lost_by(
    call: PredictorCall, core: Sequence[tuple[str, Judged]], passages: Sequence[Passage], question: str
) -> list[str]:
    """The core sub-questions that the call's sources answer and the answer does not."""
    lost = [(text, j) for text, j in core if j.scenario is Scenario.RETRIEVED_ONLY]
    if call.role is Role.COMBINER:
        return [text for text, _ in lost if touched(text, call.sources, question)]
    shown = [_is_seen(passage, call.sources) for passage in passages]
    return [text for text, j in lost if any(s and r for s, r in zip(shown, j.retrieved, strict=True))]


def _is_seen(passage: Passage, sources: Sequence[str]) -> bool:
    # a prompt shows the first words of a passage
    text = " ".join(passage.text.split())
    return any(source.strip() and text.startswith(" ".join(source.split())) for source in sources)


def _all_judged(scored: Sequence[Scored]) -> list[Judged]:
    return [_judged(s) for one in scored for s in one.details["sub_questions"]]


def _judged(one: Mapping[str, Any]) -> Judged:
    return Judged(SubQuestionType(one["type"]), one["answered"], tuple(one["retrieved"]), one["position"])


def _in_words(sub_questions: Sequence[Mapping[str, Any]], passages: bool) -> str:
    judged = [(f["text"], _judged(f)) for f in sub_questions]
    core = [(text, j) for text, j in judged if j.type is SubQuestionType.CORE]
    messages = [f"The answer covers {sum(j.answered for _, j in core)} of {len(core)} core sub-questions."]
    lost, missed = (
        [text for text, j in core if j.scenario is scenario] for scenario in (Scenario.RETRIEVED_ONLY, Scenario.NEITHER)
    )
    if lost:
        messages.append(f"It leaves these open although its passages answer them: {listed(lost, most=None)}")
    if missed:
        why = ", and its passages do not answer them: retrieval missed them" if passages else ""
        messages.append(f"It leaves these open{why}: {listed(missed, most=None)}")
    if strayed := [text for text, j in judged if j.answered and j.type is SubQuestionType.FOLLOW_UP]:
        messages.append(f"It goes into what was not asked: {listed(strayed, most=None)}")
    return " ".join(messages)
