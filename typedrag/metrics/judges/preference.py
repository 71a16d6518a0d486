"""Judges and weights that say which of two answers is better (sub-question coverage, sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import combinations, product
from statistics import fmean
from typing import Any, ClassVar, NamedTuple, get_args

import dspy
import numpy as np
from numpy.typing import NDArray

from typedrag.core.errors import NotMeasurable
from typedrag.core.question_types import SubQuestionType
from typedrag.datasets.dataset import text_hash
from typedrag.lms.asking import label_probabilities
from typedrag.lms.trace import run_concurrently
from typedrag.metrics.judges.linkage import Judge, draw_references
from typedrag.metrics.metric import Metric, PredictorCall, Scored, metric
from typedrag.metrics.sub_question_coverage import CORE_ONLY, Judged, SubQuestionCoverage, answer_coverage
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.judging import CompareAnswers, ComparePlain, Verdict
from typedrag.text.words import question_key

TIED = 0.5
POINTS_OF_FIRST: Mapping[str, float] = {"first": 1.0, "tie": TIED, "second": 0.0}


class PairwiseOutcome(StrEnum):
    WIN = "win"
    TIE = "tie"
    LOSS = "loss"

    @property
    def reversed(self) -> PairwiseOutcome:
        return PairwiseOutcome({"win": "loss", "loss": "win"}.get(self, self))


class PairwiseJudge(Judge):
    """Says which of two answers is better, in one order: its `verdict`, and the `probabilities` of all three if known.

    Judges favour a place, mostly the first: use `compare_in_both_orders`. A `plain` judge gets no more than in the
    paper, and calls no tie.
    """

    def __init__(self, retries: int = 2, token_probabilities: bool = True, *, plain: bool = False) -> None:
        super().__init__(retries, token_probabilities)
        self.compare = predictor(ComparePlain if plain else CompareAnswers)

    def forward(self, question: str, first_answer: str, second_answer: str) -> dspy.Prediction:
        answers = {"first_answer": first_answer, "second_answer": second_answer}
        reply = self.choose("compare", self.compare, None, question=question, **answers)
        probabilities = label_probabilities(reply.get("logprobs"), reply.verdict, get_args(Verdict))
        return dspy.Prediction(verdict=reply.verdict, probabilities=probabilities)


class Verdicts(NamedTuple):
    """The verdicts on two answers, with the one first and with the other first.

    `preference` is the judge's probability that the one is better, plus half of that of a tie, as the mean of both
    orders: a preference for a place cancels out. None if no token probabilities are known.
    """

    forward: Verdict
    backward: Verdict
    preference: float | None = None

    @property
    def outcome(self) -> PairwiseOutcome:
        """The outcome for the one answer: a win if it is preferred in both orders, a loss if the other is. A preference
        that changes with the order is for a place, not for an answer."""
        both = (self.forward, self.backward)
        if both == ("first", "second"):
            return PairwiseOutcome.WIN
        return PairwiseOutcome.LOSS if both == ("second", "first") else PairwiseOutcome.TIE

    @property
    def points(self) -> float:
        """The points of the one answer in a win rate: each verdict counts by itself, and a tie half."""
        return (POINTS_OF_FIRST[self.forward] + 1 - POINTS_OF_FIRST[self.backward]) / 2

    @property
    def likelier(self) -> float | None:
        """1 if the one answer is more likely the better, however narrowly, 0 if the other is: a small LM calls nearly
        all a tie, or prefers a place."""
        if self.preference is None:
            return None
        return TIED if self.preference == TIED else float(self.preference > TIED)


def compare_in_both_orders(judge: dspy.Module, question: str, answer: str, other: str) -> Verdicts:
    """Compare two answers in both orders. Equal answers are a tie; no LM is asked."""
    if answer == other:
        return Verdicts("tie", "tie", TIED)
    forward = judge(question=question, first_answer=answer, second_answer=other)
    backward = judge(question=question, first_answer=other, second_answer=answer)
    preference = None
    if forward.probabilities and backward.probabilities:
        for_one, for_other = (
            sum(POINTS_OF_FIRST[verdict] * probability for verdict, probability in reply.probabilities.items())
            for reply in (forward, backward)
        )
        preference = (for_one + 1 - for_other) / 2
    return Verdicts(forward.verdict, backward.verdict, preference)


Array = NDArray[np.float64]

GRID: Array = np.array([w for w in product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=3) if any(w)])
"""[n, 3] The weights of core, background and follow-up coverage that are tried. The paper prints no grid; its best
weights are among these."""
_EQUAL = 1e-9
"""Ratings that differ by less count as equal: sums of thirds are not exact."""


def points(differences: Array, weights: Array) -> Array:
    ratings = np.asarray(weights) @ np.asarray(differences).T
    return np.where(np.abs(ratings) < _EQUAL, 0.5, ratings > 0)


def best_weights(differences: Array, weights: Array = GRID) -> Array:
    """The weights that predict most pairs; of equally good ones, those nearest to their mean."""
    accuracies = points(differences, weights).mean(axis=1)
    equals = weights[accuracies >= accuracies.max() - _EQUAL]
    nearest: Array = equals[np.argmin(((equals - equals.mean(axis=0)) ** 2).sum(axis=1))]
    return nearest


def cross_validated(differences: Array, questions: Sequence[str], folds: int = 5) -> float | None:
    """The share of pairs that weights predict which were found without the pair's question; None with one question."""
    fold_of = {question: n % folds for n, question in enumerate(sorted(set(questions)))}
    if len(fold_of) < 2:
        return None
    fold = np.array([fold_of[question] for question in questions])
    unseen = [
        points(differences[fold == n], best_weights(differences[fold != n])[None])[0]
        for n in range(min(folds, len(fold_of)))
    ]
    return float(np.concatenate(unseen).mean())


