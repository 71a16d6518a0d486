"""Type classifiers: modules that name the type of a question.

Each is a `dspy.Module` that takes a `question` and returns a `dspy.Prediction` with
`question_type` and `probability`, 0 to 1, or None if it is not known. The option
`type_classifier` names the one that a program uses; see `typedrag.programs.makes`.
"""

from __future__ import annotations

import dspy

from typedrag.programs.makes import Make, make_named
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.type_classifiers.by_language import ByLanguageTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.cascade import CascadeTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.classifying import ProbabilityClassifier
from typedrag.programs.typed_rag.type_classifiers.embedding import (
    EMBEDDING_WEIGHTS,
    EmbeddingTypeClassifier,
    EmbeddingWeights,
)
from typedrag.programs.typed_rag.type_classifiers.encoder import embed
from typedrag.programs.typed_rag.type_classifiers.hub import HubTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.linear import (
    WEIGHTS,
    LinearTypeClassifier,
    LinearWeights,
)
from typedrag.programs.typed_rag.type_classifiers.lm import LMTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.ngrams import character_ngrams, vectorizer, word_ngrams
from typedrag.programs.typed_rag.type_classifiers.vote import VotingTypeClassifier

__all__ = [
    "EMBEDDING_WEIGHTS",
    "WEIGHTS",
    "ByLanguageTypeClassifier",
    "CascadeTypeClassifier",
    "EmbeddingTypeClassifier",
    "EmbeddingWeights",
    "HubTypeClassifier",
    "LMTypeClassifier",
    "LinearTypeClassifier",
    "LinearWeights",
    "ProbabilityClassifier",
    "VotingTypeClassifier",
    "build_type_classifier",
    "character_ngrams",
    "embed",
    "vectorizer",
    "word_ngrams",
]


def build_type_classifier(options: Options) -> dspy.Module:
    """The type classifier that the options name. Models are loaded at the first question.

    A classifier trained on English passes questions in other languages to the LM.
    """
    built = _build(make_named(options.type_classifier), options)
    english_only = isinstance(built, ProbabilityClassifier) and built.reads_english_only
    return ByLanguageTypeClassifier(built, options) if english_only else built


def _build(make: Make, options: Options) -> dspy.Module:
    match make.name:
        case "linear":
            return LinearTypeClassifier()
        case "embedding":
            return EmbeddingTypeClassifier()
        case "linear+embedding":
            return VotingTypeClassifier([LinearTypeClassifier(), EmbeddingTypeClassifier()])
        case "hub":
            return HubTypeClassifier(make.argument)
        case "cascade":
            first, second = (_build(member, options) for member in make.members)
            return CascadeTypeClassifier(first, second, options)
        case _:
            return LMTypeClassifier(options)
