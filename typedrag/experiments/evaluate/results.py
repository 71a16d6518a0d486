"""What a run found out, question by question: what reports, comparisons and figures are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typedrag.lms.spending import Spending
from typedrag.question_types import QuestionType
from typedrag.records import Answer, Answered, Usage
from typedrag.texts.words import question_key

if TYPE_CHECKING:
    from typedrag.records import Estimate


COSTS: Mapping[str, Callable[[Answer], float | None]] = {
    "tokens": lambda answer: answer.usage.tokens,
    "lm_calls": lambda answer: answer.usage.lm_calls,
    "seconds": lambda answer: answer.seconds,
}
"""What an answer took, by name; None where that is not known."""


@dataclass(frozen=True)
class MetricResult:
    """What one metric says about one answer.

    Attributes:
        score: From 0 to 1; None if there is none.
        feedback: Why, in words.
        measures: Numbers by name, such as `mrr`.
        details: All else that the metric gave, as JSON values.
        problem: Empty, or why there is no score.
        measurable: False if the question has nothing that the metric measures by: such questions
            are left out; others without a score are failures of the judge, which are counted.
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
        id: Of the example.
        question: As asked.
        question_type: As the dataset labels it, else as it or the type classifier of the evaluation predicts
            it; the same for all programs, so that they are compared on the same strata.
        subset: Of the dataset; may be empty.
    """

    id: str
    question: str
    question_type: QuestionType | None
    subset: str = ""


@dataclass(frozen=True)
class QuestionResult(PlannedQuestion):
    """What became of a question of a run.

    Attributes:
        answer: None if the program gave none.
        error: Why there is no answer; empty if there is one.
        metrics: By the metric's name.
    """

    answer: Answer | None = None
    error: str = ""
    metrics: Mapping[str, MetricResult] = field(default_factory=dict)


@dataclass(frozen=True)
class Tally:
    """How questions were answered.

    Attributes:
        questions: Done.
        failed: Without an answer.
        fallbacks: Answered by a fallback.
        not_answered: The collection says nothing on them.
        knowledge: Answered from what the LM knows.
        grounded: Answered from passages of which one is cited at least.
    """

    questions: int
    failed: int
    fallbacks: int
    not_answered: int
    knowledge: int
    grounded: int

    @classmethod
    def of(cls, answers: Iterable[Answer | None]) -> Tally:
        """The tally of answers, None for each that failed.

        Example:
            >>> Tally.of([None, Answer("Why?", "So.", answered=Answered.KNOWLEDGE)])
            Tally(questions=2, failed=1, fallbacks=0, not_answered=0, knowledge=1, grounded=0)
        """
        all_ = list(answers)
        given = [answer for answer in all_ if answer]
        sources = Counter(answer.answered for answer in given)
        return cls(
            questions=len(all_),
            failed=len(all_) - len(given),
            fallbacks=sum(bool(answer.fallback) for answer in given),
            not_answered=sources[Answered.NOTHING],
            knowledge=sources[Answered.KNOWLEDGE],
            grounded=sum(answer.grounded for answer in given),
        )

    def share(self, count: int) -> str:
        """A number of the answers, and their share.

        Example:
            >>> tally = Tally(questions=21, failed=1, fallbacks=0, not_answered=5, knowledge=0, grounded=15)
            >>> tally.share(tally.not_answered)
            '5 (25 %)'
        """
        answers = self.questions - self.failed
        return f"{count} ({count / answers:.0%})".replace("%", " %") if answers else str(count)

    @property
    def sources(self) -> str:
        """What was not answered from passages, in words.

        Example:
            >>> Tally(questions=20, failed=0, fallbacks=0, not_answered=5, knowledge=1, grounded=10).sources
            "5 (25 %) not answered, 1 (5 %) from the LM's knowledge"
        """
        return f"{self.share(self.not_answered)} not answered, {self.share(self.knowledge)} from the LM's knowledge"


@dataclass(frozen=True)
class JudgeTally:
    """How many answers a metric scored.

    Attributes:
        n: Answers that it scored.
        failed: Answers that its judge could not be read for.
        not_measurable: Answers to questions that have nothing it measures by.
    """

    n: int
    failed: int
    not_measurable: int

    @classmethod
    def of(cls, results: Sequence[MetricResult]) -> JudgeTally:
        """The tally of what a metric said."""
        counts = Counter((r.measurable, r.score is None) for r in results)
        failed, not_measurable = counts[True, True], counts[False, True]
        return cls(len(results) - failed - not_measurable, failed, not_measurable)


@dataclass(frozen=True)
class Run:
    """A run that has been read from its folder, finished or not.

    Attributes:
        settings: What it was made with: program, options, LMs, data and its fingerprint, metrics,
            seed, versions, git commit.
        questions: Those done so far, in the order of the dataset's sample.
        planned: How many questions it is to have.
        spent: On its answers and judgments, failed ones counted in.
    """

    name: str
    path: Path
    settings: Mapping[str, Any]
    questions: tuple[QuestionResult, ...]
    planned: int
    spent: Spending = field(default_factory=Spending)

    @property
    def tally(self) -> Tally:
        """How its questions were answered."""
        return Tally.of(q.answer for q in self.questions)

    @property
    def groups(self) -> dict[str, str]:
        """For each question id what it is resampled with: the question, which several ids may ask."""
        return {q.id: question_key(q.question) for q in self.questions}

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of all measures, as `metric/measure`, in the order they were met."""
        return tuple(
            dict.fromkeys(f"{m}/{name}" for q in self.questions for m, r in q.metrics.items() for name in r.measures)
        )

    def mean(self, measure: str, among: Collection[str] | None = None, seed: int = 0) -> Estimate | None:
        """The mean of a measure over the questions, by default all, that have a value; None of no values."""
        from typedrag.metrics.arithmetic.estimate import mean_estimate

        found = {i: value for i, value in self.values(measure).items() if among is None or i in among}
        groups = self.groups
        return mean_estimate(list(found.values()), seed, groups=[groups[i] for i in found])

    def values(self, measure: str) -> dict[str, float]:
        """A measure's value for each question id that has one.

        Args:
            measure: As `metric/measure`; `score` is a metric's own. `cost/tokens`, `cost/lm_calls` and
                `cost/seconds` are the program's for the answer.
        """
        metric, _, name = measure.partition("/")
        if metric == "cost":
            costs = {q.id: COSTS[name](q.answer) for q in self.questions if q.answer}
            return {i: float(cost) for i, cost in costs.items() if cost is not None}
        results = {q.id: q.metrics[metric] for q in self.questions if metric in q.metrics}
        if name == "score":
            return {i: r.score for i, r in results.items() if r.score is not None}
        return {i: r.measures[name] for i, r in results.items() if name in r.measures}