@metric
class Preference(Metric):
    """Prefers by the rating, and compares with what people prefer among the dataset's own answers to a question.

    It measures the weights of the rating, whatever a program answers: `evaluate` it with the program `reference`, or
    `sweep` over the parameters `rating.core`, `rating.background` and `rating.follow_up`. Two answers to a question are
    compared if the dataset says which is better (`webgpt`, `pairs`); where references have labels, one of each label,
    all with all.

    The measures of a question are shares of its pairs, with half of equal ratings: `accuracy`, the score, by the
    weights; `core_only`, by core coverage alone; and `lm_judge`, by an LM that is asked which of two is better. Over
    all questions, `cross_validated` is the accuracy of the best weights of the paper's grid, found without the
    question that they are measured on; `best_core`, `best_background` and `best_follow_up` are those weights. With
    `validation`, `held_out` is the accuracy of weights that were found on so many questions, on the others.

    Args:
        scorer: The LM that writes and types sub-questions, and judges if it is asked.
        weights: The weights of core, background and follow-up in the rating.
        lm_judge: Whether to ask the LM, twice for each pair.
        plain: Whether the LM gets no more than in the paper, asked once for each pair, and calls no tie.
        candidates: The most references of a question to compare.
        seed: The seed of the draw of references.
        validation: The questions that weights are found on for `held_out`; 100 in the paper, beside the 500 measured.
        coverage: Other options of the metric `coverage`, such as `cite`.

    Raises:
        InputError: If an option has no such value, or a judge asks an LM and there is no scorer.
    """

    name: ClassVar[str] = "preference"
    judged: ClassVar[bool] = True
    measures: ClassVar[tuple[str, ...]] = ("accuracy", "core_only", "lm_judge")

    def __init__(
        self,
        scorer: dspy.LM | None = None,
        *,
        weights: Sequence[float] = (1.0, 0.5, -1.0),
        lm_judge: bool = False,
        plain: bool = False,
        candidates: int = 4,
        seed: int = 0,
        validation: int = 0,
        coverage: Mapping[str, Any] | None = None,
    ) -> None:
        self.lm_judge, self.plain, self.candidates, self.seed = lm_judge, plain, candidates, seed
        self.validation = validation
        super().__init__(scorer)
        self.coverage = SubQuestionCoverage(scorer, weights=weights, **{"passages": False, **(coverage or {})})
        self.compare = PairwiseJudge(plain=plain)

    @classmethod
    def check_scorer(cls, scorer: object | None, **options: Any) -> None:
        if options.get("lm_judge"):
            super().check_scorer(scorer)
        SubQuestionCoverage.check_scorer(scorer, **(options.get("coverage") or {}))

    def require(self, example: dspy.Example, measure: str = "") -> None:
        _rated_answers(example, self.candidates, self.seed)
        self.coverage.require(example)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        answers = _rated_answers(example, self.candidates, self.seed)
        sub_questions = self.coverage.sub_questions(example)
        judged = run_concurrently(
            lambda text: self.coverage.judge(text=text, sub_questions=[s.text for s in sub_questions]).verdicts,
            [text for text, _ in answers],
            self.coverage.threads,
        )
        covered = []  # the shares of each type's sub-questions that each answer covers; 0 of a type without any
        for verdicts in judged:
            one = [Judged(s.type, v.answered) for s, v in zip(sub_questions, verdicts, strict=True)]
            covered.append(np.array([answer_coverage(one, type_) or 0.0 for type_ in SubQuestionType]))
        pairs = [
            (i, j) if answers[i][1] > answers[j][1] else (j, i)
            for i, j in combinations(range(len(answers)), 2)
            if answers[i][1] != answers[j][1]
        ]
        differences = np.array([covered[better] - covered[worse] for better, worse in pairs])
        weights = np.array([list(self.coverage.weights.values()), list(CORE_ONLY.values())])
        accuracy, core_only = points(differences, weights).mean(axis=1).tolist()
        measures = {"accuracy": accuracy, "core_only": core_only}
        if self.lm_judge:
            measures["lm_judge"] = fmean(self._compared(example.question, answers, *pair) for pair in pairs)
        question = text_hash(question_key(example.question))
        return Scored(accuracy, measures=measures, details={"differences": differences.tolist(), "question": question})

    def _compared(self, question: str, answers: Sequence[tuple[str, float]], better: int, worse: int) -> float:
        """The points of the better answer by the LM, in both orders, or as in the paper once, in the dataset's."""
        if not self.plain:
            return compare_in_both_orders(self.compare, question, answers[better][0], answers[worse][0]).points
        first, second = (answers[place][0] for place in sorted((better, worse)))
        verdict = self.compare(question=question, first_answer=first, second_answer=second).verdict
        return float((verdict == "first") == (better < worse))

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        return ""

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        differences = np.array([pair for one in scored for pair in one.details["differences"]])
        questions = [one.details["question"] for one in scored for _ in one.details["differences"]]
        accuracy = cross_validated(differences, questions)
        best = dict(zip(SubQuestionType, best_weights(differences).tolist(), strict=True))
        drawn = set(sorted(set(questions))[: self.validation])  # by their hashes, so at random
        found_on = np.array([question in drawn for question in questions])
        held_out: Array | list[float] = (
            points(differences[~found_on], best_weights(differences[found_on])[None]) if found_on.any() else []
        )
        return {
            **({} if accuracy is None else {"cross_validated": accuracy}),
            **({"held_out": float(np.mean(held_out))} if np.size(held_out) else {}),
            **{f"best_{type_.name.lower()}": weight for type_, weight in best.items()},
        }


def _rated_answers(example: dspy.Example, most: int, seed: int) -> list[tuple[str, float]]:
    """The example's answers, each with what people say of it; more is better."""
    if answers := example.get("answers_compared"):
        preference = float(example.preference)
        return list(zip(answers, (preference, -preference), strict=True))
    if not example.get("references"):
        raise NotMeasurable("the question has no answers that people have compared or labelled")
    return [(reference.text, float(reference.label)) for reference in draw_references(example, seed, most)]
