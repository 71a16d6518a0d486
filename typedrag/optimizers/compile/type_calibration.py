"""Fitting the calibration of an LM as type classifier to labelled questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import dspy
import numpy as np

from typedrag.errors import InputError, StepFailed
from typedrag.lms.asking import Reply
from typedrag.lms.asking_each import Failed, ask_each
from typedrag.metrics import Judgments
from typedrag.metrics.arithmetic.calibration import expected_calibration_error
from typedrag.programs import Options
from typedrag.programs.artifact.state import fingerprint, state_of
from typedrag.programs.typed_rag.type_classifiers import Calibration, LMTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.calibrated import LEAST
from typedrag.programs.typed_rag.type_classifiers.classifying import likeliest, types_said
from typedrag.question_types import QuestionType
from typedrag.texts.words import question_key

FOLDS = 5
Held = dict[QuestionType, float]
"""What an LM holds of each type."""


class Agreement(NamedTuple):
    """How good types are, and the probabilities that they are said to have.

    Attributes:
        accuracy: Share of questions whose type is right.
        calibration_error: See `expected_calibration_error`.
    """

    accuracy: float
    calibration_error: float


class Calibrated(NamedTuple):
    """What came of fitting.

    Attributes:
        calibration: Fitted to all questions.
        failed: Questions that the LM failed at, or to which its reply could not be parsed; they are left out.
        bare: How good the LM is on these questions.
        crossed: The same once it is calibrated, each fifth of the questions by the other four.
    """

    calibration: Calibration
    failed: int
    bare: Agreement
    crossed: Agreement


def calibrate_type_classifier(
    examples: Sequence[dspy.Example],
    judgments: Judgments,
    *,
    threads: int = 8,
    on_done: Callable[[int], None] = lambda done: None,
) -> Calibrated:
    """Ask the LM for the types of labelled questions, and fit what it holds of them to the labels.

    Args:
        examples: Each with `question` and `question_type`, as frequent as they will be.
        judgments: Where what it holds is stored as it comes.
        threads: Questions asked at once.
        on_done: Told how many have been asked.

    Raises:
        InputError: If the LM's server tells no probabilities, or there are too few questions or types.
        LMUnavailable: If it cannot be reached.
    """
    classifier = _Holding(Options())
    predictor = fingerprint(state_of(classifier))

    def ask(example: dspy.Example) -> Held:
        inputs = {"question": example.question}
        said = judgments.get_or_make(classifier, inputs, lambda: classifier(**inputs).toDict())["held"]
        return {QuestionType(name): probability for name, probability in said.items()}

    held = ask_each(ask, examples, threads, on_done)
    asked = [(e.question, e.question_type, h) for e, h in zip(examples, held, strict=True) if not isinstance(h, Failed)]
    if not asked:
        raise InputError(
            "the LM named no type, or its server tells no token probabilities", "Use another, such as vllm:MODEL"
        )
    groups = {key: place for place, key in enumerate(dict.fromkeys(question_key(q) for q, _, _ in asked))}
    if len(groups) < FOLDS or len({t for _, t, _ in asked}) < 2:
        raise InputError(f"{len(asked)} questions of which the LM named a type are too few", "Give more, of all types")
    crossed = []
    for fold in range(FOLDS):
        parts: dict[bool, list[tuple[str, QuestionType, Held]]] = {True: [], False: []}
        for one in asked:
            parts[groups[question_key(one[0])] % FOLDS == fold].append(one)
        fitted = _fit(parts[False], predictor)
        crossed += [(t, likeliest(q, fitted.of(h))) for q, t, h in parts[True]]
    bare = [(t, max(h.items(), key=lambda pair: pair[1])) for _, t, h in asked]
    return Calibrated(_fit(asked, predictor), len(examples) - len(asked), _agreement(bare), _agreement(crossed))


class _Holding(LMTypeClassifier):
    """Says what the LM holds of all types, in `held`; fails where its server does not tell."""

    def named(self, question: str, reply: Reply) -> dspy.Prediction:
        """What is held of the types; see the class."""
        held = types_said(reply)
        if not held:
            raise StepFailed("classify", "the LM's server tells no probabilities of types")
        return dspy.Prediction(held=held)


def _fit(asked: Sequence[tuple[str, QuestionType, Held]], predictor: str) -> Calibration:
    from sklearn.linear_model import LogisticRegression

    order = list(QuestionType)
    labels = [order.index(t) for _, t, _ in asked]
    logs = np.log(np.maximum([[h[t] for t in order] for *_, h in asked], LEAST))
    if len(set(labels)) < 2:
        raise InputError("nearly all questions are of one type", "Give more, of all types")
    model = LogisticRegression(max_iter=5_000).fit(logs, labels)
    rows, bias = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # scikit-learn then has one row, of the odds
        rows, bias = np.concatenate([-rows, rows]) / 2, np.concatenate([-bias, bias]) / 2
    types = [order[place] for place in model.classes_]
    return Calibration(
        lm=dspy.settings.lm.model,
        predictor=predictor,
        questions=len(asked),
        bias=dict(zip(types, bias.tolist(), strict=True)),
        weights={t: dict(zip(order, row, strict=True)) for t, row in zip(types, rows.tolist(), strict=True)},
    )


def _agreement(named: Sequence[tuple[QuestionType, tuple[QuestionType, float]]]) -> Agreement:
    right = [actual is given for actual, (given, _) in named]
    error = expected_calibration_error([probability for _, (_, probability) in named], right)
    return Agreement(sum(right) / len(right), error)
