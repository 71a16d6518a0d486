"""Judges as targets of their own, on labels of people; a compiled judge is used only if it agrees better with them."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dspy

from typedrag.datasets import SPLITS, Dataset
from typedrag.datasets.dataset import hash_of
from typedrag.datasets.splits import group_of
from typedrag.errors import InputError, NotMeasurable
from typedrag.metrics.arithmetic.ranks import Convention
from typedrag.metrics.judges.human_labels import (
    HumanLabels,
    RankLabels,
    TypeLabels,
    VerdictLabels,
    labelled_answers,
    majority,
)
from typedrag.metrics.judges.linkage import LinkageJudge
from typedrag.optimizers.compile.targets.target import Target, of_kind, unfrozen
from typedrag.programs import Program
from typedrag.signatures.fields import Verdict, keyed
from typedrag.sub_questions.coverage_judge import CoverageJudge
from typedrag.sub_questions.decomposition import SubQuestionTyper

_EXAMPLES_A_QUESTION = 4
"""The most candidates to rank for a question, each with another label."""


class JudgeTarget(Target):
    """A judge, and the labels of people that it is compiled on.

    Attributes:
        kind: The judge's class.
    """

    kind: type[dspy.Module]

    def judge(self) -> dspy.Module:
        """The judge before compiling."""
        return self.kind()

    def student(self, program: Program | None = None) -> dspy.Module:
        """A new judge that takes sub-questions by their keys; see `Target.student`."""
        return _ByKey(self.judge())

    @abstractmethod
    def metric(self) -> HumanLabels:
        """The metric of a judgment's distance from people's, and of a judge's agreement with them."""

    def say(self, judge: dspy.Module, example: dspy.Example) -> dspy.Prediction:
        """The judgment of an example, as the metric takes it.

        Raises:
            StepFailed: If no reply can be parsed.
        """
        inputs = example.inputs().toDict()
        if isinstance(keys := inputs.get("sub_questions"), dict):
            inputs["sub_questions"] = list(keys.values())
        judgment: dspy.Prediction = judge(**inputs)
        return judgment

    def put_back(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        """The compiled judge; see `Target.put_back`."""
        judge = compiled.judge if isinstance(compiled, _ByKey) else compiled
        return unfrozen(of_kind(judge, self.kind, self.name))


class LinkageJudgeTarget(JudgeTarget):
    """LINKAGE's judge, on labelled answers: it ranks a labelled answer among the references."""

    name = "linkage-judge"
    about = "LINKAGE's judge: by labelled answers"
    datasets = ("antique", "trec-dl-nf", "wiki-nfqa", "file")
    kind = LinkageJudge

    def __init__(self, convention: Convention | str = Convention.TYPED_RAG) -> None:
        self.convention = Convention(convention)

    def judge(self) -> LinkageJudge:
        """LINKAGE's judge with this target's convention."""
        return LinkageJudge(self.convention)

    def student(self, program: Program | None = None) -> LinkageJudge:
        """A new judge."""
        return self.judge()

    def metric(self) -> RankLabels:
        """The metric of the distance to the rank by labels."""
        return RankLabels(convention=self.convention)

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
        """The metric that compares verdicts with people's."""
        return VerdictLabels()

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """Examples of an answer with as many sub-questions as one call judges; see `Target.examples`."""
        self.check_dataset(dataset)
        texts: dict[str, list[dspy.Example]] = defaultdict(list)
        for row in _in_split(dataset.examples, split):
            texts[row.answer].append(row)
        size = self.judge().sub_questions_per_call
        parts = [rows[start : start + size] for rows in texts.values() for start in range(0, len(rows), size)]
        return [
            dspy.Example(
                id=rows[0].id,
                question=rows[0].question,
                text=rows[0].answer,
                sub_questions=keyed([row.sub_question for row in rows]),
                verdicts=keyed(Verdict(fragment=row.fragment[:240], answered=row.covered) for row in rows),
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
        """The share of right types."""
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
                sub_questions=keyed([row.sub_question for row in rows]),
                types=keyed(majority(row.annotated_types) for row in rows),
            ).with_inputs("question", "sub_questions")
            for question, rows in questions.items()
        ]


def judge_target(name: str, options: Mapping[str, Any] | None = None) -> JudgeTarget:
    """The target with this name and these options of its judge, such as LINKAGE's `convention`.

    Raises:
        InputError: If no target has this name.
    """
    if name == LinkageJudgeTarget.name:
        return LinkageJudgeTarget(**{n: v for n, v in (options or {}).items() if n == "convention"})
    for target in (CoverageJudgeTarget, SubQuestionTyperTarget):
        if name == target.name:
            return target()
    raise InputError(f"no judge that can be compiled is called '{name}'", "See: typedrag compile --help")


class _ByKey(dspy.Module):
    """A judge that takes sub-questions by their keys, as its predictor does.

    So the examples that it is compiled on can be demonstrations for the predictor.
    """

    def __init__(self, judge: dspy.Module) -> None:
        super().__init__()
        self.judge = judge

    def forward(self, sub_questions: Mapping[str, str], **inputs: Any) -> dspy.Prediction:
        """The judgment of the sub-questions."""
        return self.judge(sub_questions=list(sub_questions.values()), **inputs)


def _in_split(rows: Sequence[dspy.Example], split: str) -> list[dspy.Example]:
    """The rows of a split that keeps the rows of a question together; it needs at least three questions.

    A quarter of the questions, rounded down but at least one, is test; as many are validation; the rest is train.
    """
    if split == "all":
        return list(rows)
    if split not in SPLITS:
        raise InputError(f"no split is called '{split}'", f"Splits: all, {', '.join(SPLITS)}")
    by_group = {group_of(row): row.question for row in sorted(rows, key=lambda row: row.question, reverse=True)}
    questions = sorted(by_group.items(), key=lambda q: hash_of(q[1]))
    quarter = max(1, len(questions) // 4)
    if len(questions) < 3:
        raise InputError(f"labels of {len(questions)} questions cannot be split in three", "Give labels of more")
    bounds = {"test": questions[:quarter], "validation": questions[quarter : 2 * quarter]}
    chosen = {group for group, _ in bounds.get(split, questions[2 * quarter :])}
    return [row for row in rows if group_of(row) in chosen]
