"""Questions as people type them, by type and form, for classifiers of question types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import dspy
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from typedrag.builders.rows import Built, Row, why
from typedrag.lms.asking import ask
from typedrag.metrics.judges.judgments import Judgments
from typedrag.question_types import QuestionForm, QuestionType
from typedrag.runs.work import Failed, run_each
from typedrag.signatures import ClassifyQuestion, WriteQuestions
from typedrag.texts.words import question_key


class QuestionTypesSettings(BaseModel):
    """The settings of questions by type and form."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    domains: tuple[str, ...] = Field(min_length=1)
    """What the questions are about, and who asks them: "a hospital's guidelines: nurses on shift"."""
    types: tuple[QuestionType, ...] = tuple(QuestionType)
    """The types of questions."""
    forms: tuple[QuestionForm, ...] = tuple(QuestionForm)
    """The forms of questions."""
    each: PositiveInt = Field(default=5, le=20)
    """Questions to write of each type and form in each domain."""
    retries: NonNegativeInt = 2
    """The number of times that a reply which cannot be read is asked for again."""


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
    store: Judgments,
    settings: QuestionTypesSettings,
    *,
    threads: int = 16,
    on_done: Callable[[int], None] = lambda done: None,
) -> Built:
    """Write questions and label them a second time, in the layout of dataset `everyday`.

    A question is left out if it repeats another, or if who labels it without knowing what it was written as names
    another type: the questions that stay are clear cases.

    Args:
        store: Keeps the LM's texts: after a kill, the same call pays only for missing ones.

    Raises:
        LMUnavailable: If the LM cannot be used; its texts so far are kept.
    """
    built = Built()
    writer, labeller = QuestionsWriter(settings.retries), QuestionLabeller(settings.retries)
    cells: list[Cell] = list(product(settings.domains, settings.types, settings.forms))

    def write(cell: Cell) -> Row:
        domain, question_type, form = cell
        inputs = {"domain": domain, "question_type": question_type, "form": form, "number": settings.each}
        return store.get_or_make(writer, inputs, lambda: writer(**inputs))

    def label(row: Row) -> Row:
        inputs = {"question": row["question"]}
        return store.get_or_make(labeller, inputs, lambda: labeller(**inputs))

    rows = _rows(cells, run_each(write, cells, threads, on_done), built)
    labels = run_each(label, rows, threads, lambda done: on_done(len(cells) + done))
    for row, label_row in zip(rows, labels, strict=True):
        if isinstance(label_row, Failed):
            built.left_out[why(label_row)] += 1
        elif label_row["question_type"] != row["type"]:
            built.left_out["two labels differ"] += 1
        else:
            built.rows.append(row)
    return built


def _rows(cells: Sequence[Cell], written: Sequence[Row | Failed], built: Built) -> list[Row]:
    rows: dict[str, Row] = {}
    for (_, question_type, form), reply in zip(cells, written, strict=True):
        if isinstance(reply, Failed):
            built.left_out[why(reply)] += 1
            continue
        for question in reply["questions"]:
            row = {"question": question.strip(), "type": str(question_type), "form": str(form), "source": "written"}
            if rows.setdefault(question_key(question), row) is not row:
                built.left_out["it repeats another"] += 1
    return list(rows.values())
