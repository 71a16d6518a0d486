"""The results of a run, question by question; reports, comparisons and figures are made from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer, Answered, Usage
from typedrag.lms.cost import Spending
from typedrag.text.words import question_key

if TYPE_CHECKING:
    from typedrag.core.records import Estimate


COSTS: Mapping[str, Callable[[Answer], float | None]] = {
    "tokens": lambda answer: answer.usage.tokens,
    "lm_calls": lambda answer: answer.usage.lm_calls or (None if answer.usage.uncounted else 0),
    "seconds": lambda answer: answer.seconds or None,
}
"""The costs of an answer by name; None if a cost is not known."""


@cache
def _lower_is_better() -> frozenset[str]:
    from typedrag.metrics.defects import Defects

    # covering follow-up sub-questions counts against an answer (sub-question coverage, section 4)
    names = ("rank", "expected_rank", "steps", "follow_up", "invalid", "wrong", "not_answered")
    return frozenset((*names, *Defects.measures))


def higher_is_better(measure: str) -> bool:
    """True if more of a measure is better; less is better for costs and ranks.

    Example:
        >>> [higher_is_better(m) for m in ("linkage/mrr", "linkage/expected_rank", "cost/tokens")]
        [True, False, False]
    """
    metric, _, name = measure.partition("/")
    return metric != "cost" and name not in _lower_is_better()


_WORST = {"truthfulness/truthfulness": -1.0, "truthfulness/wrong": 1.0, "truthfulness/not_answered": 0.0}
"""The values of a wrong answer, if it is not 0 although more is better, or if it is known although less is."""


def value_of_failure(measure: str) -> float | None:
    """The value of an answer that a program failed to give: that of a wrong one, not of one that says that it does not
    know. None if there is no such value, as for ranks and costs.

    Example:
        >>> [value_of_failure(m) for m in ("linkage/mrr", "truthfulness/truthfulness", "linkage/rank", "cost/tokens")]
        [0.0, -1.0, None, None]
    """
    return _WORST.get(measure, 0.0 if higher_is_better(measure) else None)


@dataclass(frozen=True)
class MetricResult:
    """The result of one metric on one answer.

    Attributes:
        score: The score from 0 to 1; None if there is none.
        feedback: The reason in words.
        measures: Numbers by name, such as `mrr`.
        details: All else that the metric gave, as JSON values.
        problem: Why there is no score; empty if there is one.
        measurable: False if the question lacks what the metric needs: such questions are left out, while
            other missing scores count as failures of the judge.
        usage: LM calls and tokens of the judge.
    """

    score: float | None
    feedback: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    measurable: bool = True
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class PlannedQuestion:
    """A question that a run is to answer.

    Attributes:
        id: The id of the example.
        question: The question.
        question_type: The label of the dataset, else the prediction of the dataset or the evaluation's type
            classifier; the same for all programs, so that they are compared on the same strata.
        subset: The subset of the dataset; may be empty.
    """

    id: str
    question: str
    question_type: QuestionType | None
    subset: str = ""


@dataclass(frozen=True)
class QuestionResult(PlannedQuestion):
    """The answer to a question of a run, and its measurements.

    Attributes:
        answer: The answer; None if the program gave none.
        error: Why there is no answer; empty if there is one.
        metrics: Results by the metric's name.
    """

    answer: Answer | None = None
    error: str = ""
    metrics: Mapping[str, MetricResult] = field(default_factory=dict)


@dataclass(frozen=True)
class Tally:
    """Counts of questions by the way in which they were answered.

    Attributes:
        questions: All finished questions.
        failed: Questions without an answer.
        fallbacks: Questions answered by a fallback.
        not_answered: Questions on which the collection says nothing.
        knowledge: Questions answered from the LM's knowledge.
        grounded: Questions answered from passages, with at least one citation.
    """

    questions: int
    failed: int
    fallbacks: int
    not_answered: int
    knowledge: int
    grounded: int

    @classmethod
    def of(cls, answers: Iterable[Answer | None]) -> Tally:
        """The tally of answers; a failed answer is None.

        Example:
            >>> Tally.of([None, Answer("Why?", "So.", answered=Answered.KNOWLEDGE)])
            Tally(questions=2, failed=1, fallbacks=0, not_answered=0, knowledge=1, grounded=0)
        """
        all_ = list(answers)
        successes = [answer for answer in all_ if answer]
        sources = Counter(answer.answered for answer in successes)
        return cls(
            questions=len(all_),
            failed=len(all_) - len(successes),
            fallbacks=sum(bool(answer.fallback) for answer in successes),
            not_answered=sources[Answered.NOTHING],
            knowledge=sources[Answered.KNOWLEDGE],
            grounded=sum(answer.grounded for answer in successes),
        )

    @property
    def answers(self) -> int:
        """The number of answers."""
        return self.questions - self.failed

    def share(self, count: int) -> str:
        """A count of answers with their share, in words.

        Example:
            >>> tally = Tally(questions=21, failed=1, fallbacks=0, not_answered=5, knowledge=0, grounded=15)
            >>> tally.share(tally.not_answered)
            '5 (25 %)'
        """
        return f"{count} ({count / self.answers:.0%})".replace("%", " %") if self.answers else str(count)

    @property
    def sources(self) -> str:
        """The questions not answered from passages, in words.

        Example:
            >>> Tally(questions=20, failed=0, fallbacks=0, not_answered=5, knowledge=1, grounded=10).sources
            "5 (25 %) not answered, 1 (5 %) from the LM's knowledge"
        """
        return f"{self.share(self.not_answered)} not answered, {self.share(self.knowledge)} from the LM's knowledge"


@dataclass(frozen=True)
class JudgeTally:
    """Counts of answers by whether a metric could score them.

    Attributes:
        n: Scored answers.
        failed: Answers for which the judge's reply could not be read.
        not_measurable: Answers to questions that lack what the metric needs.
    """

    n: int
    failed: int
    not_measurable: int

    @classmethod
    def of(cls, results: Sequence[MetricResult]) -> JudgeTally:
        """The tally of a metric's results."""
        counts = Counter((r.measurable, r.score is None) for r in results)
        failed, not_measurable = counts[True, True], counts[False, True]
        return cls(len(results) - failed - not_measurable, failed, not_measurable)


