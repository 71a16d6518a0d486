"""Metrics as scorers for `mlflow.genai.evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

import dspy
from pydantic import TypeAdapter

from typedrag.core.errors import NotMeasurable, StepFailed
from typedrag.core.extras import require
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer, Passage, Reference, SubQuestion
from typedrag.metrics import Metric

if TYPE_CHECKING:
    from mlflow.genai.scorers import Scorer


def as_scorer(metric: Metric) -> Scorer:
    """A scorer with the metric's name.

    From a row it takes

    - `inputs`: `question`;
    - `outputs`: the answer as a text, a `dspy.Prediction` of a program, an `Answer` or its fields;
    - `expectations`: the fields of a dataset's example (see `Dataset`), with references as
      `{"text", "label"}` and sub-questions as `{"text", "type"}`; MLflow's own `expected_response` is
      taken as the right answer.

    The feedback has the metric's score, its words as the rationale, and its measures as metadata. Its
    value is None if the example lacks what the metric needs; it is an error if the judge failed.

    Example:
        mlflow.genai.evaluate(data=rows, scorers=[as_scorer(build_metric("linkage", scorer=lm))])
    """
    require("mlflow")
    from mlflow.entities import Feedback
    from mlflow.genai.scorers import scorer

    @scorer(name=metric.name)
    def score(inputs: dict[str, Any], outputs: Any, expectations: dict[str, Any] | None = None) -> Feedback:
        example = to_example(inputs, expectations or {})
        try:
            scored = metric(example, to_prediction(example.question, outputs))
        except NotMeasurable as reason:
            return Feedback(name=metric.name, value=None, rationale=str(reason))
        except StepFailed as failure:
            return Feedback(name=metric.name, error=failure)
        measures = {name: str(value) for name, value in scored.measures.items()}
        return Feedback(name=metric.name, value=scored.score, rationale=scored.feedback, metadata=measures)

    return score


# the types of fields that are no texts
_KINDS: dict[str, Any] = {
    "question_type": QuestionType,
    "references": tuple[Reference, ...],
    "sub_questions": tuple[SubQuestion, ...],
    "answers": tuple[str, ...],
    "passage_ids": tuple[str, ...],
}


def to_example(inputs: Mapping[str, Any], expectations: Mapping[str, Any]) -> dspy.Example:
    """A row of MLflow as a dataset's example.

    Example:
        >>> to_example({"question": "Why?"}, {"references": [{"text": "So.", "label": 3}]}).references
        (Reference(text='So.', label=3),)
    """
    fields = {**inputs, **expectations, "id": str(inputs.get("id") or inputs["question"])}
    if "expected_response" in fields:
        fields.setdefault("answers", (fields.pop("expected_response"),))
    read = {n: TypeAdapter(kind).validate_python(fields[n]) for n, kind in _KINDS.items() if fields.get(n)}
    return dspy.Example(**{**fields, **read}).with_inputs("question")


def to_prediction(question: str, outputs: Any) -> dspy.Prediction:
    """The outputs of a row of MLflow as a program's prediction.

    Example:
        >>> to_prediction("Why?", "So.").answer
        'So.'
    """
    if isinstance(outputs, str):
        outputs_given = {"answer": outputs}
    elif isinstance(outputs, dspy.Prediction):
        outputs_given = dict(outputs.toDict())
    else:
        outputs_given = asdict(outputs) if is_dataclass(outputs) and not isinstance(outputs, type) else dict(outputs)
    empty = Answer(question=question, answer="")
    fields = {**{name: getattr(empty, name) for name in empty.__dataclass_fields__}, **outputs_given}
    fields["passages"] = tuple(p if isinstance(p, Passage) else Passage(**p) for p in fields["passages"])
    return dspy.Prediction(**fields)
