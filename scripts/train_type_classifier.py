"""Train the type classifiers that typedrag ships on NF-CATS, and write their weights.

    typedrag models fetch all-minilm-l6-v2
    python -m scripts.train_type_classifier NF_CATS_FOLDER

The folder holds `train.csv` and `valid.csv` of NF-CATS (Bolotova et al. 2022, MIT licence). Temperatures are
fitted on train by cross-validation. Prints accuracy, macro-F1 and expected
calibration error on valid, over all questions and without not-a-question, beside the majority class.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline, make_union

from benchmarks.calibration import expected_calibration_error, fit_temperature
from typedrag.cli.script import run
from typedrag.datasets import load_dataset
from typedrag.programs import Options
from typedrag.programs.typed_rag.type_classifiers import (
    EMBEDDING_WEIGHTS,
    WEIGHTS,
    EmbeddingWeights,
    LinearWeights,
    build_type_classifier,
    character_ngrams,
    embed,
    vectorizer,
    word_ngrams,
)
from typedrag.question_types import QuestionType

MIN_DF = 3
FOLDS = 5
LINEAR_C = 10.0
EMBEDDING_C = 3.0
"""Inverse strengths of regularisation, chosen on train by cross-validation."""

Labelled = tuple[list[str], list[QuestionType]]


def main() -> None:
    """Train, save and evaluate the saved classifiers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of NF-CATS, with train.csv and valid.csv")
    folder = parser.parse_args().folder
    questions, types = labelled(folder, "train")
    train_linear(questions, types)
    train_embedding(questions, types)
    valid = labelled(folder, "valid")
    for make in ("linear", "embedding", "linear+embedding"):
        evaluate(make, *valid)


def labelled(folder: Path, subset: str) -> Labelled:
    """The questions of a subset and their types."""
    examples = load_dataset("nf-cats", folder, subset=subset).examples
    return [e.question for e in examples], [e.question_type for e in examples]


def train_linear(questions: Sequence[str], types: Sequence[QuestionType]) -> None:
    """Train and save the classifier on n-grams."""
    words, characters = vectorizer(word_ngrams, min_df=MIN_DF), vectorizer(character_ngrams, min_df=MIN_DF)
    weights = fit(make_pipeline(make_union(words, characters), regression(LINEAR_C)), questions, types)
    LinearWeights(
        words=words.get_feature_names_out().astype(str),
        characters=characters.get_feature_names_out().astype(str),
        idf=np.concatenate([words.idf_, characters.idf_]),
        **weights,
    ).save(WEIGHTS)
    print(f"{WEIGHTS.name}: {len(weights['coefficients'])} n-grams, {WEIGHTS.stat().st_size / 1e3:.0f} kB")


def train_embedding(questions: Sequence[str], types: Sequence[QuestionType]) -> None:
    """Train and save the classifier on the embeddings of all layers."""
    weights = fit(make_pipeline(regression(EMBEDDING_C)), embed(questions), types)
    EmbeddingWeights(**weights).save(EMBEDDING_WEIGHTS)
    size = EMBEDDING_WEIGHTS.stat().st_size / 1e3
    print(f"{EMBEDDING_WEIGHTS.name}: {len(weights['coefficients'])} dimensions, {size:.0f} kB")


def regression(inverse_regularisation: float) -> LogisticRegression:
    """A logistic regression in which rare types have as much weight as frequent ones."""
    return LogisticRegression(C=inverse_regularisation, class_weight="balanced", max_iter=500)


def fit(model: Pipeline, inputs: Any, types: Sequence[QuestionType]) -> dict[str, NDArray[Any]]:
    """The weights of a logistic regression on all inputs, and its temperature on left-out ones."""
    labels = np.array(types, dtype=str)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    logits = cross_val_predict(model, inputs, labels, cv=folds, method="decision_function")
    fitted = model.fit(inputs, labels)[-1]
    places = np.searchsorted(fitted.classes_, labels)
    temperature = fit_temperature(logits, places.tolist())
    print(f"left out: accuracy {(logits.argmax(axis=1) == places).mean():.3f}, temperature {temperature:.3f}")
    return {
        "coefficients": fitted.coef_.T,
        "intercept": fitted.intercept_,
        "temperature": np.array(temperature),
        "types": np.array(fitted.classes_, dtype=str),
    }


def evaluate(make: str, questions: Sequence[str], types: Sequence[QuestionType]) -> None:
    """Print the quality of a make with its shipped weights."""
    classify = build_type_classifier(Options(type_classifier=make))
    predictions = [classify(question=question) for question in questions]
    asking = [i for i, t in enumerate(types) if t is not QuestionType.NOT_A_QUESTION]
    report(f"{make}, all types", types, predictions)
    report(f"{make}, without not-a-question", [types[i] for i in asking], [predictions[i] for i in asking])


def report(name: str, types: Sequence[QuestionType], predictions: Sequence[Any]) -> None:
    """Print accuracy and macro-F1 over the types that occur, beside always naming the commonest."""
    actual, predicted = [str(t) for t in types], [str(p.question_type) for p in predictions]
    accuracy = accuracy_score(actual, predicted)
    f1 = f1_score(actual, predicted, average="macro", labels=sorted(set(actual)))
    majority = Counter(actual).most_common(1)[0][1] / len(actual)
    right = [a == g for a, g in zip(actual, predicted, strict=True)]
    error = expected_calibration_error([p.probability for p in predictions], right)
    print(
        f"{name}: n = {len(actual)}, accuracy {accuracy:.3f} (majority {majority:.3f}), macro-F1 {f1:.3f}, "
        f"calibration error {error:.3f}"
    )


if __name__ == "__main__":
    run(main)
