"""Draw questions of Wiki-NFQA to measure truthfulness with: for half of them the index may hold the answer.

    python scripts/wiki_nfqa_halves.py FOLDER INDEX --limit 120 --out halves.jsonl

The index may hold it if a gold answer, other than yes, no or a single character, is word for word in one of the first
ten passages that BM25 finds for the question: anywhere in the collection, "iron" or "genus" occurs by chance. The file
is read like any of Wiki-NFQA: `typedrag evaluate --dataset wiki-nfqa --path halves.jsonl --split all`.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import dspy

from typedrag import BM25Retriever
from typedrag.datasets.dataset import sample
from typedrag.datasets.typed_rag import SUBSETS, load_wiki_nfqa
from typedrag.metrics.overlap import contains

DEPTH = 10
NO_STATEMENT = {"yes", "no"}


def main() -> None:
    """Write the rows of the drawn questions, in turn of those that can be answered and those that cannot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the authors' SUBSET.jsonl files")
    parser.add_argument("index", type=Path, help="of the collection")
    parser.add_argument("--split", default="all", help="train, validation, test or all")
    parser.add_argument("--limit", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    rows = {row["question_id"]: row for row in _rows(args.folder)}
    retriever = BM25Retriever(args.index)
    questions = load_wiki_nfqa(args.folder).split(args.split)
    halves: dict[bool, list[dspy.Example]] = {True: [], False: []}
    for question, passages in zip(questions, retriever.search([q.question for q in questions], DEPTH), strict=True):
        golds = [gold for gold in question.answers if gold.casefold() not in NO_STATEMENT and len(gold) > 1]
        if golds:
            halves[any(contains(f"{p.title} {p.text}", gold) for p in passages for gold in golds)].append(question)
    most = min(args.limit // 2, *(len(half) for half in halves.values()))
    drawn = {held: sample(half, most, args.seed) for held, half in halves.items()}
    with args.out.open("w", encoding="utf-8") as file:
        for pair in zip(drawn[True], drawn[False], strict=True):
            for question, held in zip(pair, (True, False), strict=True):
                row = {**rows[question.id], "subset": "held" if held else "not-held"}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{2 * most} questions, of {most} of them the index may hold the answer: {args.out}")


def _rows(folder: Path) -> Iterator[dict[str, str]]:
    for subset in SUBSETS:
        if (path := folder / f"{subset}.jsonl").is_file():
            yield from _json_lines(path)


def _json_lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


if __name__ == "__main__":
    main()
