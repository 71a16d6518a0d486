"""Questions as people type them, by type and form, for classifiers of question types."""

from itertools import product

import dspy

from typedrag.builders.builder import Built, OpenLM, Row, usable
from typedrag.builders.settings import QuestionTypesSettings
from typedrag.core.question_types import QuestionForm, QuestionType
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_lm
from typedrag.runs.work import Stages
from typedrag.signatures.generation import WriteQuestions
from typedrag.signatures.typed_rag import ClassifyQuestion
from typedrag.text.words import question_key

Cell = tuple[str, QuestionType, QuestionForm]


class QuestionTypes(QuestionTypesSettings):
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
