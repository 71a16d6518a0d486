"""Train the judge that `linkage` asks with `make: combined`, and write its weights.

    typedrag models fetch all-minilm-l6-v2
    python scripts/train_combined_judge.py --antique antique.json.gz --wiki-nfqa FOLDER --fabrications FILE

Trained on the labels of the train and validation splits, and on fabrications of the same questions: those of
the named files, and right references of Wiki-NFQA with another question's gold answer in place of their own.
Prints the results on the test splits, within a set and across sets, beside the cosine with the nearest good
reference. With --scorer also those of LINKAGE's expected rank on a draw of both, and of the two together: the LM's
replies are kept in --replies.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import dspy
import numpy as np
from sklearn.linear_model import LogisticRegression

from typedrag.builders.fabrications import exchange_answer
from typedrag.cli.terminal import run
from typedrag.core.errors import NotMeasurable, StepFailed
from typedrag.core.records import Reference
from typedrag.datasets import Dataset, load_dataset
from typedrag.datasets.dataset import SPLITS, question_group, sample, text_hash
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.replies import use_reply_store
from typedrag.metrics.estimate import mean_estimate, pairwise_order_accuracy, spearman
from typedrag.metrics.judges.combined import WEIGHTS, features
from typedrag.metrics.judges.human_labels import LabelledAnswer, labelled_answers
from typedrag.metrics.judges.linkage import LinkageJudge, draw_references, expected_rank
from typedrag.metrics.overlap import contains
from typedrag.retrieval.local_models import LogisticModel

SCALES = {"antique": (1, 4), "wiki-nfqa": (0, 3)}
"""The worst and the best label of each set."""
FABRICATIONS_WEIGHT = 0.4
"""The weight of all fabrications with their right answers, beside 1 for each set of labels. On validation, a lower
one tells fewer guesses from right answers, and a higher one agrees less with people."""
REGULARISATION = 10.0
SHORTEST = 6
"""Words of a right reference that a fabrication is made from: a shorter one is only its gold answer."""
CANDIDATES = 4
"""Answers of a question that the LM ranks."""
FABRICATED = "fabricated"
EXCHANGED = "exchanged in references"

Features = dict[str, float]


class Item(NamedTuple):
    """An answer with its worth, from 0 to 1."""

    source: str
    split: str
    group: str
    worth: float
    features: Features


class Pair(NamedTuple):
    """A right answer and a fabrication."""

    source: str
    split: str
    group: str
    right: Features
    wrong: Features


def cases_of(dataset: Dataset) -> Iterator[tuple[str, LabelledAnswer]]:
    """Yield labelled answers to be judged, with their splits."""
    for split in SPLITS:
        for example in dataset.split(split):
            try:
                yield from ((split, case) for case in labelled_answers(example))
            except NotMeasurable:
                continue


def items_of(dataset: Dataset) -> list[Item]:
    """Labelled answers with their features."""
    worst, best = SCALES[dataset.name]
    return [
        Item(
            dataset.name,
            split,
            question_group(case.example),
            (case.candidate.label - worst) / (best - worst),
            features(case.example.question, case.candidate.text, case.example.references),
        )
        for split, case in cases_of(dataset)
    ]


def exchanged_pairs(dataset: Dataset) -> list[Pair]:
    """Right references, each beside a copy with another question's gold answer in place of its own."""
    pairs = []
    for split in SPLITS:
        for example in dataset.split(split):
            others = sorted(
                (e.answers[0] for e in dataset.examples if e.answers and question_group(e) != question_group(example)),
                key=lambda answer: text_hash(f"{example.id}:{answer}"),
            )
            for right in _right_references(example):
                number = any(character.isdigit() for character in example.answers[0])
                other = next(o for o in others if any(c.isdigit() for c in o) is number)
                wrong = exchange_answer(right.text, example.answers, other)
                known = [r for r in labelled_answers(example)[0].example.references if r.text != right.text]
                if wrong and not any(contains(wrong, gold) for gold in example.answers) and _differ(known):
                    both = (features(example.question, text, known) for text in (right.text, wrong))
                    pairs.append(Pair(EXCHANGED, split, question_group(example), *both))
                    break
    return pairs


def _right_references(example: dspy.Example) -> list[Reference]:
    try:
        if not example.answers or not labelled_answers(example):
            return []
    except NotMeasurable:
        return []
    best = max(r.label for r in example.references)
    return [r for r in example.references if r.label == best and len(r.text.split()) >= SHORTEST]


