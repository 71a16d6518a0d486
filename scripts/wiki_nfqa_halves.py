"""Draws questions of Wiki-NFQA for a measurement of truthfulness: half of them can be answered from a corpus.

    python scripts/wiki_nfqa_halves.py FOLDER PASSAGES.jsonl --limit 120 --out halves.jsonl

A question can be answered if a gold answer of more than a yes or no stands in a passage, word for word. The
file is read as any of Wiki-NFQA is: `typedrag evaluate --dataset wiki-nfqa --path halves.jsonl --split all`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import dspy
from dspy.evaluate.metrics import normalize_text

from typedrag.datasets.dataset import sample
from typedrag.datasets.wiki_nfqa import SUBSETS, load_wiki_nfqa

NO_STATEMENT = {"yes", "no"}


def main() -> None:
    """Write the rows of the questions drawn, in turn of those that can be answered and those that cannot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the authors' SUBSET.jsonl files")
    parser.add_argument("corpus", type=Path, help="JSONL with title and text")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    rows = {row["question_id"]: row for row in _rows(args.folder)}
    passages = "\n".join(f" {normalize_text(p['title'] + ' ' + p['text'])} " for p in _json_lines(args.corpus))
    halves: dict[bool, list[dspy.Example]] = {True: [], False: []}
    for question in load_wiki_nfqa(args.folder).split(args.split):
        golds = {normalize_text(gold) for gold in question.answers} - NO_STATEMENT
        if golds := {gold for gold in golds if len(gold) > 1}:
            halves[any(f" {gold} " in passages for gold in golds)].append(question)
    most = min(args.limit // 2, *(len(half) for half in halves.values()))
    drawn = {held: sample(half, most, args.seed) for held, half in halves.items()}
    with args.out.open("w", encoding="utf-8") as file:
        for pair in zip(drawn[True], drawn[False], strict=True):
            for question, held in zip(pair, (True, False), strict=True):
                row = {**rows[question.id], "subset": "held" if held else "not-held"}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{2 * most} questions, {most} of them answered by the corpus: {args.out}")


def _rows(folder: Path) -> Iterator[dict[str, object]]:
    for subset in SUBSETS:
        if (path := folder / f"{subset}.jsonl").is_file():
            yield from _json_lines(path)


def _json_lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


if __name__ == "__main__":
    main()
