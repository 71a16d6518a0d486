"""The sub-questions that an answer and its passages cover (sub-question coverage, sections 3.2 and 4).

All values are shares; one is None if its denominator is 0. Sub-questions of all questions are pooled, as in the paper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import SubQuestion
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


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgment of one sub-question: whether the answer covers it, whether each passage does (empty if none was
    retrieved), and the place where the answer begins to address it, as a share of its words (see `locate_fragment`)."""

    type: SubQuestionType
    answered: bool
    retrieved: tuple[bool, ...] = ()
    position: float | None = None

    @property
    def scenario(self) -> Scenario:
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
    """The share of each scenario among the sub-questions of a type; the four sum to 1 (table 1)."""
    counts = Counter(j.scenario for j in judged if j.type == type)
    return {scenario: counts[scenario] / counts.total() for scenario in Scenario} if counts else None


def answer_coverage(judged: Sequence[Judged], type: SubQuestionType) -> float | None:
    """Metric 1: the share of a type's sub-questions that the answers cover."""
    return _mean([j.answered for j in judged if j.type == type])


def coverage_measures(judged: Sequence[Judged], passages: bool = True) -> dict[str, float]:
    """Metrics 1 to 6 of section 3.2 by name, without those that are undefined, as some are without passages.

    1. `core`, `background`, `follow_up`: the shares of sub-questions that answers cover.
    2. `retrieved_core` and so on: the shares of those that at least one passage covers.
    3. `knowledge_identification`: of the core ones that passages cover, the share that answers cover.
    4. `retrieval_potential`: of the core ones that answers leave open, the share that no passage covers, so that
       better retrieval could close them; 1 if nothing was retrieved.
    5. `frequency_correlation`: the mean share of passages that cover an answered core one, less that of the others;
       from -1 to 1. Sub-questions for which nothing was retrieved are left out.
    6. `position_alignment`: the mean position at which answers address follow-up ones, less the mean of those of core
       and background; from -1 to 1, and undefined unless answers address all three types.
    """
    by_type = {type: [j for j in judged if j.type == type] for type in SubQuestionType}
    core = by_type[CORE]
    values = {type.name.lower(): answer_coverage(judged, type) for type in SubQuestionType}
    values |= {f"retrieved_{t.name.lower()}": _mean([any(j.retrieved) for j in some]) for t, some in by_type.items()}
    values["knowledge_identification"] = _mean([j.answered for j in core if any(j.retrieved)])
    values["retrieval_potential"] = _mean([not any(j.retrieved) for j in core if not j.answered])
    with_passages = [(fmean(j.retrieved), j.answered) for j in core if j.retrieved]
    covered = _mean([share for share, answered in with_passages if answered])
    not_covered = _mean([share for share, answered in with_passages if not answered])
    if covered is not None and not_covered is not None:
        values["frequency_correlation"] = covered - not_covered
    places = {
        type: _mean([j.position for j in some if j.answered and j.position is not None])
        for type, some in by_type.items()
    }
    mean = {type: place for type, place in places.items() if place is not None}
    if len(mean) == len(SubQuestionType):
        values["position_alignment"] = mean[FOLLOW_UP] - (mean[CORE] + mean[BACKGROUND]) / 2
    return {n: v for n, v in values.items() if v is not None and (passages or n not in _BY_PASSAGES)}


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def rating(judged: Sequence[Judged], weights: Mapping[SubQuestionType, float] = WEIGHTS) -> float | None:
    """The weighted sum of an answer's coverage by type (section 4), for one question; types without a sub-question are
    left out. Only answers to the same question compare, since they share its sub-questions."""
    covered = _covered(judged, weights)
    return sum(weights[type] * share for type, share in covered.items()) if covered else None


