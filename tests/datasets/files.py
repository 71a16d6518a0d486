"""Small files in the layouts of real datasets, and refusals."""

import gzip
import json
from pathlib import Path

import pytest

from typedrag.core.errors import InputError
from typedrag.datasets import load_dataset


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, "utf-8")
    return path


def write_jsonl(path: Path, *rows) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_json(path: Path, value) -> Path:
    return write(path, json.dumps(value))


def refusal(name: str, path: Path | None = None, **options) -> str:
    """What is said when a dataset cannot be loaded."""
    with pytest.raises(InputError) as caught:
        load_dataset(name, path, **options)
    return str(caught.value)


Asked = list[tuple[str, str]]
"""Questions, each with the part of train, dev and test that its source has put it in."""


def write_questions(name: str, folder: Path, asked: Asked) -> Path | None:
    """The questions in the layout of a dataset, where its loader finds them; None if it has questions of its own."""
    if name == "sample":
        return None
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(str(n), question, part) for n, (question, part) in enumerate(asked)]
    return _WRITERS[name](folder, rows)


def _in_parts(pattern: str, row, parts=("train", "dev", "test"), whole=lambda rows: rows):
    """Writes a file for each part that has rows."""

    def write_all(folder: Path, rows) -> Path:
        for part, called in zip(("train", "dev", "test"), parts, strict=True):
            if of_part := [row(i, question) for i, question, p in rows if p == part]:
                file = folder / pattern.format(called)
                write_jsonl(file, *of_part) if file.suffix == ".jsonl" else write_json(file, whole(of_part))
        return folder

    return write_all


def _in_one(name: str, row):
    return lambda folder, rows: write_jsonl(folder / name, *(row(*each) for each in rows))


def _tables(header: str, row, suffix: str, parts=("train", "dev", "test")):
    def write_all(folder: Path, rows) -> Path:
        for part, called in zip(("train", "dev", "test"), parts, strict=True):
            if lines := [row(i, question) for i, question, p in rows if p == part]:
                write(folder / f"{called}{suffix}", "\n".join([header, *lines]) + "\n")
        return folder

    return write_all


def _wikipassageqa(folder: Path, rows) -> Path:
    write_json(folder / "document_passages.json", {"1": {"0": "A."}})
    return _tables("QID\tQuestion\tDocumentID\tRelevantPassages", lambda i, q: f"{i}\t{q}\t1\t0", ".tsv")(folder, rows)


def _linkage(folder: Path, rows) -> Path:
    return write_json(folder / "questions.json", {q: [{"doc_id": i, "passage": i, "label": 3}] for i, q, _ in rows})


def _webgpt(i: str, question: str, _: str) -> list[dict]:
    told = {"dataset": "eli5", "id": i, "full_text": question}
    long = "and so on " * 20
    return [{"question": told, "answer": f"{side} {i} {long}", "score": s} for side, s in (("a", 1), ("b", -1))]


def _part(part: str) -> str:
    return {"dev": "validation"}.get(part, part)


def _hotpot(i: str, question: str) -> dict:
    return {"_id": i, "question": question, "answer": "yes"}


def _articles(questions: list[dict]) -> dict:
    return {"data": [{"title": "T", "paragraphs": [{"context": "C", "qas": questions}]}]}


_DEV = ("train", "dev", "validation")  # where a source has no test part with answers, its file is not looked for
_TARGETS = [[aspect, "about it"] for aspect in "abc"]
_WRITERS = {
    "2wikimultihopqa": _in_parts("{}.json", _hotpot, _DEV),
    "adaptive-rag": _in_parts(
        "{}_subsampled.jsonl",
        lambda i, q: {"question_id": i, "question_text": q, "answers_objects": [{"spans": ["a"]}]},
        ("not published", "dev_500", "test"),
    ),
    "antique": _linkage,
    "compound": _in_one(
        "c.jsonl",
        lambda i, q, p: {
            "id": i, "subset": _part(p), "entity": i, "question": q, "answers": ["a && b"],
            "sub_queries": ["a?", "b?"], "sub_answers": ["a", "b"],
        },
    ),
    "fabrications": _in_one(
        "fabrications.jsonl",
        lambda i, q, p: {
            "id": i, "question": q, "answers": ["a"],
            "candidates": [{"kind": "right", "text": "a"}, {"kind": "guessed", "text": "b"}],
        },
    ),
    "everyday": _in_one("e.jsonl", lambda i, q, p: {"question": q, "type": "reason", "form": i[-1]}),
    "file": _in_one("f.jsonl", lambda i, q, p: {"id": i, "question": q, "subset": i[-1]}),
    "hotpotqa": _in_parts("{}.json", _hotpot, ("hotpot_train_v1.1", "hotpot_dev_distractor_v1", "x")),
    "liverag": _in_one(
        "l.jsonl", lambda i, q, p: {"Index": i, "Question": q, "Answer": "a", "Supporting_Documents": [{"doc_id": i}]}
    ),
    "musique": _in_parts("musique_ans_v1.0_{}.jsonl", lambda i, q: {"id": i, "question": q, "answer": "a"}, _DEV),
    "natural-questions": _in_parts("NQ-open.{}.jsonl", lambda i, q: {"question": q, "answer": ["a"]}, _DEV),
    "nf-cats": _tables("category,question", lambda i, q: f"REASON,{q}", ".csv", ("train", "valid", "test")),
    "pairs": _in_one("p.jsonl", lambda i, q, p: {"question": q, "first": i, "second": "x", "preference": 1}),
    "researchy-questions": _in_parts(
        "{}.jsonl", lambda i, q: {"id": i, "question": q}, ("train", "not published", "test")
    ),
    "revelator": _in_one(
        "r.jsonl", lambda i, q, p: {"id": i, "role": "router", "part": _part(p), "question": q, "route": "compound"}
    ),
    "richrag": _in_parts(
        "wikiasp.{}.jsonl", lambda i, q: {"question": q, "answer": i, "subqs": [f"{q} a", "b"], "subas": ["x", "y"]}
    ),
    "squad": _in_parts(
        "{}-v1.1.json", lambda i, q: {"id": i, "question": q, "answers": [{"text": "a"}]}, _DEV, _articles
    ),
    "sub-question-coverage": _in_one(
        "coverage.jsonl",
        lambda i, q, p: {
            "question": q, "sub_question": "a?", "answer": i, "engine": i[-1], "covered": False, "fragment": None,
        },
    ),
    "sub-question-types": _in_one(
        "types.jsonl", lambda i, q, p: {"question": q, "sub_question": f"{i}?", "labels": ["core"]}
    ),
    "trec-dl-nf": _linkage,
    "triviaqa": _in_parts(
        "web-{}.json",
        lambda i, q: {"QuestionId": i, "Question": q, "Answer": {"Value": "a"}},
        _DEV,
        lambda rows: {"Data": rows},
    ),
    "webgpt": _in_one("comparisons.jsonl", _webgpt),
    "wiki-nfqa": _in_one(
        "nq.jsonl",
        lambda i, q, p: {"question_id": i, "question_text": q, "answer_list": ["a", "b"], "answer_label": [0, 3]},
    ),
    "wikiasp": _in_parts(
        "Album/{}.jsonl", lambda i, q: {"exid": i, "title": q, "targets": _TARGETS}, ("train", "valid", "test")
    ),
    "wikipassageqa": _wikipassageqa,
}  # fmt: skip
