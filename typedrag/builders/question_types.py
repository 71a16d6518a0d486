"""Questions as people type them, by type and form, for classifiers of question types."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import ClassVar

import dspy
from pydantic import Field, NonNegativeInt, PositiveInt

from typedrag.builders.builder import Builder, Built, OpenLM, Row, usable
from typedrag.core.question_types import QuestionForm, QuestionType
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_lm
from typedrag.runs.work import Failed, Stages
from typedrag.signatures.generation import WriteQuestions
from typedrag.signatures.typed_rag import ClassifyQuestion
from typedrag.text.words import question_key


class QuestionTypes(Builder):
    """Write questions in domains of yours, as people type them, and keep those whose type two labels agree on.

    The result is read by --dataset everyday. An LM that writes good questions is a large one.
    """

    name: ClassVar[str] = "question-types"
    counted: ClassVar[tuple[str, ...]] = ("type", "form")

    domain: tuple[str, ...] = Field(min_length=1)
    """What the questions are about and who asks: "a bank's help pages: pensioners". Repeatable."""
    type: tuple[QuestionType, ...] = tuple(QuestionType)
    """A type to write questions of; repeatable. Default: all."""
    form: tuple[QuestionForm, ...] = tuple(QuestionForm)
    """A form to write them in; repeatable. Default: all."""
    each: PositiveInt = Field(default=5, le=20)
    """Questions of each type and form in each domain."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be read is asked for again."""

    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        """See `Builder.build`."""
        with use_lm(open_lm(None)):
            return build_question_types(stages, self)


Cell = tuple[str, QuestionType, QuestionForm]
"""A domain, a type and a form."""


class QuestionsWriter(dspy.Module):
    """Writes questions of one type and form."""

    def __init__(self, retries: int) -> None:
        super().__init__()
        self.write = dspy.Predict(WriteQuestions)
        self._retries = retries

    def forward(self, domain: str, question_type: QuestionType, form: QuestionForm, number: int) -> Row:
        """The `questions`."""
        kind = f"a question that {question_type.definition}, such as: {question_type.example}"
        looks = f"{form.definition}, such as: {form.example}"
        reply = ask("write", self.write, retries=self._retries, domain=domain, wanted=kind, form=looks, number=number)
        return {"questions": list(reply.prediction.questions.root)}


class QuestionLabeller(dspy.Module):
    """Names the type of a question that somebody else wrote."""

    def __init__(self, retries: int) -> None:
        super().__init__()
        self.classify = dspy.Predict(ClassifyQuestion)
        self._retries = retries

    def forward(self, question: str) -> Row:
        """The `question_type`."""
        reply = ask("classify", self.classify, retries=self._retries, question=question)
        return {"question_type": str(reply.prediction.question_type)}


def build_question_types(
    stages: Stages,
    settings: QuestionTypes,
) -> Built:
    """Write questions and label them a second time, in the layout of dataset `everyday`.

    A question is left out if it repeats another, or if who labels it without knowing what it was written as names
    another type: the questions that stay are clear cases.

    Args:
        stages: Ask the LM in use.

    Raises:
        LMUnavailable: If the LM cannot be used; its texts so far are kept.
    """
    built = Built()
    writer, labeller = QuestionsWriter(settings.retries), QuestionLabeller(settings.retries)
    cells: list[Cell] = list(product(settings.domain, settings.type, settings.form))

    def write(cell: Cell) -> Row:
        domain, question_type, form = cell
        written: Row = writer(domain=domain, question_type=question_type, form=form, number=settings.each)
        return written

    def label(row: Row) -> str:
        return str(labeller(question=row["question"])["question_type"])

    rows = _rows(cells, stages.run("texts", write, cells), built)
    for row, named in usable(rows, stages.run("labels", label, rows), built):
        if named != row["type"]:
            built.left_out["two labels differ"] += 1
        else:
            built.rows.append(row)
    return built


def _rows(cells: Sequence[Cell], written: Sequence[Row | Failed], built: Built) -> list[Row]:
    rows: dict[str, Row] = {}
    for (_, question_type, form), reply in usable(cells, written, built):
        for question in reply["questions"]:
            row = {"question": question.strip(), "type": str(question_type), "form": str(form), "source": "written"}
            if rows.setdefault(question_key(question), row) is not row:
                built.left_out["it repeats another"] += 1
    return list(rows.values())
