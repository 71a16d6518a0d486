"""Of what type is a question? One interface, several makes.

Each make is a `dspy.Module` that takes a `question` and returns a `dspy.Prediction` with
`question_type` and `probability`, 0 to 1, or None where the make gives none. The option
`type_classifier` says which one a program uses; see `typedrag.programs.makes`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import dspy

from typedrag.programs.makes import Make, make_named
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.type_classifiers.by_language import ByLanguageTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.calibrated import (
    CalibratedTypeClassifier,
    Calibration,
    read_calibration,
)
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
from typedrag.programs.typed_rag.type_classifiers.neighbours import NeighboursTypeClassifier, labelled_questions
from typedrag.programs.typed_rag.type_classifiers.ngrams import character_ngrams, vectorizer, word_ngrams
from typedrag.programs.typed_rag.type_classifiers.vote import VotingTypeClassifier

__all__ = [
    "EMBEDDING_WEIGHTS",
    "WEIGHTS",
    "ByLanguageTypeClassifier",
    "CalibratedTypeClassifier",
    "Calibration",
    "CascadeTypeClassifier",
    "EmbeddingTypeClassifier",
    "EmbeddingWeights",
    "HubTypeClassifier",
    "LMTypeClassifier",
    "LinearTypeClassifier",
    "LinearWeights",
    "NeighboursTypeClassifier",
    "ProbabilityClassifier",
    "VotingTypeClassifier",
    "build_type_classifier",
    "character_ngrams",
    "embed",
    "read_calibration",
    "type_classifier_identity",
    "vectorizer",
    "word_ngrams",
]


def build_type_classifier(options: Options) -> dspy.Module:
    """The make that the options name. Models are loaded at the first question.

    One that was trained on English gives questions in other languages to the LM.

    Raises:
        InputError: If its labelled questions or its calibration cannot be read.
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
        case "lm-neighbours":
            return NeighboursTypeClassifier(options, make.argument)
        case "lm-calibrated":
            return CalibratedTypeClassifier(options, read_calibration(Path(make.argument)))
        case "cascade":
            first, second = (_build(member, options) for member in make.members)
            return CascadeTypeClassifier(first, second, options)
        case _:
            return LMTypeClassifier(options)


def type_classifier_identity(options: Options) -> dict[str, str]:
    """What tells a type classifier from another that the options name alike, as JSON values: what its files say.

    Raises:
        InputError: If they cannot be read.
    """
    make = make_named(options.type_classifier)
    members = [m for m in (make, *make.members) if m.argument]
    shown = [m.argument for m in members if m.name == "lm-neighbours"]
    said = [f"{e.question_type} {e.question}" for where in shown for e in labelled_questions(where)]
    fitted = [read_calibration(Path(m.argument)) for m in members if m.name == "lm-calibrated"]
    texts = {"labelled questions": said, "calibration": [c.model_dump_json() for c in fitted]}
    return {what: hashlib.sha256("\n".join(lines).encode()).hexdigest() for what, lines in texts.items() if lines}
