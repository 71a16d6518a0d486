"""The make that asks the LM and shows it how questions like this one are labelled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import dspy

from typedrag.datasets import load_dataset, sources
from typedrag.errors import InputError
from typedrag.extras import require
from typedrag.lms.asking import ask
from typedrag.lms.call_settings import with_settings
from typedrag.lms.token_probabilities import call_for_probabilities
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.type_classifiers.classifying import classified_by_lm
from typedrag.programs.typed_rag.type_classifiers.demonstrations import DEMONSTRATIONS
from typedrag.programs.typed_rag.type_classifiers.ngrams import character_ngrams, vectorizer, word_ngrams
from typedrag.signatures import ClassifyQuestion
from typedrag.texts.words import question_key


class NeighboursTypeClassifier(dspy.Module):
    """Names a question's type by asking the LM, with the labelled questions nearest to it as demonstrations.

    Near is what shares n-grams that few questions have; the nearest comes last. They follow those
    demonstrations that the module was compiled with. A labelled question that is the one asked is
    no demonstration of it.

    Args:
        options: See `Options`.
        labelled: What `labelled_questions` reads; by default questions written for the project.

    Raises:
        InputError: If the labelled questions cannot be read.
    """

    def __init__(self, options: Options, labelled: str = "") -> None:
        super().__init__()
        self.classify = dspy.Predict(ClassifyQuestion)
        self._retries = options.retries
        self._k = options.type_neighbours
        self._neighbours = Neighbours(labelled_questions(labelled) if labelled else DEMONSTRATIONS)

    def forward(self, question: str) -> dspy.Prediction:
        """The type that the LM names.

        Raises:
            StepFailed: If its reply cannot be parsed.
            LMUnavailable: If it cannot be reached.
        """
        demos = [*self.classify.demos, *reversed(self._neighbours.of(question, self._k))]
        predictor = with_settings(self.classify, call_for_probabilities())
        reply = ask("classify", predictor, retries=self._retries, question=question, demos=demos)
        return classified_by_lm(question, reply)


class Neighbours:
    """Labelled questions, found by how near they are to another.

    Args:
        examples: Each with `question` and `question_type`.
    """

    def __init__(self, examples: Sequence[dspy.Example]) -> None:
        require("sklearn")
        from sklearn.neighbors import NearestNeighbors
        from sklearn.pipeline import make_union

        self._examples = examples
        self._features = make_union(vectorizer(word_ngrams), vectorizer(character_ngrams))
        features = self._features.fit_transform([e.question for e in examples])
        self._nearest = NearestNeighbors(metric="cosine").fit(features)

    def of(self, question: str, k: int) -> list[dspy.Example]:
        """At most `k`, the nearest first, without the question itself."""
        wanted = min(k + 1, len(self._examples))
        (places,) = self._nearest.kneighbors(self._features.transform([question]), wanted, return_distance=False)
        found = [self._examples[place] for place in places]
        return [e for e in found if question_key(e.question) != question_key(question)][:k]

    def __deepcopy__(self, memo: dict[int, object]) -> Neighbours:
        return self  # copies of a program share it


def labelled_questions(where: str) -> tuple[dspy.Example, ...]:
    """Questions with their types.

    Args:
        where: A .jsonl, .csv or .tsv file with the fields `question` and `question_type`, or the name
            of a dataset, or DATASET:PATH where a copy of it is.

    Raises:
        InputError: If there is none of these, or a question has no type.
    """
    name, _, path = where.partition(":")
    if name in {source.name for source in sources()}:
        dataset = load_dataset(name, Path(path).expanduser() if path else None)
    else:
        dataset = load_dataset("file", Path(where).expanduser())
    examples = [e for e in dataset.examples if e.get("question_type")]
    if len(examples) < len(dataset.examples) or not examples:
        unlabelled = len(dataset.examples) - len(examples)
        raise InputError(f"{where}: {unlabelled} questions have no type", "Give each a question_type")
    return tuple(dspy.Example(question=e.question, question_type=e.question_type) for e in examples)
