"""Labels in the layouts of their authors, small enough to reckon by hand, and judges that know them."""

import json
from collections.abc import Sequence
from pathlib import Path

import dspy
import pytest

from tests.scripted import Reply, ScriptedEngine
from typedrag.lms.replies import CALL_OBSERVER
from typedrag.signatures.judging import (
    CompareAnswers,
    GradeCorrectness,
    GradeEquivalence,
    GradeRelevance,
    PlaceAmongReferences,
    RankAmongReferences,
)
from typedrag.signatures.sub_question_coverage import (
    DecomposeIntoSubQuestions,
    FindAnsweringSentences,
    FindAnswers,
    TypeSubQuestions,
)
from typedrag.signatures.typed_rag import ClassifyQuestion

QUALITIES = {"awful": 1, "poor": 2, "fair": 3, "fine": 4}
"""Words that stand in an answer of each label."""


def write_labels(folder: Path) -> Path:
    """Labels for all judges in the folder, two or three examples each."""
    write_antique(folder / "linkage" / "antique.json")
    write_types(folder / "sub_questions" / "types.jsonl")
    write_coverage(folder / "sub_questions" / "coverage.jsonl")
    write_questions(folder / "nf_cats" / "valid.csv")
    return folder


def write_antique(file: Path, questions: int = 3, answers: int = 3) -> None:
    """So many answers of each label to each question, and a question whose answers all have one label."""
    rows = {
        f"Why is thing {q} so?": [
            {"doc_id": f"{q}_{label}_{i}", "passage": f"A {word} answer {i} to {q}.", "label": label}
            for word, label in QUALITIES.items()
            for i in range(answers)
        ]
        for q in range(questions)
    }
    rows["Why are all alike?"] = [{"doc_id": "x", "passage": "Because.", "label": 4}]
    _write(file, json.dumps(rows))


def write_types(file: Path) -> None:
    rows = [
        ("Why does bread rise?", "What makes the gas?", ["core", "core", "core", "background"]),
        ("Why does bread rise?", "What is yeast?", ["background", "background", "core", "background"]),
        ("Why does bread rise?", "Who baked first?", ["core", "core", "background", "background"]),
        ("Why do cats purr?", "Which cats do not purr?", ["follow-up", "follow-up", "follow-up", "follow-up"]),
    ]
    lines = [json.dumps({"question": q, "sub_question": s, "labels": labels}) for q, s, labels in rows]
    _write(file, "\n".join(lines))


def write_coverage(file: Path) -> None:
    bread = "Yeast eats sugar. It makes gas, which lifts the dough."
    cats = "Cats purr when they are calm."
    rows = [
        (bread, "What makes the gas?", "Yeast eats sugar"),
        (bread, "How hot is an oven?", None),
        (cats, "When do cats purr?", "when they are calm"),
        (cats, "Which cats do not purr?", None),
    ]
    names = ("answer", "sub_question", "fragment", "covered")
    made = [dict(zip(names, (*row, row[2] is not None), strict=True)) for row in rows]
    _write(file, "\n".join(json.dumps({"question": "Why?", "engine": "engine", **row}) for row in made))


def write_questions(file: Path) -> None:
    rows = [
        ("REASON", "Why does bread rise when yeast is added?"),
        ("REASON", "Why do cats purr at night?"),
        ("COMPARISON", "What is the difference between crows and ravens?"),
        ("NOT-A-QUESTION", "Thanks a lot!"),
    ]
    _write(file, "annotated_by,category,question\n" + "".join(f"authors,{c},{q}\n" for c, q in rows))


def scripted_scorer(**replies: Reply) -> dspy.LM:
    """An LM that judges as the labels have it, but for the replies given by the signature's name."""
    known = {s: replies.get(s.__name__, reply) for s, reply in _RIGHT.items()}
    settings = {"num_retries": 0, "cache": True, "temperature": 0.0}
    return dspy.LM("scripted/lm", engine=ScriptedEngine(known), callbacks=[CALL_OBSERVER], **settings)


