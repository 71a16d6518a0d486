"""The type of a question."""

import dspy

from typedrag.question_types import QuestionType
from typedrag.signatures.roles import Role, plays


@plays(Role.CLASSIFIER, module="type-classifier")
class ClassifyQuestion(dspy.Signature):  # noqa: D101
    __doc__ = "Name the type of a question by what its asker wants to get. A question that\n" + "\n".join(
        f"- {t.definition} is {t.value}, for example: {t.example}" for t in QuestionType
    )

    question: str = dspy.InputField()
    question_type: QuestionType = dspy.OutputField()
