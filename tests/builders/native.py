"""Small files in the layouts that the revelator's sources are published in."""

from pathlib import Path
from typing import Any

import dspy

from tests.datasets.files import write_json, write_jsonl
from typedrag.builders.builder import Built
from typedrag.builders.revelator import RevelatorData
from typedrag.runs.work import Stages

MUSIQUE = {
    "id": "3hop1__1_2_3",
    "paragraphs": [
        {"idx": 0, "title": "Forth Bridge", "paragraph_text": "John Fowler designed it.", "is_supporting": True},
        {"idx": 1, "title": "Tay Bridge", "paragraph_text": "It fell in 1879.", "is_supporting": False},
        {"idx": 2, "title": "John Fowler", "paragraph_text": "He was born in Sheffield.", "is_supporting": True},
        {"idx": 3, "title": "Sheffield", "paragraph_text": "It lies on the Sheaf.", "is_supporting": True},
        {"idx": 4, "title": "Leeds", "paragraph_text": "It lies on the Aire.", "is_supporting": False},
        {"idx": 5, "title": "Steel", "paragraph_text": "It is an alloy.", "is_supporting": False},
    ],
    "question": "Which river flows through the town where the designer of the Forth Bridge was born?",
    "question_decomposition": [
        {"id": 1, "question": "Who designed the Forth Bridge?", "answer": "John Fowler", "paragraph_support_idx": 0},
        {"id": 2, "question": "#1 >> place of birth", "answer": "Sheffield", "paragraph_support_idx": 2},
        {"id": 3, "question": "Which river flows through #2", "answer": "Sheaf", "paragraph_support_idx": 3},
    ],
    "answer": "Sheaf",
    "answer_aliases": [],
    "answerable": True,
}
TWO_WIKI = {
    "_id": "8813",
    "type": "inference",
    "question": "Who is the father-in-law of Queen Hyojeong?",
    "context": [
        ["Queen Hyojeong", ["She was the wife of Heonjong of Joseon.", " She died in 1904."]],
        ["Heonjong of Joseon", ["His father was Crown Prince Hyomyeong."]],
        ["Jeongjo", ["He reigned before."]],
        ["Empty", ["  "]],
    ],
    "supporting_facts": [["Queen Hyojeong", 0], ["Heonjong of Joseon", 0]],
    "evidences": [
        ["Queen Hyojeong", "spouse", "Heonjong of Joseon"],
        ["Heonjong of Joseon", "father", "Crown Prince Hyomyeong"],
    ],
    "answer": "Crown Prince Hyomyeong",
}
DPR = {
    "dataset": "nq_train_psgs_w100",
    "question": "who built the eiffel tower",
    "answers": ["Gustave Eiffel"],
    "positive_ctxs": [{"title": "Eiffel Tower", "text": "Built by Gustave Eiffel.", "score": 1000, "passage_id": "7"}],
    "negative_ctxs": [{"title": "Cats", "text": "Cats sleep.", "passage_id": "8"}],
    "hard_negative_ctxs": [{"title": "Paris", "text": "A city.", "passage_id": "9"}],
}
COMMONSENSE = {
    "answerKey": "A",
    "id": "075",
    "question": {
        "question_concept": "punish",
        "choices": [{"label": "A", "text": "ignore"}],
        "stem": "Where would you sit down?",
    },
}
COMPOUND = {
    "id": "c1",
    "subset": "train",
    "entity": "Forth Bridge",
    "question": "When was the Forth Bridge opened, and how long is it?",
    "route": "compound",
    "answers": ["1890 && 2.5 km"],
    "sub_queries": ["When was the Forth Bridge opened?", "How long is the Forth Bridge?"],
    "sub_answers": ["1890", "2.5 km"],
    "passage_ids": ["p1", "p2"],
}
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Forth_Bridge",
            "paragraphs": [
                {
                    "context": "It was opened in 1890 and is 2.5 km long. William Arrol built it.",
                    "qas": [
                        {"id": "1", "question": "When was the Forth Bridge opened?", "answers": [{"text": "1890"}]},
                        {"id": "2", "question": "How long is the Forth Bridge?", "answers": [{"text": "2.5 km"}]},
                        {"id": "3", "question": "Who built the Forth Bridge?", "answers": [{"text": "William Arrol"}]},
                    ],
                }
            ],
        },
        {
            "title": "Steel",
            "paragraphs": [
                {
                    "context": "Steel is iron with carbon.",
                    "qas": [{"id": "4", "question": "What is steel?", "answers": [{"text": "iron with carbon"}]}],
                }
            ],
        },
    ],
}


def build_rows(**settings: Any) -> Built:
    """The revelator's rows out of such files; the LM in use labels relevance, if it is to."""
    return RevelatorData(**settings).build(Stages(), lambda _: dspy.settings.lm)


def publish(folder: Path) -> dict[str, Path]:
    """A native file of each source."""
    return {
        "musique": write_jsonl(folder / "musique_ans_v1.0_train.jsonl", MUSIQUE),
        "two_wiki": write_json(folder / "train.json", [TWO_WIKI]),
        "dpr": write_json(folder / "biencoder-nq-train.json", [DPR]),
        "nq": write_jsonl(folder / "NQ-open.train.jsonl", {"question": "where is leeds", "answer": ["England", "UK"]}),
        "commonsense": write_jsonl(folder / "train_rand_split.jsonl", COMMONSENSE),
        "compound": write_jsonl(folder / "compound.jsonl", COMPOUND, {**COMPOUND, "id": "c2", "subset": "test"}),
        "squad": write_json(folder / "train-v1.1.json", SQUAD),
    }
