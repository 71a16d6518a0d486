"""The yardstick that needs no LM: how near an answer is to its question, and to a good reference.

What a judge is worth shows beside it: on ANTIQUE the similarity of question and answer follows the
human labels better than a bare judge of 1.5 billion parameters does.
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
    """Cosines between the answer and the question, and the best reference where there is one.

    The score is that with the reference, without one that with the question, and 0 where it is negative. Measures:
    `question`, and `reference`: of the references with the highest label the one that is nearest.
    """

    name: ClassVar[str] = "similarity"
    measures = ("question", "reference")

    model: str = BI_ENCODER

    def require(self, example: dspy.Example, measure: str = "") -> None:
        """`NotMeasurable` for `reference` if there is none."""
        if measure == "reference" and not best_references(example):
            raise NotMeasurable("the question has no references")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare the texts."""
        measures = {"question": cosine(example.question, prediction.answer, self.model)}
        if references := best_references(example):
            measures["reference"] = max(cosine(r, prediction.answer, self.model) for r in references)
        said = ", ".join(f"{value:.2f} with the {name}" for name, value in measures.items())
        score = measures.get("reference", measures["question"])
        return Scored(min(max(score, 0.0), 1.0), f"Cosine {said}", measures)
