"""Judges as targets of their own, on labels of people; a compiled judge is used only if it agrees better with them."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dspy

from typedrag.core.errors import InputError, NotMeasurable
from typedrag.datasets import SPLITS, Dataset
from typedrag.datasets.dataset import question_group, text_hash
from typedrag.metrics import Metric
from typedrag.metrics.judges.human_labels import (
    Agreement,
    HumanLabels,
    RankLabels,
    TypeLabels,
    VerdictLabels,
    labelled_answers,
    majority,
)
from typedrag.metrics.judges.linkage import Convention, LinkageJudge
from typedrag.optimizers.compile.targets.target import Target, of_kind, unfrozen
from typedrag.programs import Program
from typedrag.signatures.fields import Verdict, add_keys
from typedrag.sub_questions.coverage_judge import CoverageJudge
from typedrag.sub_questions.decomposition import SubQuestionTyper

_EXAMPLES_A_QUESTION = 4
"""The most candidates to rank for a question, each with another label."""


class JudgeTarget(Target):
    """A judge, and the labels of people that it is compiled on.

    Attributes:
        kind: The judge's class.
        options: The options that a judge is made with.
    """

    kind: type[dspy.Module]

    def __init__(self, **options: Any) -> None:
        self.options = options

    @abstractmethod
    def metric(self) -> HumanLabels:
        """The metric of a judgment's distance from people's."""

    def student(self, program: Program | None = None) -> dspy.Module:
        return self.kind(**self.options)

    def put_back(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        return unfrozen(of_kind(compiled, self.kind, self.name))

    def test_metric(self) -> Metric:
        return Agreement(self.metric())

    def test_examples(self, dataset: Dataset) -> list[dspy.Example]:
        """An example for each question of the test split, with all its `cases`."""
        of_question: dict[str, list[dspy.Example]] = defaultdict(list)
        for case in self.examples(dataset, "test"):
            of_question[question_group(case)].append(case)
        return [
            dspy.Example(id=cases[0].id, question=cases[0].question, cases=cases).with_inputs("cases")
            for cases in of_question.values()
            if self.metric().comparable(cases)
        ]

    def tested(self, module: dspy.Module) -> dspy.Module:
        return _OfQuestion(module)


class LinkageJudgeTarget(JudgeTarget):
    """LINKAGE's judge, on labelled answers: it ranks a labelled answer among the references."""

    name = "linkage-judge"
    about = "LINKAGE's judge: by labelled answers"
    datasets = ("antique", "trec-dl-nf", "wiki-nfqa", "file")
    kind = LinkageJudge

    def metric(self) -> RankLabels:
        return RankLabels(convention=Convention(self.options.get("convention", Convention.TYPED_RAG)))

    def cases(self, example: dspy.Example) -> Iterator[dspy.Example]:
        """Yield a few labelled answers to the question, no two with the same label."""
        try:
            answers = labelled_answers(example)
        except NotMeasurable:
            return
        of_label = {answer.candidate.label: answer for answer in reversed(answers)}
        for answer in list(of_label.values())[:_EXAMPLES_A_QUESTION]:
            references = answer.references
            yield dspy.Example(
                id=f"{example.id}/{answer.candidate.label}",
                question=example.question,
                references=[r.text for r in references],
                candidate=answer.candidate.text,
                rank=answer.rank,
                label=answer.candidate.label,
                tied=any(r.label == answer.candidate.label for r in references),
            ).with_inputs("question", "references", "candidate")


class CoverageJudgeTarget(JudgeTarget):
    """The judge of coverage, on people's verdicts of which sub-questions an answer covers."""

    name = "coverage-judge"
    about = "the judge of sub-question coverage: by what people said an answer answers"
    datasets = ("sub-question-coverage",)
    kind = CoverageJudge

    def metric(self) -> VerdictLabels:
        return VerdictLabels()

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """Examples of an answer with as many sub-questions as one call judges; see `Target.examples`."""
        self.check_dataset(dataset)
        texts: dict[str, list[dspy.Example]] = defaultdict(list)
        for row in _in_split(dataset.examples, split):
            texts[row.answer].append(row)
        size = self.student().sub_questions_per_call
        parts = [rows[start : start + size] for rows in texts.values() for start in range(0, len(rows), size)]
        return [
            dspy.Example(
                id=rows[0].id,
                question=rows[0].question,
                text=rows[0].answer,
                sub_questions=add_keys([row.sub_question for row in rows]),
                verdicts=add_keys(Verdict(fragment=row.fragment[:240], answered=row.covered) for row in rows),
            ).with_inputs("text", "sub_questions")
            for rows in parts
        ]


class SubQuestionTyperTarget(JudgeTarget):
    """The typer of sub-questions, on the types that most people chose."""

    name = "sub-question-typer"
    about = "what types sub-questions: by the types that most people chose"
    datasets = ("sub-question-types",)
    kind = SubQuestionTyper

    def metric(self) -> TypeLabels:
        return TypeLabels()

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """Examples of a question with the sub-questions on whose types people agree; see `Target.examples`."""
        self.check_dataset(dataset)
        questions: dict[str, list[dspy.Example]] = defaultdict(list)
        for row in _in_split(dataset.examples, split):
            if majority(row.annotated_types):
                questions[row.question].append(row)
        return [
            dspy.Example(
                id=rows[0].id,
                question=question,
                sub_questions=add_keys([row.sub_question for row in rows]),
                types=add_keys(majority(row.annotated_types) for row in rows),
            ).with_inputs("question", "sub_questions")
            for question, rows in questions.items()
        ]


JUDGES: Mapping[str, type[JudgeTarget]] = {
    target.name: target for target in (LinkageJudgeTarget, CoverageJudgeTarget, SubQuestionTyperTarget)
}
"""The targets by the names of their judges."""


class _OfQuestion(dspy.Module):
    """A judge of all cases of a question, one after the other."""

    def __init__(self, judge: dspy.Module) -> None:
        super().__init__()
        self.judge = judge

    def forward(self, cases: Sequence[dspy.Example]) -> dspy.Prediction:
        return dspy.Prediction(judgments=[self.judge(**case.inputs()) for case in cases])


def _in_split(rows: Sequence[dspy.Example], split: str) -> list[dspy.Example]:
    """The rows of a split that keeps the rows of a question together; it needs at least three questions.

    A quarter of the questions, rounded down but at least one, is test; as many are validation; the rest is train.
    """
    if split == "all":
        return list(rows)
    if split not in SPLITS:
        raise InputError(f"no split is called '{split}'", f"Splits: all, {', '.join(SPLITS)}")
    by_group = {question_group(row): row.question for row in sorted(rows, key=lambda row: row.question, reverse=True)}
    questions = sorted(by_group.items(), key=lambda q: text_hash(q[1]))
    quarter = max(1, len(questions) // 4)
    if len(questions) < 3:
        raise InputError(f"labels of {len(questions)} questions cannot be split in three", "Give labels of more")
    bounds = {"test": questions[:quarter], "validation": questions[quarter : 2 * quarter]}
    chosen = {group for group, _ in bounds.get(split, questions[2 * quarter :])}
    return [row for row in rows if question_group(row) in chosen]
