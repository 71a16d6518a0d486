"""Type classifiers: modules that name the type of a question. The option `type_classifier` says which is used."""

from __future__ import annotations

import dspy

from typedrag.core.registry import Spec
from typedrag.programs.options import TYPE_CLASSIFIERS, Options
from typedrag.programs.typed_rag.type_classifiers.base import (
    ByLanguageTypeClassifier,
    LMTypeClassifier,
    OracleTypeClassifier,
)
from typedrag.programs.typed_rag.type_classifiers.embedding import EmbeddingTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.hub import HubTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.linear import WEIGHTS, LinearTypeClassifier

__all__ = ["WEIGHTS", "EmbeddingTypeClassifier", "LMTypeClassifier", "LinearTypeClassifier", "build_type_classifier"]


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
