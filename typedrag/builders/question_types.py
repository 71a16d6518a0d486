"""Questions as people type them, by type and form, for classifiers of question types."""

from itertools import product
from typing import ClassVar

import dspy
from pydantic import Field, NonNegativeInt, PositiveInt

from typedrag.builders.builder import Builder, Built, OpenLM, Row, usable
from typedrag.core.question_types import QuestionForm, QuestionType
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_lm
from typedrag.runs.work import Stages
from typedrag.signatures.generation import WriteQuestions
from typedrag.signatures.typed_rag import ClassifyQuestion
from typedrag.text.words import question_key

Cell = tuple[str, QuestionType, QuestionForm]


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
        """Write questions and label them a second time: only clear cases stay."""
        built = Built()
        write, classify = dspy.Predict(WriteQuestions), dspy.Predict(ClassifyQuestion)

        def write_questions(cell: Cell) -> list[str]:
            domain, question_type, form = cell
            reply = ask(
                "write", write, retries=self.retries, domain=domain, number=self.each,
                wanted=f"a question that {question_type.definition}, such as: {question_type.example}",
                form=f"{form.definition}, such as: {form.example}",
            )  # fmt: skip
            return list(reply.prediction.questions.root)

        def label(row: Row) -> str:
            reply = ask("classify", classify, retries=self.retries, question=row["question"])
            return str(reply.prediction.question_type)

        cells: list[Cell] = list(product(self.domain, self.type, self.form))
        rows: dict[str, Row] = {}
        with use_lm(open_lm(None)):
            for (_, question_type, form), questions in usable(
                cells, stages.run("texts", write_questions, cells), built
            ):
                for question in questions:
                    named = {"type": str(question_type), "form": str(form)}
                    row = {"question": question.strip(), **named, "source": "written"}
                    if rows.setdefault(question_key(question), row) is not row:
                        built.left_out["it repeats another"] += 1
            written = list(rows.values())
            for row, kind in usable(written, stages.run("labels", label, written), built):
                if kind != row["type"]:
                    built.left_out["two labels differ"] += 1
                else:
                    built.rows.append(row)
        return built
