"""A baseline that needs no LM: the similarity of an answer to its question, and to a good reference.

A judge should do better: on ANTIQUE, the similarity of question and answer agrees with human labels
better than an uncompiled judge of 1.5 billion parameters.
"""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.errors import NotMeasurable
from typedrag.metrics.gold import best_references
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.retrieval.cosines import cosines
from typedrag.retrieval.rerank.rerankers import BI_ENCODER


def cosine(text: str, other: str, model: str = BI_ENCODER) -> float:
    """The cosine between the embeddings of two texts; see `cosines`."""
    return cosines(text, [other], model)[0]


@metric
class Similarity(Metric):
    """Cosines of the answer with the question, and with the best reference if there is one.

    The score is the cosine with the reference, or without one with the question, and 0 if that is negative.
    Measures: `question`, and `reference`, with the nearest of the references that have the highest label.
    """

    name: ClassVar[str] = "similarity"
    measures = ("question", "reference")

    model: str = BI_ENCODER

    def require(self, example: dspy.Example, measure: str = "") -> None:
        """Raise `NotMeasurable` for the measure `reference` if there is no reference."""
        if measure == "reference" and not best_references(example):
            raise NotMeasurable("the question has no references")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare the texts."""
        measures = {"question": cosine(example.question, prediction.answer, self.model)}
        if references := best_references(example):
            measures["reference"] = max(cosine(r, prediction.answer, self.model) for r in references)
        text = ", ".join(f"{value:.2f} with the {name}" for name, value in measures.items())
        score = measures.get("reference", measures["question"])
        return Scored(min(max(score, 0.0), 1.0), f"Cosine {text}", measures)