def _differ(references: Sequence[Reference]) -> bool:
    return len({r.label for r in references}) > 1


def fabricated_pairs(dataset: Dataset, splits: dict[str, str]) -> list[Pair]:
    """The right answer of each question beside each of its fabrications."""
    pairs = []
    for example in dataset.examples:
        if not _differ(example.references):
            continue
        right, *others = ((c.kind, features(example.question, c.text, example.references)) for c in example.candidates)
        split = splits.get(question_group(example), "test")
        pairs += [
            Pair(kind.value, split, question_group(example), right[1], wrong)
            for kind, wrong in others
            if kind.fabricated
        ]
    return pairs


def fit(items: Sequence[Item], pairs: Sequence[Pair]) -> LogisticModel:
    """The model fitted on train and validation; each source of items has the same weight."""
    learned = [item for item in items if item.split != "test"]
    fabricated = [pair for pair in pairs if pair.split != "test"]
    rows = [(i.features, i.worth, 1 / sum(j.source == i.source for j in learned)) for i in learned]
    for pair in fabricated:
        share = FABRICATIONS_WEIGHT / (2 * len(fabricated))
        rows += [(pair.right, 1.0, share), (pair.wrong, 0.0, share)]
    names = list(rows[0][0])
    values = np.array([[row[name] for name in names] for row, _, _ in rows])
    worth, weight = (np.array([row[place] for row in rows]) for place in (1, 2))
    weight *= len(rows) / weight.sum()
    mean, scale = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    standard = np.nan_to_num((values - mean) / scale)
    # an answer worth 0.7 counts as a right one with weight 0.7 and a wrong one with weight 0.3
    model = LogisticRegression(C=1 / REGULARISATION, max_iter=1000).fit(
        np.vstack([standard, standard]),
        np.repeat([1, 0], len(rows)),
        np.concatenate([weight * worth, weight * (1 - worth)]),
    )

    def named(values: Sequence[float]) -> dict[str, float]:
        return {name: round(float(value), 5) for name, value in zip(names, values, strict=True)}

    intercept = round(float(model.intercept_[0]), 5)
    return LogisticModel(intercept=intercept, weights=named(model.coef_[0]), mean=named(mean), scale=named(scale))


def show_agreement(title: str, scores: Sequence[float], items: Sequence[Item]) -> None:
    """Print the agreement of scores with labels, over all answers and within questions."""
    worths, groups = [i.worth for i in items], [i.group for i in items]
    correlation = spearman(scores, worths, groups=groups)
    ordered = pairwise_order_accuracy(scores, worths, groups=groups)
    print(f"| {title} | {len(items)} of {len(set(groups))} | {correlation} | {ordered} |", flush=True)


def show_pairs(title: str, model: LogisticModel, pairs: Sequence[Pair]) -> None:
    """Print the share of pairs in which the right answer is above the fabrication."""
    points = [float(model.probability(p.right) > model.probability(p.wrong)) for p in pairs]
    groups = [p.group for p in pairs]
    if estimate := mean_estimate(points, groups=groups):
        print(f"| {title} | {len(pairs)} of {len(set(groups))} | {estimate} |", flush=True)


def ranked(datasets: Sequence[Dataset], questions: int) -> list[tuple[Item, LabelledAnswer]]:
    """A draw of labelled answers for the LM to rank: of as many questions of train and test of each set."""
    drawn = []
    for dataset in datasets:
        worst, best = SCALES[dataset.name]
        for split in ("train", "test"):
            measurable = {str(case.example.id) for part, case in cases_of(dataset) if part == split}
            examples = [e for e in dataset.split(split) if str(e.id) in measurable]
            for case in (c for e in sample(examples, questions) for c in labelled_answers(e)[:CANDIDATES]):
                known = features(case.example.question, case.candidate.text, case.example.references)
                worth = (case.candidate.label - worst) / (best - worst)
                drawn.append((Item(dataset.name, split, question_group(case.example), worth, known), case))
    return drawn


def places(cases: Sequence[LabelledAnswer], lm: dspy.LM, replies: Path) -> list[float]:
    """LINKAGE's place of each answer by its expected rank, 1 for the first and 0 for the last; NaN if unread."""
    judge, scores = LinkageJudge(), []
    with use_reply_store(replies), use_lm(lm):
        for case in cases:
            texts = [r.text for r in draw_references(case.example)]
            try:
                judgment = judge(question=case.example.question, references=texts, candidate=case.candidate.text)
            except StepFailed:
                scores.append(float("nan"))
            else:
                expected = expected_rank(judgment.probabilities) if judgment.probabilities else judgment.rank
                scores.append((len(texts) - expected) / (len(texts) - 1))
    return scores


