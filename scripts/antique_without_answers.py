"""Leave the passages out of ANTIQUE that people labelled as an answer to one of its questions (3 or 4 of 4).

    python scripts/antique_without_answers.py antique.json.gz PASSAGES.jsonl --out without.jsonl

`typedrag index build without.jsonl --out INDEX` makes the collection. It still holds passages on a question's topic
that people found to be no answer, and unlabelled ones, of which a few may be one.
"""

import argparse
import json
from pathlib import Path

from typedrag.datasets import load_dataset
from typedrag.files.text_files import open_text
from typedrag.metrics.overlap import good_references


def main() -> None:
    """Write the passages that are left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="ANTIQUE's questions with labelled passages")
    parser.add_argument("passages", type=Path, help="the collection, as JSON lines")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    examples = load_dataset("antique", args.dataset).examples
    answers = {_plain(text) for example in examples for text in good_references(example)}
    with open_text(args.passages) as passages, args.out.open("w", encoding="utf-8") as file:
        rows = list(passages)
        left = [row for row in rows if _plain(json.loads(row)["text"]) not in answers]
        file.writelines(left)
    print(f"{len(left):,} of {len(rows):,} passages are left: {args.out}")


def _plain(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    main()
