"""The quality of support by embeddings: does it tell supported sentences from others, and does it order answers?

With --wiki-nfqa, single sentences are judged by the other references with the best label:

right      the sentence of one best reference that holds the gold answer: the share that is supported
exchanged  the same sentence with another question's gold answer in its place: the share that is contradicted
poor       the sentences of a reference with the lowest label: the share that is not supported

`threshold` shows the accuracy for supported (right) and not supported (exchanged, poor) sentences by thresholds, on
the half of the questions that the thresholds were chosen on; everything else is measured on the other half.

With --antique, the answers that people labelled are judged by support from the other answers with a good label:
Spearman's correlation of truthfulness with the labels, beside that of the highest cosine of whole texts.

    python -m benchmarks.support --wiki-nfqa FOLDER --antique ANTIQUE.json.gz
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple
from unittest.mock import patch

import dspy

from typedrag.builders.fabrications import exchange_answer
from typedrag.cli.terminal import run
from typedrag.core.records import Passage
from typedrag.datasets import load_dataset
from typedrag.datasets.dataset import question_group, text_hash
from typedrag.lms import models
from typedrag.metrics import Truthfulness
from typedrag.metrics.estimate import mean_estimate, pairwise_order_accuracy, spearman
from typedrag.metrics.judges import support
from typedrag.metrics.judges.support import EmbeddingSupport
from typedrag.metrics.overlap import best_references, good_references, is_short, says
from typedrag.retrieval.rerankers import cosines
from typedrag.signatures.judging import SupportVerdict
from typedrag.text.sentences import sentences

NEAR = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75)
SHARED = (0.0, 0.25, 0.34, 0.5)


class Case(NamedTuple):
    """A sentence to be judged by sources."""

    kind: str
    group: str
    chosen_on: bool
    question: str
    sentence: str
    sources: Sequence[str]


def wiki_cases(folder: Path) -> Iterator[Case]:
    """Yield sentences of Wiki-NFQA's references, right and wrong."""
    examples = [e for e in load_dataset("wiki-nfqa", folder).examples if e.answers and is_short(e.answers[0])]
    for example in examples:
        first, *others = best_references(example)
        stating = [s for s in sentences(first) if says(s, example.answers)]
        if not stating or not any(says(text, example.answers) for text in others):
            continue
        lot = int(text_hash(str(example.id)), 16)
        other = examples[lot % len(examples)].answers[0]
        wrong = exchange_answer(stating[0], example.answers, other)
        worst = min(example.references, key=lambda r: r.label).text
        texts = [("right", stating[0]), ("exchanged", wrong), *(("poor", s) for s in sentences(worst))]
        for kind, text in texts:
            if kind == "right" or (text and not says(text, example.answers)):
                yield Case(kind, question_group(example), lot % 2 == 0, example.question, text, others)


def verdicts(cases: Sequence[Case]) -> list[SupportVerdict]:
    """The verdicts of support by embeddings on the cases."""
    judge = EmbeddingSupport()
    return [judge.verdicts(case.question, [case.sentence], case.sources)[0] for case in cases]


def print_thresholds(cases: Sequence[Case]) -> None:
    """Print the balanced accuracy of pairs of thresholds."""
    for near, shared in product(NEAR, SHARED):
        with patch.object(support, "NEAR", near), patch.object(support, "SHARED", shared):
            judged = verdicts(cases)
        shares = [
            fmean(
                (v is SupportVerdict.SUPPORTED) == (kind == "right")
                for c, v in zip(cases, judged, strict=True)
                if c.kind == kind
            )
            for kind in ("right", "exchanged", "poor")
        ]
        balanced = (shares[0] + fmean(shares[1:])) / 2
        print(f"threshold {near} shared {shared}: right {shares[0]:.3f}, exchanged {shares[1]:.3f}, "
              f"poor {shares[2]:.3f}, balanced {balanced:.3f}")  # fmt: skip


def print_verdicts(cases: Sequence[Case]) -> None:
    """Print the share of each verdict for each kind, with 95 % intervals over questions."""
    judged = verdicts(cases)
    for kind, verdict in product(("right", "exchanged", "poor"), SupportVerdict):
        of_kind = [(v is verdict, c.group) for c, v in zip(cases, judged, strict=True) if c.kind == kind]
        share = mean_estimate([float(v) for v, _ in of_kind], groups=[group for _, group in of_kind])
        if share:
            print(f"{kind} {verdict.value}: {share.value:.3f} [{share.low:.3f}, {share.high:.3f}], n = {len(of_kind)}")


def print_order(file: Path, limit: int | None) -> None:
    """Print how well support orders ANTIQUE's labelled answers, beside the cosine."""
    metric = Truthfulness(make="embedding")
    labels, groups = [], []
    scores: dict[str, list[float]] = {"truthfulness": [], "right": [], "cosine": []}
    for example in load_dataset("antique", file).examples[:limit]:
        good = good_references(example)
        texts = [reference.text for reference in example.references]
        cosines(example.question, [*texts, *(s for text in texts for s in sentences(text))])  # embeds all at once
        for reference in example.references:
            others = [text for text in good if text != reference.text]
            if not others:
                continue
            bare = dspy.Example(id=example.id, question=example.question, references=(), answers=())
            scored = metric.score(bare, _written_from(reference.text, others))
            labels.append(reference.label)
            groups.append(example.id)
            scores["truthfulness"].append(scored.measures["truthfulness"])
            scores["right"].append(scored.measures["right"])
            scores["cosine"].append(max(cosines(reference.text, others)))
    for name, values in scores.items():
        for what, e in (
            ("Spearman", spearman(values, labels, groups=groups)),
            ("pairs ordered", pairwise_order_accuracy(values, labels, groups=groups)),
        ):
            if e:
                print(f"{name}: {what} {e.value:.3f} [{e.low:.3f}, {e.high:.3f}], n = {len(labels)} answers")


def _written_from(answer: str, texts: Sequence[str]) -> dspy.Prediction:
    return dspy.Prediction(answer=answer, passages=tuple(Passage(str(n), text) for n, text in enumerate(texts)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wiki-nfqa", type=Path, help="folder of its files")
    parser.add_argument("--antique", type=Path, help="file ANTIQUE.json")
    parser.add_argument("--thresholds", action="store_true", help="show what the thresholds were chosen by")
    parser.add_argument("--limit", type=int, help="questions of ANTIQUE (default: all)")
    arguments = parser.parse_args()
    models.fetch("all-minilm-l6-v2")
    if arguments.wiki_nfqa:
        cases = list(wiki_cases(arguments.wiki_nfqa))
        if arguments.thresholds:
            print_thresholds([case for case in cases if case.chosen_on])
        print_verdicts([case for case in cases if not case.chosen_on])
    if arguments.antique:
        print_order(arguments.antique, arguments.limit)


if __name__ == "__main__":
    run(main)
