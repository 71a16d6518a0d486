"""The quality of coverage verdicts without an LM, by weights fitted without the judged answer, or its question.

Prints a table in Markdown, a row for each judge, against people's labels: accuracy, precision, recall
and F1, and the share of pairs of sub-questions on an answer, one covered and one not, in which the covered one
is held likelier; with 95 % intervals that resample answers.

never              Nothing is covered.
text               The cosine of the sub-question and the whole answer, which only orders them.
two sentences      The cosine with the two consecutive sentences that are nearest.
answer left out    The judge that cites by similarity, for each answer with weights fitted on the others.
question left out  The same, with weights fitted on the answers to the other questions.
shipped            With typedrag's own weights. They were fitted on these very labels.

With --write the weights fitted on all labels replace typedrag's own.

    typedrag models fetch all-minilm-l6-v2
    python -m benchmarks.coverage_similarity coverage.jsonl [--write]
"""

import argparse
from collections.abc import Hashable, Sequence
from itertools import groupby
from pathlib import Path

import dspy

from typedrag.cli.terminal import run
from typedrag.datasets import load_dataset
from typedrag.metrics.estimate import binary_agreement, pairwise_order_accuracy
from typedrag.retrieval.local_models import LogisticModel
from typedrag.sub_questions.coverage_judge import WEIGHTS
from typedrag.sub_questions.evidence import FEATURES, Evidence, find_evidence

DATASET = "sub-question-coverage"
MEASURES = ("accuracy", "precision", "recall", "f1", "ordered")


def evidence_of(examples: Sequence[dspy.Example]) -> list[Evidence]:
    """The evidence that each sub-question is covered; sub-questions on one answer must be adjacent."""
    groups = [list(group) for _, group in groupby(examples, key=lambda e: e.answer)]
    return [e for group in groups for e in find_evidence(group[0].answer, tuple(g.sub_question for g in group))]


def fit(evidence: Sequence[Evidence], covered: Sequence[bool]) -> LogisticModel:
    """A logistic regression on features of one scale, with scikit-learn's defaults."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    features = [e[1:] for e in evidence]
    scale = StandardScaler().fit(features)
    model = LogisticRegression().fit(scale.transform(features), covered)
    weights = model.coef_[0] / scale.scale_
    intercept = float(model.intercept_[0] - weights @ scale.mean_)
    rounded = {f: round(float(w), 3) for f, w in zip(FEATURES, weights, strict=True)}
    return LogisticModel(intercept=round(intercept, 3), weights=rounded)


def left_out(evidence: Sequence[Evidence], covered: Sequence[bool], groups: Sequence[Hashable]) -> list[float]:
    """Probabilities, each from weights fitted on the other groups."""
    weights = {
        group: fit(
            *zip(*((e, c) for e, c, g in zip(evidence, covered, groups, strict=True) if g != group), strict=True)
        )
        for group in set(groups)
    }
    return [weights[group].probability(e.features) for e, group in zip(evidence, groups, strict=True)]


def row(name: str, examples: Sequence[dspy.Example], scores: Sequence[float], least: float | None) -> str:
    """The table row of scores, of which `least` or more mean yes; with None only their order is compared."""
    covered, answers = [bool(e.covered) for e in examples], [e.answer for e in examples]
    estimates = {
        **({} if least is None else binary_agreement(covered, [s >= least for s in scores], groups=answers)),
        "ordered": pairwise_order_accuracy(scores, list(map(int, covered)), groups=answers),
    }
    cells = [f"{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]" if (e := estimates.get(m)) else "-" for m in MEASURES]
    return f"| {name} | {len(examples)} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help=f"file of the dataset {DATASET}")
    parser.add_argument("--write", action="store_true", help="put the weights fitted here in the place of the shipped")
    arguments = parser.parse_args()
    examples = sorted(load_dataset(DATASET, arguments.data).examples, key=lambda e: e.answer)
    evidence, covered = evidence_of(examples), [bool(e.covered) for e in examples]
    fitted = fit(evidence, covered)
    if arguments.write:
        fitted.save(WEIGHTS)
        LogisticModel.load.cache_clear()
    rows: tuple[tuple[str, Sequence[float], float | None], ...] = (
        ("never", [0.0] * len(examples), 0.5),
        ("text", [e.text for e in evidence], None),
        ("two sentences", [e.two_sentences for e in evidence], None),
        ("answer left out", left_out(evidence, covered, [e.answer for e in examples]), 0.5),
        ("question left out", left_out(evidence, covered, [e.question for e in examples]), 0.5),
        ("shipped", [LogisticModel.load(WEIGHTS).probability(e.features) for e in evidence], 0.5),
    )
    print(f"| | n | {' | '.join(MEASURES)} |\n|---|---|{'---|' * len(MEASURES)}")
    for name, scores, least in rows:
        print(row(name, examples, scores, least))
    print(f"\nfitted: {fitted}")


if __name__ == "__main__":
    run(main)
