"""The results of a run, question by question, its summary, and how both are kept in its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer, Answered, Usage
from typedrag.lms.cost import Spending
from typedrag.runs.folder import FILE, Contents, Result, read_folder
from typedrag.text.words import question_key

if TYPE_CHECKING:
    from typedrag.core.records import Estimate
    from typedrag.metrics import Metric

KIND = "evaluation"
METRIC = "metric "  # the prefix of settings that may be added when a run is continued: further metrics
ANSWERS, AGAIN = "answers", "made again"  # the step that answers, beside those of metrics; what failures have cost
SpendingRecords = list[tuple[str, Spending]]  # on each answer and judgment: `ANSWERS`, the metric's name, or `AGAIN`
COSTS: Mapping[str, Callable[[Answer], float | None]] = {
    "tokens": lambda answer: answer.usage.tokens,
    "lm_calls": lambda answer: answer.usage.lm_calls or (None if answer.usage.uncounted else 0),
    "seconds": lambda answer: answer.seconds or None,
}
FEWEST = 5  # questions of a type or subset of which numbers are shown by themselves
# the values of a wrong answer, if it is not 0 although more is better, or is known although less is
_WORST = {"truthfulness/truthfulness": -1.0, "truthfulness/wrong": 1.0, "truthfulness/not_answered": 0.0}


def higher_is_better(measure: str) -> bool:
    """True if more of a measure is better; less is better for costs and ranks.

    Example:
        >>> [higher_is_better(m) for m in ("linkage/mrr", "linkage/expected_rank", "cost/tokens")]
        [True, False, False]
    """
    from typedrag.metrics.defects import Defects

    metric, _, name = measure.partition("/")
    # covering follow-up sub-questions counts against an answer (sub-question coverage, section 4)
    lower = ("rank", "expected_rank", "steps", "follow_up", "invalid", "wrong", "not_answered", *Defects.measures)
    return metric != "cost" and name not in lower


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

    Its type is the label of the dataset, else the prediction of the dataset or the evaluation's type classifier: the
    same for all programs, so that they are compared on the same strata.
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
    """Counts of questions by the way in which they were answered: from passages with a citation (`grounded`), from what
    the LM knows, not since the collection says nothing (`not_answered`), by a fallback, or not at all (`failed`)."""

    questions: int
    failed: int
    fallbacks: int
    not_answered: int
    knowledge: int
    grounded: int

    @classmethod
    def of(cls, answers: Iterable[Answer | None]) -> Tally:
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
        """The questions not answered from passages, in words."""
        return f"{self.share(self.not_answered)} not answered, {self.share(self.knowledge)} from the LM's knowledge"


@dataclass(frozen=True)
class JudgeTally:
    """Counts of answers by whether a metric scored them (`n`), its judge's reply could not be read, or the question
    lacks what the metric needs."""

    n: int
    failed: int
    not_measurable: int

    @classmethod
    def of(cls, results: Sequence[MetricResult]) -> JudgeTally:
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
        measured: dict[str, float | None] = {}
        for q in self.questions:
            if q.answer or not answered:
                result = q.metrics.get(metric, MetricResult(None))
                measured[q.id] = result.score if name == "score" else result.measures.get(name)
        if any(value is not None for value in measured.values()) or not self.tally.answers:
            failed = (q for q in self.questions if q.answer is None and not answered and metric not in q.metrics)
            measured |= {q.id: value_of_failure(measure) for q in failed}
        return {i: value for i, value in measured.items() if value is not None}


def read_run(folder: Path) -> Run:
    """Read the run in a folder, finished or still in the making."""
    return restore_run(read_folder(folder), folder)


def read_records(folder: Path) -> tuple[Mapping[str, Any], SpendingRecords]:
    """The settings of the run in a folder, and what was spent on each answer and each judgment, in all tries."""
    contents = read_folder(folder)
    records = [(result.step, result.spent) for result in contents.results]
    return contents.identity, records + ([(AGAIN, contents.forgotten)] if contents.forgotten.usage.lm_calls else [])


def spent_below(folder: Path) -> Spending:
    """The spending on all runs in a folder and below it, in all tries."""
    return sum((read_folder(file.parent).spent for file in folder.rglob(FILE)), Spending())


def question_items(questions: Sequence[PlannedQuestion]) -> dict[str, Any]:
    return {q.id: {name: value for name, value in asdict(q).items() if name != "id"} for q in questions}


def metric_value(result: MetricResult) -> dict[str, Any] | None:
    """A metric's result as a JSON value; None if there is no score."""
    values = {"score": result.score, "feedback": result.feedback, "measures": dict(result.measures)}
    return None if result.score is None else {**values, "details": dict(result.details)}


