"""Train the type classifiers that typedrag ships, and write their weights.

    typedrag models fetch all-minilm-l6-v2
    python -m scripts.train_type_classifier NF_CATS_FOLDER --held-out EVERYDAY.jsonl

Both are trained on the questions that typedrag ships (`--dataset everyday`) and, with less weight, on train of NF-CATS
(Bolotova et al. 2022, MIT licence) without its class not-a-question, which holds all that has no question mark.
Temperatures are fitted on the questions of --held-out, which are in the layout of dataset `everyday`: how sure a
classifier may be depends on what is asked. Measure what comes out by `python -m benchmarks.type_classifiers`.
`linear` takes a minute; `embedding`, a fine-tuning of MiniLM, a quarter of an hour on two cores.
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_union

from benchmarks.calibration import fit_temperature
from typedrag.cli.terminal import run
from typedrag.core.question_types import QuestionType
from typedrag.datasets import load_dataset
from typedrag.programs.typed_rag.type_classifiers import (
    EMBEDDING_WEIGHTS,
    WEIGHTS,
    EmbeddingTypeClassifier,
    LinearWeights,
    character_ngrams,
    load_encoder,
    mean_embedding,
    save_arrays,
    word_ngrams,
)
from typedrag.text.words import question_key

TYPES = sorted(QuestionType)
BY_PEOPLE, BY_CLUSTERING = 0.3, 0.2
"""The weights of NF-CATS's questions, by who labelled them, beside 1 for a question that typedrag ships."""
MIN_DF = 3
INVERSE_REGULARISATION = 5.0
RANK = 16
"""The rank of the saved changes of MiniLM's weights; all of them together do hardly better."""
EPOCHS, BATCH, RATE, HEAD_RATE, SMOOTHING = 2, 32, 1e-4, 2e-3, 0.05
_ALIKE = 32
"""Batches whose questions are sorted by length together."""
_UNMARKED, _LOWER = 0.15, 0.1
"""Shares of the questions that are seen without their closing mark, and in lower case."""


class Labelled(NamedTuple):
    """A question, the place of its type among `TYPES`, and its weight."""

    question: str
    place: int
    weight: float