@dataclass(frozen=True)
class Run:
    """A run that was read from its folder, finished or not.

    Attributes:
        settings: Its settings: program, options, LMs, data and its fingerprint, metrics, seed,
            versions, git commit.
        questions: The finished questions, in the order of the dataset's sample.
        planned: The number of questions of the whole run.
        spent: The cost of its answers and judgments, including failed ones.
    """

    name: str
    path: Path
    settings: Mapping[str, Any]
    questions: tuple[QuestionResult, ...]
    planned: int
    spent: Spending = field(default_factory=Spending)

    @property
    def tally(self) -> Tally:
        """Counts of its questions by the way in which they were answered."""
        return Tally.of(q.answer for q in self.questions)

    @property
    def groups(self) -> dict[str, str]:
        """The key of each question by its id: several ids may have one question, and are resampled together."""
        return {q.id: question_key(q.question) for q in self.questions}

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of all measures, as `metric/measure`, in the order of their first occurrence."""
        return tuple(
            dict.fromkeys(f"{m}/{name}" for q in self.questions for m, r in q.metrics.items() for name in r.measures)
        )

    def mean(
        self, measure: str, among: Collection[str] | None = None, seed: int = 0, *, answered: bool = False
    ) -> Estimate | None:
        """The mean of a measure over the questions, by default all, that have a value; None if no question has one.

        See `values` for `answered`.
        """
        from typedrag.metrics.estimate import mean_estimate

        values = self.values(measure, answered=answered)
        values = {i: value for i, value in values.items() if among is None or i in among}
        groups = self.groups
        return mean_estimate(list(values.values()), seed, groups=[groups[i] for i in values])

    def values(self, measure: str, *, answered: bool = False) -> dict[str, float]:
        """The values of a measure, by the ids of questions that have one.

        A question to which the program failed to give an answer has the value of a wrong answer, except for ranks and
        costs: see `value_of_failure`.

        Args:
            measure: As `metric/measure`; the measure `score` is the metric's score. `cost/tokens`,
                `cost/lm_calls` and `cost/seconds` are the program's costs of an answer.
            answered: Leave out the questions without an answer.
        """
        metric, _, name = measure.partition("/")
        if metric == "cost":
            costs = {q.id: COSTS[name](q.answer) for q in self.questions if q.answer}
            return {i: float(cost) for i, cost in costs.items() if cost is not None}
        measured = {q.id: _value(q, metric, name) for q in self.questions if q.answer or not answered}
        if any(value is not None for value in measured.values()) or not self.tally.answers:
            failed = (q for q in self.questions if q.answer is None and not answered and metric not in q.metrics)
            measured |= {q.id: value_of_failure(measure) for q in failed}
        return {i: value for i, value in measured.items() if value is not None}


def _value(question: QuestionResult, metric: str, name: str) -> float | None:
    result = question.metrics.get(metric)
    if result is None:
        return None
    return result.score if name == "score" else result.measures.get(name)
