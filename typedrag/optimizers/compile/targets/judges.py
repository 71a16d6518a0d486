"""Judges as targets of their own, on what people said: compiled, they are used only if they agree better with it."""

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
from typedrag.metrics.judges.judgments import Judgments
from typedrag.metrics.judges.linkage import LinkageJudge, stored_rank
from typedrag.metrics.stored import stored_types, stored_verdicts
from typedrag.optimizers.compile.targets.target import Target, of_kind, unfrozen
from typedrag.programs import Program
from typedrag.signatures.fields import Verdict
from typedrag.signatures.keyed import keyed
from typedrag.sub_questions.coverage_judge import CoverageJudge
from typedrag.sub_questions.decomposition import SubQuestionTyper

_EXAMPLES_A_QUESTION = 4
"""Candidates that are ranked for a question at most, each of another label."""


class JudgeTarget(Target):
    """A judge and the labels of people that it is compiled by.

    Attributes:
        kind: The judge's class.
    """

    kind: type[dspy.Module]

    def judge(self) -> dspy.Module:
        """The judge as it is used without compiling."""
        return self.kind()

    def student(self, program: Program | None = None) -> dspy.Module:
        """A new judge, asked by keys; see `Target.student`."""
        return _ByKey(self.judge())

    @abstractmethod
    def metric(self) -> HumanLabels:
        """How near a judgment is to people's, and how well many agree with them."""

    @abstractmethod
    def say(self, judge: dspy.Module, judgments: Judgments, example: dspy.Example) -> dspy.Prediction:
        """What a judge says, or once said, of an example: what the metric measures.

        Raises:
            StepFailed: If no reply can be parsed.
        """

    def put_back(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        """The compiled judge; see `Target.put_back`."""
        judge = compiled.judge if isinstance(compiled, _ByKey) else compiled
        return unfrozen(of_kind(judge, self.kind, self.name))


class LinkageJudgeTarget(JudgeTarget):
    """LINKAGE's judge, on labelled answers: which place has a labelled answer among the references?"""

    name = "linkage-judge"
    about = "LINKAGE's judge: by labelled answers"
    datasets = ("antique", "trec-dl-nf", "wiki-nfqa", "file")
    kind = LinkageJudge

    def __init__(self, convention: Convention | str = Convention.TYPED_RAG) -> None:
        self.convention = Convention(convention)

    def judge(self) -> LinkageJudge:
        """Of this convention."""
        return LinkageJudge(self.convention)

    def student(self, program: Program | None = None) -> LinkageJudge:
        """A new judge."""
        return self.judge()

    def metric(self) -> RankLabels:
        """The distance from the rank by the labels."""
        return RankLabels(convention=self.convention)

    def cases(self, example: dspy.Example) -> Iterator[dspy.Example]:
        """A few labelled answers to the question, no two of one label."""
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

    def say(self, judge: dspy.Module, judgments: Judgments, example: dspy.Example) -> dspy.Prediction:
        """A rank with its probabilities; see `JudgeTarget.say`."""
        said = stored_rank(judge, judgments, **example.inputs().toDict())
        probabilities = dict(enumerate(said.probabilities, 1)) if said.probabilities else None
        return dspy.Prediction(rank=said.rank, probabilities=probabilities)


class CoverageJudgeTarget(JudgeTarget):
    """The judge of coverage, on what people said an answer answers."""

    name = "coverage-judge"
    about = "the judge of sub-question coverage: by what people said an answer answers"
    datasets = ("sub-question-coverage",)
    kind = CoverageJudge

    def metric(self) -> VerdictLabels:
        """Whether the verdicts are those of people."""
        return VerdictLabels()

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """As many sub-questions on an answer as one call judges; see `Target.examples`."""
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

    def say(self, judge: dspy.Module, judgments: Judgments, example: dspy.Example) -> dspy.Prediction:
        """The verdicts; see `JudgeTarget.say`."""
        asked = list(example.sub_questions.values())
        return dspy.Prediction(verdicts=stored_verdicts(judge, judgments, example.text, asked))


class SubQuestionTyperTarget(JudgeTarget):
    """The typer of sub-questions, on the types that people chose."""

    name = "sub-question-typer"
    about = "what types sub-questions: by the types that most people chose"
    datasets = ("sub-question-types",)
    kind = SubQuestionTyper

    def metric(self) -> TypeLabels:
        """The share of right types."""
        return TypeLabels()

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """The sub-questions of a question on whose types people agree; see `Target.examples`."""
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

    def say(self, judge: dspy.Module, judgments: Judgments, example: dspy.Example) -> dspy.Prediction:
        """The types; see `JudgeTarget.say`."""
        asked = list(example.sub_questions.values())
        return dspy.Prediction(types=stored_types(judge, judgments, example.question, asked))


def judge_target(name: str, options: Mapping[str, Any] | None = None) -> JudgeTarget:
    """The target of this name, whose judge has these options, such as LINKAGE's `convention`.

    Raises:
        InputError: If there is none of this name.
    """
    if name == LinkageJudgeTarget.name:
        return LinkageJudgeTarget(**{n: v for n, v in (options or {}).items() if n == "convention"})
    for target in (CoverageJudgeTarget, SubQuestionTyperTarget):
        if name == target.name:
            return target()
    raise InputError(f"no judge that can be compiled is called '{name}'", "See: typedrag compile --help")


class _ByKey(dspy.Module):
    """A judge that takes sub-questions by their keys, as its predictor does.

    So the examples that it is compiled by are demonstrations for the predictor too.
    """

    def __init__(self, judge: dspy.Module) -> None:
        super().__init__()
        self.judge = judge

    def forward(self, sub_questions: Mapping[str, str], **inputs: Any) -> dspy.Prediction:
        """What the judge says of the sub-questions."""
        return self.judge(sub_questions=list(sub_questions.values()), **inputs)


def _in_split(rows: Sequence[dspy.Example], split: str) -> list[dspy.Example]:
    """The rows of a split in which questions stay whole, of which there may be as few as three.

    A quarter of the questions, rounded down, is test and as much validation, each at least one; the
    rest is train.
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