def scaled_rating(judged: Sequence[Judged], weights: Mapping[SubQuestionType, float] = WEIGHTS) -> float | None:
    """The rating as a score: 0 is the worst that the question's sub-questions allow, 1 the best."""
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
            `sentences` or quotes `words`, for ten times the tokens. With `plain` the LM is asked by the paper's prompts
            alone, for sub-questions, types and verdicts, of one sub-question a call, and verdicts count as they are.
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
        plain = cite == "plain"
        self.decomposer = decomposer or SubQuestionDecomposer(plain=plain)
        self.typer = typer or SubQuestionTyper(
            sub_questions_per_call=1 if plain else types_per_call, few_shot=few_shot, plain=plain
        )

    @classmethod
    def check_scorer(cls, scorer: object | None, **options: Any) -> None:
        judge = options.get("judge")  # a judge, or the folder of a compiled one, which asks an LM
        if getattr(judge, "asks_lm", True) if judge else asks_lm(options.get("cite", DEFAULT_CITE)):
            super().check_scorer(scorer)

    def require(self, example: dspy.Example, measure: str = "") -> None:
        if self.scorer is None and not example.get("sub_questions"):
            raise NotMeasurable("the question has no sub-questions, and no scorer is named that would write them")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        self.require(example)
        sub_questions = self.sub_questions(example)
        if not any(self.weights[s.type] for s in sub_questions):
            raise NotMeasurable(f"question '{example.get('id')}' has no sub-question of a type that has a weight")
        passages = [p.titled for p in prediction.get("passages") or ()] if self.passages else []
        texts = [s.text for s in sub_questions]
        answer, *behind = run_concurrently(
            lambda text: self.judge(text=text, sub_questions=texts).verdicts,
            [prediction.answer, *passages],
            self.threads,
        )
        verdicts: list[dict[str, Any]] = [
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
        judged = [_judged(f) for f in verdicts]
        known = knows_passages(prediction)
        of_one_answer = coverage_measures(judged, self.passages and known)
        return Scored(
            score=scaled_rating(judged, self.weights) or 0.0,
            feedback=_in_words(verdicts, self.passages),
            measures={
                **{name: value for name, value in of_one_answer.items() if name in self.measures},
                "rating": rating(judged, self.weights) or 0.0,
                "invalid": fmean(f["invalid"] for f in verdicts),
            },
            details={"sub_questions": verdicts, "passages_known": known},
        )

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
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
        else:
            lost = [(text, j) for text, j in core if j.scenario is Scenario.RETRIEVED_ONLY]
            if call.role is Role.COMBINER:
                known = [text for text, _ in lost if touched(text, call.sources, example.question)]
            else:  # a prompt shows the first words of a passage
                shown = [" ".join(source.split()) for source in call.sources if source.strip()]
                passages = [" ".join(passage.text.split()) for passage in prediction.get("passages") or ()]
                was_shown = [any(passage.startswith(text) for text in shown) for passage in passages]
                known = [text for text, j in lost if any(map(all, zip(was_shown, j.retrieved, strict=True)))]
            if known:
                messages.append(f"Its sources answer these, but what it wrote does not: {listed(known, _MOST_NAMED)}.")
        follow_up = [text for text, j in judged if j.answered and j.type is SubQuestionType.FOLLOW_UP]
        if self.weights[SubQuestionType.FOLLOW_UP] < 0 and follow_up:
            messages.append(f"It goes into what was not asked: {listed(follow_up, _MOST_NAMED)}.")
        return " ".join(messages)

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        with_passages = [one for one in scored if one.details.get("passages_known", True)]
        judged, known = (
            [_judged(s) for one in answers for s in one.details["sub_questions"]] for answers in (scored, with_passages)
        )
        passages = self.passages and any(j.retrieved for j in known)
        measures = coverage_measures(judged, passages=False)
        if passages:
            measures |= {n: v for n, v in coverage_measures(known).items() if n in _BY_PASSAGES}
        pooled = {f"pooled_{name}" if name in self.measures else name: value for name, value in measures.items()}
        for type in SubQuestionType if passages else ():
            for scenario, share in (scenarios(known, type) or {}).items():
                pooled[f"{type.name.lower()}_{scenario.name.lower()}"] = share
        return pooled

    def sub_questions(self, example: dspy.Example) -> tuple[SubQuestion, ...]:
        """The example's own sub-questions, or else its question decomposed and typed."""
        if own := example.get("sub_questions"):
            return tuple(own)
        texts = self.decomposer(question=example.question).sub_questions
        types = self.typer(question=example.question, sub_questions=texts).types
        return tuple(SubQuestion(text, type) for text, type in zip(texts, types, strict=True))


_OF_ONE_ANSWER = tuple(type.name.lower() for type in SubQuestionType)
_OF_ITS_PASSAGES = tuple(f"retrieved_{type}" for type in _OF_ONE_ANSWER)
_BY_PASSAGES = {*_OF_ITS_PASSAGES, "knowledge_identification", "retrieval_potential", "frequency_correlation"}
"""Measures that are undefined if passages are not judged."""


_MOST_NAMED = 4


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