def restore_run(contents: Contents, folder: Path) -> Run:
    answers: dict[str, Result] = {}
    metrics: dict[str, dict[str, MetricResult]] = {}
    for result in contents.results:
        if result.step == ANSWERS:
            answers[result.item] = result
        else:
            metrics.setdefault(result.item, {})[result.step] = MetricResult(
                **(result.value or {"score": None}),
                problem=result.problem,
                measurable=not result.skipped,
                usage=result.spent.usage,
            )
    return Run(
        name=contents.notes.get("name") or folder.resolve().name,
        path=folder,
        settings={**contents.notes, **contents.identity},
        questions=tuple(
            QuestionResult(
                id_,
                item["question"],
                QuestionType(item["question_type"]) if item["question_type"] else None,
                item["subset"],
                Answer.from_dict(answer.value) if answer.value else None,
                answer.problem,
                metrics.get(id_, {}),
            )
            for id_, item in contents.items.items()
            if (answer := answers.get(id_))
        ),
        planned=len(contents.items),
        spent=contents.spent,
    )


@dataclass(frozen=True)
class MetricSummary(JudgeTally):
    """Counts of the answers that a metric scored, and its measures by name: in means a question without an answer has
    the value of a wrong one, see `value_of_failure`. `answered` are those over answered questions, if others. `score`
    is the mean score, with 0 for a question without an answer; None if there is none."""

    measures: Mapping[str, float]
    answered: Mapping[str, float]
    score: float | None = None

    def headline(self, metric: str) -> float | None:
        """The measure that has the metric's name, else the only one, else the score."""
        only = [*self.measures.values()] if len(self.measures) == 1 else [self.score]
        return self.measures.get(metric, only[0])


@dataclass(frozen=True)
class GroupSummary(Tally):
    """A summary of questions: their tally, the mean `tokens`, `lm_calls` and `seconds` of an answer, and their
    metrics by name."""

    cost: Mapping[str, float]
    metrics: Mapping[str, MetricSummary]


@dataclass(frozen=True)
class RunSummary:
    """A run in numbers: over all questions, by question type, and by subset if the dataset has any."""

    name: str
    planned: int
    overall: GroupSummary
    types: Mapping[str, GroupSummary]
    subsets: Mapping[str, GroupSummary]
    spent: Spending
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON values; `spent.cost` is None if no price is known."""
        data = asdict(self)
        return {**data, "spent": {**asdict(self.spent.usage), "cost": self.spent.cost, "unpriced": self.spent.unpriced}}


def summarize(run: Run, metrics: Mapping[str, Metric]) -> RunSummary:
    """Sum up a run, finished or not, by these metrics."""

    def groups(name_group: Callable[[QuestionResult], str]) -> dict[str, GroupSummary]:
        names = sorted({name_group(q) for q in run.questions} - {""})
        return {name: _group([q for q in run.questions if name_group(q) == name], metrics) for name in names}

    return RunSummary(
        name=run.name,
        planned=run.planned,
        overall=_group(run.questions, metrics),
        types=groups(lambda q: str(q.question_type or "")),
        subsets=groups(lambda q: q.subset),
        spent=run.spent,
        settings=run.settings,
    )


def _group(questions: Sequence[QuestionResult], metrics: Mapping[str, Metric]) -> GroupSummary:
    from typedrag.metrics import Scored

    answers = [q.answer for q in questions if q.answer]
    costs = {name: [cost for a in answers if (cost := of(a)) is not None] for name, of in COSTS.items()}
    summaries = {}
    for name, metric in metrics.items():
        results = [q.metrics[name] for q in questions if name in q.metrics]
        scored = [Scored(r.score, r.feedback, r.measures, r.details) for r in results if r.score is not None]
        measures = metric.summarize(scored) if scored else {}
        failures = sum(q.answer is None and name not in q.metrics for q in questions)
        with_failures = {}
        for measure, mean in measures.items():
            n, worst = sum(measure in one.measures for one in scored), value_of_failure(f"{name}/{measure}")
            if failures and n and worst is not None:
                with_failures[measure] = (n * mean + failures * worst) / (n + failures)
        summaries[name] = MetricSummary(
            **vars(JudgeTally.of(results)),
            measures={**measures, **with_failures},
            answered={measure: measures[measure] for measure in with_failures},
            score=sum(one.score for one in scored) / (len(scored) + failures) if scored else None,
        )
    return GroupSummary(
        **vars(Tally.of(q.answer for q in questions)),
        cost={name: fmean(values) for name, values in costs.items() if values},
        metrics=summaries,
    )
