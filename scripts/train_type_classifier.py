"""Train the linear type classifier on NF-CATS and write the weights that typedrag ships.

    python scripts/train_type_classifier.py NF_CATS_FOLDER

The folder holds `train.csv` and `valid.csv` of NF-CATS (Bolotova et al. 2022, MIT licence), with
the columns `question` and `category`. Prints accuracy and macro-F1 on valid, in all and without
not-a-question, each beside the majority class.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.sparse import hstack
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score

from typedrag.programs.type_classifiers import (
    CHARACTER_NGRAMS,
    WEIGHTS,
    WORD_NGRAMS,
    LinearTypeClassifier,
    LinearWeights,
    vectorizer,
)

MIN_DF = 3
INVERSE_REGULARISATION = 10.0


def main(folder: Path) -> None:
    """Train, save and evaluate what was saved."""
    questions, types = read(folder / "train.csv")
    words, characters = vectorizer(WORD_NGRAMS, min_df=MIN_DF), vectorizer(CHARACTER_NGRAMS, min_df=MIN_DF)
    features = hstack([words.fit_transform(questions), characters.fit_transform(questions)]).tocsr()
    model = LogisticRegression(C=INVERSE_REGULARISATION, class_weight="balanced", max_iter=500)
    model.fit(features, types)
    LinearWeights(
        words=words.get_feature_names_out().astype(str),
        characters=characters.get_feature_names_out().astype(str),
        idf=np.concatenate([words.idf_, characters.idf_]),
        coefficients=model.coef_.T,
        intercept=model.intercept_,
        types=np.array(model.classes_, dtype=str),
    ).save(WEIGHTS)
    print(f"{WEIGHTS.name}: {features.shape[1]} n-grams, {WEIGHTS.stat().st_size / 1e6:.1f} MB")

    questions, types = read(folder / "valid.csv")
    classify = LinearTypeClassifier()
    predicted = [classify(question=q).question_type.value for q in questions]
    report("all types", types, predicted)
    asked = [i for i, t in enumerate(types) if t != "not-a-question"]
    report("without not-a-question", [types[i] for i in asked], [predicted[i] for i in asked])


def read(path: Path) -> tuple[list[str], list[str]]:
    """Questions and their types."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [r["question"] for r in rows], [r["category"].lower() for r in rows]


def report(name: str, types: list[str], predicted: list[str]) -> None:
    """Print accuracy and macro-F1 over the types that occur, beside always naming the commonest."""
    accuracy = accuracy_score(types, predicted)
    f1 = f1_score(types, predicted, average="macro", labels=sorted(set(types)))
    majority = Counter(types).most_common(1)[0][1] / len(types)
    print(f"{name}: n = {len(types)}, accuracy {accuracy:.3f} (majority {majority:.3f}), macro-F1 {f1:.3f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
