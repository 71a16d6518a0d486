"""Write the questions of TREC's Deep Learning tracks in the form of TREC-DL-NF, as the LINKAGE authors have it.

    python -m scripts.trec_dl PASSAGES.jsonl --topics topics.dl19-passage.txt topics.dl20.txt \\
        --qrels qrels.dl19-passage.txt qrels.dl20-passage.txt --out TREC-DL-NF.json

The passages are those of an index, so that a question counts whose labelled passages it holds: at least `--labelled`
of them, two of which are relevant (label 2 or 3). Anserini's jar, in the package pyserini 0.21, has topics and qrels.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typedrag.files.text_files import open_text

PREFIX = "msmarco-"
RELEVANT = 2


def lines(files: list[Path], separator: str | None = None) -> Iterator[list[str]]:
    """The fields of each line of some files."""
    for file in files:
        yield from (line.split(separator) for line in file.read_text("utf-8").splitlines())


def main() -> None:
    """Write the questions with the labels of the passages that are at hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("passages", type=Path, help="JSONL of `id` and `text`, also gzipped")
    parser.add_argument("--topics", type=Path, nargs="+", required=True, help="TSV of question id and question")
    parser.add_argument("--qrels", type=Path, nargs="+", required=True, help="question id, 0, passage id, label")
    parser.add_argument("--labelled", type=int, default=15, help="labelled passages at least (default: 15)")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with open_text(arguments.passages) as file:
        texts = {row["id"].removeprefix(PREFIX): row["text"] for row in map(json.loads, file)}
    labelled: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for question, _, passage, label in lines(arguments.qrels):
        if passage in texts:
            labelled[question].append({"docid": passage, "passage": texts[passage], "label": int(label)})
    questions = {
        text: labelled[question]
        for question, text in lines(arguments.topics, "\t")
        if len(labelled[question]) >= arguments.labelled
        and sum(passage["label"] >= RELEVANT for passage in labelled[question]) > 1
    }
    arguments.out.write_text(json.dumps(questions, ensure_ascii=False), "utf-8")
    print(f"{len(questions)} questions: {arguments.out}")


if __name__ == "__main__":
    main()
