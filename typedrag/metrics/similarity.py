"""The similarity of an answer to long references: ROUGE, com-ROUGE and BERTScore (RichRAG, section 4.1); embeddings.

ROUGE is that of `rouge-score`, whose words have only the letters a to z and digits; here they may have letters of all
scripts, which changes nothing for English. RichRAG's authors take the package `rouge`: case counts, punctuation is part
of words, an n-gram counts once, and ROUGE-L goes by the distinct words that sentences share. The
similarity of embeddings is a baseline: a judge should do better.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal, get_args

import dspy
import numpy as np

from typedrag.core.errors import InputError, NotMeasurable, Unavailable
from typedrag.core.extras import import_extras
from typedrag.lms import models
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.metrics.overlap import best_references, gold_texts, sub_answers
from typedrag.retrieval.local_models import loading, local_model
from typedrag.retrieval.rerankers import BI_ENCODER, cosines
from typedrag.text.words import split_words

Part = Literal["precision", "recall", "fmeasure"]
Package = Literal["rouge-score", "rouge"]
KINDS = ("rouge2", "rougeL")


def rouge(
    text: str, reference: str, part: Part = "fmeasure", stemmer: bool = False, package: Package = "rouge-score"
) -> dict[str, float]:
    """ROUGE-2 and ROUGE-L of a text against a reference; with a stemmer, words with the same Porter stem are equal."""
    if package == "rouge":
        with import_extras("rouge"):
            from rouge import Rouge as Scorer
        try:
            [scores] = Scorer(["rouge-2", "rouge-l"], stats=[part[0]]).get_scores(text, reference)
        except (ValueError, RecursionError):  # no words, or a sentence of too many: 0, as in RichRAG's code
            return dict.fromkeys(KINDS, 0.0)
        return {kind: float(values[part[0]]) for kind, values in zip(KINDS, scores.values(), strict=True)}
    scores = rouge_scorer(KINDS, stemmer).score(reference, text)
    return {kind: float(getattr(scores[kind], part)) for kind in KINDS}


def com_rouge(
    text: str,
    answers: Sequence[str],
    part: Part = "recall",
    stemmer: bool = False,
    package: Package = "rouge-score",
) -> dict[str, float]:
    """The coverage of the answers to a question's sub-aspects by a text, weighted by their length (eq. 11). The paper
    does not say which part of ROUGE it means. Here it is recall, as in its authors' code: the F-measure of a text that
    covers all sub-answers would fall with their number."""
    lengths = [len(answer.split()) for answer in answers]
    if not sum(lengths):
        raise ValueError("no sub-answer has a word")
    scores = [rouge(text, answer, part, stemmer, package) for answer in answers]
    return {kind: float(np.average([s[kind] for s in scores], weights=lengths)) for kind in KINDS}


@cache
def rouge_scorer(kinds: tuple[str, ...], stemmer: bool = False) -> Any:
    with import_extras("rouge_score"):
        from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(kinds), tokenizer=_Tokenizer(stemmer))


class _Tokenizer:
    """A tokenizer like rouge-score's own, for texts of all scripts."""

    def __init__(self, stemmer: bool) -> None:
        with import_extras("nltk"):
            from nltk.stem.porter import PorterStemmer

        self._stemmer = PorterStemmer() if stemmer else None

    def tokenize(self, text: str) -> list[str]:
        words = split_words(text)
        if self._stemmer is None:
            return words
        return [self._stemmer.stem(word) if len(word) > 3 else word for word in words]


