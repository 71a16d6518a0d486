"""The accuracy with which the rating of coverage predicts what people prefer (sub-question coverage, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any, ClassVar

import dspy
import numpy as np

from typedrag.core.errors import NotMeasurable
from typedrag.core.question_types import SubQuestionType
from typedrag.datasets.dataset import text_hash
from typedrag.lms.trace import run_concurrently
from typedrag.metrics.arithmetic.coverage import CORE_ONLY, Judged, answer_coverage
from typedrag.metrics.arithmetic.preferences import best_weights, cross_validated, points
from typedrag.metrics.feedback import PredictorCall
from typedrag.metrics.judges.linkage import draw_references
from typedrag.metrics.judges.pairwise import PairwiseJudge, compare_in_both_orders
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.metrics.sub_question_coverage import SubQuestionCoverage
from typedrag.text.words import question_key


@metric
class Preference(Metric):
    """Prefers by the rating, and compares with what people prefer among the dataset's own answers to a question.

    It measures the weights of the rating, whatever a program answers: `evaluate` it with the program `reference`, or
    `sweep` over the knobs `rating.core`, `rating.background` and `rating.follow_up`. Two answers to a question are
    compared if the dataset says which is better (`webgpt`, `pairs`); where references have labels, one of each label,
    all with all.

    The measures of a question are shares of its pairs, with half of equal ratings: `accuracy`, the score, by the
    weights; `core_only`, by core coverage alone; and `lm_judge`, by an LM that is asked which of two is better. Over
    all questions, `cross_validated` is the accuracy of the best weights of the paper's grid, found without the
    question that they are measured on; `best_core`, `best_background` and `best_follow_up` are those weights.

    Args:
        scorer: The LM that writes and types sub-questions, and judges if it is asked.
        weights: The weights of core, background and follow-up in the rating.
        lm_judge: Whether to ask the LM, twice for each pair.
        candidates: The most references of a question to compare.
        seed: The seed of the draw of references.
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
        candidates: int = 4,
        seed: int = 0,
        coverage: Mapping[str, Any] | None = None,
    ) -> None:
        self.lm_judge, self.candidates, self.seed = lm_judge, candidates, seed
        super().__init__(scorer)
        self.coverage = SubQuestionCoverage(scorer, weights=weights, **{"passages": False, **(coverage or {})})
        self.compare = PairwiseJudge()

    @classmethod
    def check_scorer(cls, scorer: object | None, **options: Any) -> None:
        """Check that there is a scorer if a judge asks an LM; see `Metric.check_scorer`."""
        if options.get("lm_judge"):
            super().check_scorer(scorer)
        SubQuestionCoverage.check_scorer(scorer, **(options.get("coverage") or {}))

    def require(self, example: dspy.Example, measure: str = "") -> None:
        """Raise `NotMeasurable` if the example has no answers to compare, or nothing knows its sub-questions."""
        _rated_answers(example, self.candidates, self.seed)
        self.coverage.require(example)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Score the rating by the pairs of the example's answers; the prediction is not looked at."""
        answers = _rated_answers(example, self.candidates, self.seed)
        covered = self._coverage(example, [text for text, _ in answers])
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
            measures["lm_judge"] = fmean(
                compare_in_both_orders(
                    self.compare, example.question, answers[better][0], answers[worse][0]
                ).outcome.points
                for better, worse in pairs
            )
        question = text_hash(question_key(example.question))
        return Scored(accuracy, measures=measures, details={"differences": differences.tolist(), "question": question})

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        """Nothing: no predictor changes the dataset's answers."""
        return ""

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        """The best weights of the paper's grid, and the accuracy that such a search reaches on other questions."""
        differences = np.array([pair for one in scored for pair in one.details["differences"]])
        questions = [one.details["question"] for one in scored for _ in one.details["differences"]]
        accuracy = cross_validated(differences, questions)
        best = dict(zip(SubQuestionType, best_weights(differences).tolist(), strict=True))
        return {
            **({} if accuracy is None else {"cross_validated": accuracy}),
            **{f"best_{type_.name.lower()}": weight for type_, weight in best.items()},
        }

    def _coverage(self, example: dspy.Example, texts: Sequence[str]) -> list[np.ndarray[Any, Any]]:
        """The shares of each type's sub-questions that each text covers; 0 of a type without any."""
        coverage = self.coverage
        sub_questions = coverage.sub_questions(example)
        judged = run_concurrently(
            lambda text: coverage.judge(text=text, sub_questions=[s.text for s in sub_questions]).verdicts,
            texts,
            coverage.threads,
        )
        covered = (
            [Judged(s.type, v.answered) for s, v in zip(sub_questions, verdicts, strict=True)] for verdicts in judged
        )
        return [np.array([answer_coverage(one, type_) or 0.0 for type_ in SubQuestionType]) for one in covered]


def _rated_answers(example: dspy.Example, most: int, seed: int) -> list[tuple[str, float]]:
    """The example's answers, each with what people say of it; more is better."""
    if answers := example.get("answers_compared"):
        preference = float(example.preference)
        return list(zip(answers, (preference, -preference), strict=True))
    if not example.get("references"):
        raise NotMeasurable("the question has no answers that people have compared or labelled")
    return [(reference.text, float(reference.label)) for reference in draw_references(example, seed, most)]