def quality(text: str) -> int:
    """The label of the first answer in a text."""
    return next(QUALITIES[word] for word in text.split() if word in QUALITIES)


def field(prompt: str, name: str) -> str:
    """What a prompt gives for a field."""
    return prompt.rsplit(f"[[ ## {name} ## ]]\n", 1)[1].split("\n\n[[ ##")[0].split("\n\nRespond")[0]


def said(**fields: object) -> str:
    """A reply as DSPy's chat adapter reads it."""
    values = {n: v if isinstance(v, str) else json.dumps(v) for n, v in fields.items()}
    return "\n\n".join([*(f"[[ ## {n} ## ]]\n{v}" for n, v in values.items()), "[[ ## completed ## ]]"])


def no_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Similarity that needs no model: how many words two texts share. The real one is tested where it is made."""

    def overlaps(text: str, others: Sequence[str], model: str = "") -> list[float]:
        return [float(len(set(text.split()) & set(other.split()))) for other in others]

    def shares(text: str, others: Sequence[str]) -> list[float]:
        return [n / max(1, len(set(o.split()))) for n, o in zip(overlaps(text, others), others, strict=True)]

    def overlap(text: str, references: Sequence[str], model: str = "", layer: int | None = None) -> dict[str, float]:
        return dict.fromkeys(("precision", "recall", "f1"), max(overlaps(text, references)))

    monkeypatch.setattr("typedrag.metrics.similarity.cosines", overlaps)
    monkeypatch.setattr("typedrag.sub_questions.evidence.cosines", overlaps)
    monkeypatch.setattr("typedrag.metrics.similarity.bertscore", overlap)
    monkeypatch.setattr("typedrag.metrics.nuggets.cosines", lambda text, others: shares(text, others))
    monkeypatch.setattr("typedrag.metrics.judges.support.cosines", lambda text, others, model="": shares(text, others))
    monkeypatch.setattr(
        "typedrag.metrics.judges.combined.cosines", lambda text, others: [n / 9 for n in overlaps(text, others)]
    )


def _rank(prompt: str) -> str:
    return said(rank=5 - quality(field(prompt, "candidate")))


def _compare(prompt: str) -> str:
    first, second = quality(field(prompt, "first_answer")), quality(field(prompt, "second_answer"))
    return said(verdict="first" if first > second else "second" if second > first else "tie")


def _types(prompt: str) -> str:
    right = {"What makes the gas?": "core", "What is yeast?": "background", "Which cats do not purr?": "follow-up"}
    asked = json.loads(field(prompt, "sub_questions"))
    return said(types={key: right.get(text, "core") for key, text in asked.items()})


def _verdicts(prompt: str) -> str:
    fragments = {"What makes the gas?": "Yeast eats sugar.", "When do cats purr?": "When they are calm"}
    asked = json.loads(field(prompt, "sub_questions"))
    return said(
        verdicts={key: {"fragment": fragments.get(t, ""), "answered": t in fragments} for key, t in asked.items()}
    )


def _sentences(prompt: str) -> str:
    numbers = {"What makes the gas?": 1, "When do cats purr?": 1}
    asked = json.loads(field(prompt, "sub_questions"))
    return said(verdicts={key: numbers.get(text, 0) for key, text in asked.items()})


_RIGHT: dict[type[dspy.Signature], Reply] = {
    RankAmongReferences: _rank,
    PlaceAmongReferences: _rank,
    GradeRelevance: lambda prompt: said(grade=quality(field(prompt, "answer")) // 2),
    GradeEquivalence: lambda prompt: said(grade=quality(field(prompt, "answer")) // 2),
    GradeCorrectness: lambda prompt: said(grade=quality(field(prompt, "answer")) - 2),
    CompareAnswers: _compare,
    DecomposeIntoSubQuestions: said(sub_questions=[f"What of part {n}?" for n in range(10)]),
    TypeSubQuestions: _types,
    FindAnswers: _verdicts,
    FindAnsweringSentences: _sentences,
    ClassifyQuestion: said(question_type="reason"),
}


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