def main() -> None:
    """Train and save the classifiers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of NF-CATS, with train.csv")
    parser.add_argument("--held-out", type=Path, required=True, help="questions to fit the temperatures on")
    parser.add_argument("--only", choices=["linear", "embedding"], help="train one alone")
    arguments = parser.parse_args()
    train = list(labelled(arguments.folder))
    held_out = [Labelled(e.question, TYPES.index(e.question_type), 1.0) for e in _everyday(arguments.held_out)]
    if arguments.only != "embedding":
        train_linear(train, held_out)
    if arguments.only != "linear":
        train_embedding(train, held_out)


def labelled(folder: Path) -> Iterator[Labelled]:
    """The questions to train on, each once."""
    keys = set()
    for e in _everyday(None):
        keys.add(question_key(e.question))
        yield Labelled(e.question, TYPES.index(e.question_type), 1.0)
    for e in load_dataset("nf-cats", folder, subset="train").examples:
        if question_key(e.question) not in keys and e.question_type is not QuestionType.NOT_A_QUESTION:
            weight = BY_CLUSTERING if e.annotated_by == "unsupervised" else BY_PEOPLE
            yield Labelled(e.question, TYPES.index(e.question_type), weight)


def _everyday(path: Path | None) -> Sequence[Any]:
    return load_dataset("everyday", path).examples


def train_linear(train: Sequence[Labelled], held_out: Sequence[Labelled]) -> None:
    """Train and save the classifier on n-grams."""
    words, characters = (
        TfidfVectorizer(analyzer=analyzer, sublinear_tf=True, min_df=MIN_DF)
        for analyzer in (word_ngrams, character_ngrams)
    )
    features = make_union(words, characters)
    questions, places, weights = zip(*train, strict=True)
    model = LogisticRegression(C=INVERSE_REGULARISATION, class_weight="balanced", max_iter=500)
    model.fit(features.fit_transform(questions), places, sample_weight=weights)
    logits = model.decision_function(features.transform([e.question for e in held_out]))
    LinearWeights(
        words=words.get_feature_names_out().astype(str),
        characters=characters.get_feature_names_out().astype(str),
        idf=np.concatenate([words.idf_, characters.idf_]),
        coefficients=model.coef_.T,
        intercept=model.intercept_,
        temperature=temperature_of(logits, held_out),
        types=np.array(TYPES, dtype=str),
    ).save(WEIGHTS)
    print(f"{WEIGHTS.name}: {len(model.coef_.T)} n-grams, {WEIGHTS.stat().st_size / 1e3:.0f} kB")


def train_embedding(train: Sequence[Labelled], held_out: Sequence[Labelled]) -> None:
    """Fine-tune MiniLM under a linear layer, and save the layer and low-rank changes of MiniLM's weights."""
    import torch
    from torch.nn.functional import cross_entropy

    torch.manual_seed(0)
    torch.set_num_threads(os.cpu_count() or 1)
    luck = Random(0)
    tokenizer, network = load_encoder()
    published = {name: weight.clone() for name, weight in network.state_dict().items()}
    head = torch.nn.Linear(network.config.hidden_size, len(TYPES))
    network.embeddings.requires_grad_(False)
    tuned = [weight for weight in network.parameters() if weight.requires_grad]
    groups: list[dict[str, Any]] = [{"params": tuned}, {"params": list(head.parameters())}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, weight_decay=0.01)
    steps = EPOCHS * len(train) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [RATE, HEAD_RATE], total_steps=steps, pct_start=0.06)
    network.train()
    for step, batch in zip(range(steps), batches(train, luck), strict=False):
        logits = head(mean_embedding(tokenizer, network, [as_typed(e.question, luck) for e in batch]))
        places, weights = torch.tensor([e.place for e in batch]), torch.tensor([e.weight for e in batch])
        losses = cross_entropy(logits, places, reduction="none", label_smoothing=SMOOTHING)
        optimizer.zero_grad()
        (losses * weights).mean().backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step} of {steps}: loss {losses.mean().item():.3f}", flush=True)
    layer = torch.cat([head.weight, head.bias[:, None]], dim=1).detach().numpy()
    changes = dict(low_rank_changes(network.state_dict(), published))
    saved = {"types": np.array(TYPES, dtype=str), "head": layer, "temperature": np.array(1.0, np.float32), **changes}
    save_arrays(EMBEDDING_WEIGHTS, saved)
    classifier = EmbeddingTypeClassifier()  # with what was saved, not with what was trained
    probabilities = [classifier.probabilities(e.question) for e in held_out]
    logits = np.log([[one[QuestionType(t)] for t in TYPES] for one in probabilities])
    save_arrays(EMBEDDING_WEIGHTS, saved | {"temperature": temperature_of(logits, held_out)})
    print(f"{EMBEDDING_WEIGHTS.name}: {EMBEDDING_WEIGHTS.stat().st_size / 1e3:.0f} kB")


def batches(train: Sequence[Labelled], luck: Random) -> Iterator[list[Labelled]]:
    """Batches of all questions, again and again in another order; those of a batch are about as long."""
    while True:
        order = luck.sample(train, len(train))
        chunks = (order[i : i + _ALIKE * BATCH] for i in range(0, len(order), _ALIKE * BATCH))
        by_length = [e for chunk in chunks for e in sorted(chunk, key=lambda e: len(e.question))]
        starts = range(0, len(by_length), BATCH)
        yield from (by_length[i : i + BATCH] for i in luck.sample(starts, len(starts)))


def as_typed(question: str, luck: Random) -> str:
    """The question, at times without its closing mark or in lower case."""
    if luck.random() < _UNMARKED:
        question = question.rstrip(".!?") or question
    return question.lower() if luck.random() < _LOWER else question


def low_rank_changes(tuned: Mapping[str, Any], published: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The changes of the weights by the names that `embedding.npz` has; of matrices the nearest ones of rank `RANK`."""
    for name, weight in tuned.items():
        change = (weight - published[name]).numpy() if weight.is_floating_point() else np.zeros(1)
        if not change.any():
            continue
        if change.ndim < 2:
            yield f"{name}.change", change
        else:
            left, values, right = np.linalg.svd(change, full_matrices=False)
            yield f"{name}.up", left[:, :RANK] * values[:RANK]
            yield f"{name}.down", right[:RANK]


def temperature_of(logits: NDArray[Any], held_out: Sequence[Labelled]) -> NDArray[np.float32]:
    """The temperature that fits the held-out questions; prints how many of them are right."""
    places = [e.place for e in held_out]
    temperature = fit_temperature(logits, places)
    right = float((logits.argmax(axis=1) == places).mean())
    print(f"held out: {right:.3f} of {len(places)} right, temperature {temperature:.3f}")
    return np.array(temperature, np.float32)


if __name__ == "__main__":
    run(main)
