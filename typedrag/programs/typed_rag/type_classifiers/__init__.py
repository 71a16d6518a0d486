"""Type classifiers: modules that name the type of a question.

Each is a `dspy.Module` that takes a `question` and returns a `dspy.Prediction` with
`question_type` and `probability`, 0 to 1, or None if it is not known. The option
`type_classifier` names the one that a program uses.
"""

from __future__ import annotations

import dspy

from typedrag.programs.options import TYPE_CLASSIFIERS, Options
from typedrag.programs.typed_rag.type_classifiers.by_language import ByLanguageTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.classifying import ProbabilityClassifier
from typedrag.programs.typed_rag.type_classifiers.embedding import EmbeddingTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.hub import HubTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.linear import (
    WEIGHTS,
    LinearTypeClassifier,
    LinearWeights,
)
from typedrag.programs.typed_rag.type_classifiers.lm import LMTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.ngrams import character_ngrams, vectorizer, word_ngrams
from typedrag.programs.typed_rag.type_classifiers.oracle import OracleTypeClassifier
from typedrag.specs import Spec

__all__ = [
    "WEIGHTS",
    "ByLanguageTypeClassifier",
    "EmbeddingTypeClassifier",
    "HubTypeClassifier",
    "LMTypeClassifier",
    "LinearTypeClassifier",
    "LinearWeights",
    "OracleTypeClassifier",
    "ProbabilityClassifier",
    "build_type_classifier",
    "character_ngrams",
    "vectorizer",
    "word_ngrams",
]


def build_type_classifier(options: Options) -> dspy.Module:
    """The type classifier that the options name. Models are loaded at the first question.

    A classifier trained on English passes questions in other languages to the LM.
    """
    match TYPE_CLASSIFIERS.parse(options.type_classifier):
        case Spec("linear"):
            return ByLanguageTypeClassifier(LinearTypeClassifier(), options)
        case Spec("embedding"):
            return ByLanguageTypeClassifier(EmbeddingTypeClassifier(), options)
        case Spec("hub", name):
            return HubTypeClassifier(name)
        case Spec("oracle"):
            return OracleTypeClassifier()
        case _:
            return LMTypeClassifier(options)