@metric
class Rouge(Metric):
    """F-measures of ROUGE against the gold answers, or else the best references. Measures: `rouge2`, `rougeL`.

    Each is that against the text that fits best; the score is their mean. For `stemmer` see `rouge`. `package` is
    the package that counts, which has no stemmer if it is `rouge`, that of RichRAG's authors.
    """

    name: ClassVar[str] = "rouge"
    measures = KINDS
    needs = gold_texts

    stemmer: bool = False
    package: Package = "rouge-score"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.package not in (packages := get_args(Package)):
            raise InputError(f"no package '{self.package}' counts ROUGE", f"Name one of: {', '.join(packages)}")
        if self.package == "rouge" and self.stemmer:
            raise InputError("the package rouge has no stemmer", "Leave out stemmer, or package")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        texts = gold_texts(example)
        scores = [rouge(prediction.answer, text, stemmer=self.stemmer, package=self.package) for text in texts]
        values = {kind: max(s[kind] for s in scores) for kind in KINDS}
        return Scored(fmean(values.values()), f"A good answer: {texts[0]}", values)


@metric
class ComRouge(Rouge):
    """Coverage of the example's `sub_answers`. Measures: `rouge2`, `rougeL`."""

    name: ClassVar[str] = "com-rouge"
    needs = sub_answers

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        answers = sub_answers(example)
        values = com_rouge(prediction.answer, answers, stemmer=self.stemmer, package=self.package)
        least = min(answers, key=lambda a: rouge(prediction.answer, a, "recall", self.stemmer, self.package)["rougeL"])
        return Scored(fmean(values.values()), f"Least covered: {least}", values)


MODEL = "roberta-large"
"""The default of bert-score for English."""
_NO_LIMIT = 10**6
"""A tokenizer whose limit is above this does not know its limit."""


def bertscore(text: str, references: Sequence[str], model: str = MODEL, layer: int | None = None) -> dict[str, float]:
    """Precision, recall and F1 of BERTScore, not rescaled, against the reference that fits best; an empty text scores
    0."""
    references = [r for r in references if r.strip()]
    if not references or not text.strip():
        return {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    with _scorer(model, layer) as scorer:
        precision, recall, f1 = scorer.score([text], [references])
    return {"precision": float(precision[0]), "recall": float(recall[0]), "f1": float(f1[0])}


@local_model
def _scorer(model: str, layer: int | None) -> Any:
    with import_extras("bert_score"), loading(f"the model '{model}' for BERTScore", error=Unavailable):
        from bert_score import BERTScorer
        from bert_score.utils import model2layers
        from transformers import AutoConfig

        place = str(models.fetch(model) if model in models.MODELS else Path(model).expanduser())
        config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        if layer is None:
            layer = model2layers.get(model, config.num_hidden_layers)
        scorer = BERTScorer(model_type=place, num_layers=layer)
        if scorer._tokenizer.model_max_length > _NO_LIMIT:  # bert-score passes it on, and it does not fit an int
            scorer._tokenizer.model_max_length = config.max_position_embeddings
        return scorer


@metric
class BERTScore(Metric):
    """BERTScore against the gold answers, or else the best references.

    The score is F1, or 0 if that is negative. Measures: `precision`, `recall`, `f1`.

    Args:
        model: One that `typedrag models` knows, a folder, or a name of the Hugging Face hub.
        layer: The layer whose embeddings are compared; by default the one that bert-score recommends
            for the model, or the last.
    """

    name: ClassVar[str] = "bertscore"
    measures = ("precision", "recall", "f1")
    needs = gold_texts

    model: str = MODEL
    layer: int | None = None

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        texts = gold_texts(example)
        values = bertscore(prediction.answer, texts, self.model, self.layer)
        return Scored(min(max(values["f1"], 0.0), 1.0), f"A good answer: {texts[0]}", values)


def cosine(text: str, other: str, model: str = BI_ENCODER) -> float:
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
        if measure == "reference" and not best_references(example):
            raise NotMeasurable("the question has no references")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        measures = {"question": cosine(example.question, prediction.answer, self.model)}
        if references := best_references(example):
            measures["reference"] = max(cosine(r, prediction.answer, self.model) for r in references)
        text = ", ".join(f"{value:.2f} with the {name}" for name, value in measures.items())
        score = measures.get("reference", measures["question"])
        return Scored(min(max(score, 0.0), 1.0), f"Cosine {text}", measures)