def show_what_the_lm_adds(model: LogisticModel, drawn: Sequence[tuple[Item, float]]) -> None:
    """Print LINKAGE, the model, and both combined on train, on the same answers of test."""
    read = [(item, place) for item, place in drawn if not np.isnan(place)]
    by_both = np.array([[_logit(model.probability(i.features)), place] for i, place in read])
    worth = np.array([i.worth for i, _ in read])
    train = np.array([i.split != "test" for i, _ in read])
    both = LogisticRegression().fit(
        np.vstack([by_both[train]] * 2),
        np.repeat([1, 0], train.sum()),
        np.concatenate([worth[train], 1 - worth[train]]),
    )
    print(f"log odds of both together: {both.coef_[0].round(3).tolist()} for the model's log odds and the place")
    for source in SCALES:
        chosen = [n for n, (i, _) in enumerate(read) if i.source == source and i.split == "test"]
        items = [read[n][0] for n in chosen]
        if items:
            show_agreement(f"{source}: LINKAGE, expected rank", by_both[chosen, 1].tolist(), items)
            show_agreement(f"{source}: combined", by_both[chosen, 0].tolist(), items)
            show_agreement(f"{source}: both", both.decision_function(by_both[chosen]).tolist(), items)


def _logit(probability: float) -> float:
    return float(np.log(probability / (1 - probability)))


def main() -> None:
    """Train, save and test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--antique", type=Path, required=True, help="file of ANTIQUE as LINKAGE's authors prepared it")
    parser.add_argument("--wiki-nfqa", type=Path, required=True, help="folder of Wiki-NFQA")
    parser.add_argument("--fabrications", type=Path, nargs="*", default=[], help="files of the dataset fabrications")
    parser.add_argument("--scorer", help="LM spec: measure LINKAGE too")
    parser.add_argument("--api-base", help="address of the scorer's server")
    parser.add_argument("--replies", type=Path, default=Path("replies.sqlite"), help="file of the scorer's replies")
    parser.add_argument("--questions", type=int, default=15, help="of each set and split that the scorer ranks")
    arguments = parser.parse_args()
    datasets = [load_dataset("antique", arguments.antique), load_dataset("wiki-nfqa", arguments.wiki_nfqa)]
    wiki = datasets[1]
    splits = {question_group(e): split for split in SPLITS for e in wiki.split(split)}
    items = [item for dataset in datasets for item in items_of(dataset)]
    pairs = exchanged_pairs(wiki)
    for file in arguments.fabrications:
        pairs += fabricated_pairs(load_dataset("fabrications", file), splits)
    model = fit(items, pairs)
    model.save(WEIGHTS)

    trained = {
        "combined": model,
        "combined, trained on antique alone": fit([i for i in items if i.source == "antique"], []),
        "combined, trained on wiki-nfqa and fabrications": fit([i for i in items if i.source != "antique"], pairs),
        "combined, trained without fabrications": fit(items, []),
    }
    tested = [i for i in items if i.split == "test"]
    print("| judge | answers of questions | spearman | pairs ordered |\n|---|---|---|---|")
    for source in SCALES:
        chosen = [i for i in tested if i.source == source]
        nearest = [i.features["cosine with the nearest good one"] for i in chosen]
        show_agreement(f"{source}: cosine with the nearest good reference", nearest, chosen)
        for name, each in trained.items():
            show_agreement(f"{source}: {name}", [each.probability(i.features) for i in chosen], chosen)
    print("\n| right above | pairs of questions | share |\n|---|---|---|")
    for name, each in trained.items():
        for kind in dict.fromkeys(p.source for p in pairs):
            show_pairs(f"{kind}: {name}", each, [p for p in pairs if p.split == "test" and p.source == kind])
    if arguments.scorer:
        print("\n| judge | answers of questions | spearman | pairs ordered |\n|---|---|---|---|")
        drawn = ranked(datasets, arguments.questions)
        lm = open_lm(arguments.scorer, api_base=arguments.api_base, cache=True, timeout=3000)
        scores = places([case for _, case in drawn], lm, arguments.replies)
        show_what_the_lm_adds(model, [(item, place) for (item, _), place in zip(drawn, scores, strict=True)])


if __name__ == "__main__":
    run(main)
