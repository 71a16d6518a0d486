"""Runs made by hand, in which every number is known."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from typedrag.core.question_types import QuestionType, SubQuestionType
from typedrag.core.records import Answer, Answered, Passage, Step, Usage
from typedrag.experiments.results import (
    ANSWERS,
    KIND,
    MetricResult,
    PlannedQuestion,
    QuestionResult,
    Run,
    metric_value,
    question_items,
)
from typedrag.runs import Result, RunFolder

TYPES = QuestionType.non_factoid()
SUBSETS = ("NQ-NF", "SQD-NF", "HQA-NF")
SETTINGS = {
    "dataset": "wiki-nfqa",
    "dataset fingerprint": "0123456789abcdef",
    "lm": "embedded",
    "metric linkage": {"options": {}, "scorer": "embedded"},
}


def question(
    number: int,
    measures: Mapping[str, float] | None = None,
    *,
    text: str = "",
    answer: str | None = "Because of the yeast.",
    judge_failed: bool = False,
    measurable: bool = True,
    tokens: int = 100,
) -> QuestionResult:
    """A question with an answer and a result of `linkage`; of the types and subsets in turn."""
    if judge_failed or not measurable:
        problem = "no references" if not measurable else "step 'rank' failed"
        result = MetricResult(None, problem=problem, measurable=measurable)
    else:
        result = MetricResult(0.5, measures=dict(measures or {}))
    type_ = TYPES[number % len(TYPES)]
    text = text or f"Why is thing {number} as it is?"
    found = Answer(text, answer, type_, "rag", usage=Usage(1, tokens, 0), seconds=2.0) if answer is not None else None
    return QuestionResult(
        id=f"q{number}",
        question=text,
        question_type=type_,
        subset=SUBSETS[number % len(SUBSETS)],
        answer=found,
        error="" if found else "step 'answer' failed: no reply",
        metrics={"linkage": result} if found else {},
    )


def run(name: str, *questions: QuestionResult, planned: int | None = None, **settings: Any) -> Run:
    return Run(
        name, Path("runs", name), {**SETTINGS, "program": name, **settings}, questions, planned or len(questions)
    )


def judged(name: str, *truths: float, **ranks: Sequence[float]) -> Run:
    """A run whose question i has these measures of `linkage`, and the truthfulness 1 (right), 0, or -1 (wrong)."""
    questions = []
    for i, truth in enumerate(truths):
        told = {"truthfulness": truth, "right": float(truth == 1), "wrong": float(truth == -1)}
        ranked = question(i, {measure: values[i] for measure, values in ranks.items()})
        linkage = replace(ranked.metrics["linkage"], score=ranks["mrr"][i] if "mrr" in ranks else 0.5)
        metrics = {"linkage": linkage, "truthfulness": MetricResult((truth + 1) / 2, measures=told)}
        questions.append(replace(ranked, metrics=metrics))
    return run(name, *questions)


def run_of(name: str, values: list[float], **settings: Any) -> Run:
    """A run in which question i has these values as its `linkage/mrr`."""
    return run(name, *(question(i, {"mrr": v}) for i, v in enumerate(values)), **settings)


HOSTILE = '</script><script>window.harmed = true</script><img src=x onerror="window.harmed = true">'
"""What a stranger's text may hold."""


def full_run(name: str, n: int, *, skill: float = 0.5, hostile: bool = False, **settings: Any) -> Run:
    """A run with all that a report shows: ranks, coverage, traces, failures, fallbacks."""
    luck = random.Random(name)
    return run(name, *(_full_question(i, name, skill, luck, hostile) for i in range(n)), **settings)


def _full_question(number: int, program: str, skill: float, luck: random.Random, hostile: bool) -> QuestionResult:
    if luck.random() < 0.02:
        return question(number, answer=None)
    plain = question(number)
    rank = 1 + min(3, int(luck.random() * 4 * (1.4 - skill)))
    passages = tuple(Passage(f"p{number}-{k}", f"Passage {k} of {number}. " + "words " * 80, "Bread") for k in range(5))
    sub_steps = tuple(
        Step("sub-query", f"what of {k}", f"It is {k}.", (f"p{number}-{k}",), seconds=0.4, usage=Usage(1, 90, 20))
        for k in range(2)
    )
    steps = (
        Step("classify", plain.question, str(plain.question_type), seconds=0.01),
        Step("sub-queries", output="2", steps=sub_steps, dropped=("a sub-query like another",)),
        Step("aggregate", output="An answer. " * 40, seconds=1.0, usage=Usage(1, 300, 120)),
    )
    said = f"{program} holds that thing {number} is so because of its parts. " * (1 + number % 5)
    answer = Answer(
        plain.question,
        HOSTILE if hostile and number == 0 else said,
        plain.question_type if luck.random() < 0.9 else TYPES[0],
        program,
        passages,
        (f"p{number}-0", f"p{number}-3"),
        steps,
        "" if luck.random() < 0.95 else "decompose failed; answered from the question alone",
        round(2 + luck.random() * 6, 2),
        Usage(3, 400 + luck.randrange(400), 150),
        answered={5: Answered.NOTHING, 6: Answered.KNOWLEDGE}.get(number, Answered.PASSAGES),
    )
    sub_questions = [
        {
            "text": f"Which {type_} matter {k} is behind thing {number}?",
            "type": str(type_),
            "answered": (answered := luck.random() < skill - 0.1 * place),
            "fragment": "because of its parts" if answered else "",
            "retrieved": [luck.random() < 0.3 for _ in range(5)],
            "position": 0.2 if answered else None,
            "invalid": not answered and k == 2,
            "invalid_passages": 0,
        }
        for place, type_ in enumerate(SubQuestionType)
        for k in range(3)
    ]
    linkage = MetricResult(
        (4 - rank) / 3,
        f"Rank {rank} of 4.",
        {"rank": float(rank), "mrr": 1 / rank, "mpr": (1 - (rank - 1) / 4) * 100, "expected_rank": rank * 0.9 + 0.25},
        {"convention": "typed-rag", "labels": [3, 2, 1, 0], "probabilities": [0.4, 0.3, 0.2, 0.1]},
    )
    if luck.random() < 0.03:
        linkage = MetricResult(None, problem="step 'rank' failed: no reply can be parsed")
    shares = {
        t.name.lower(): sum(bool(s["answered"]) for s in sub_questions if s["type"] == t) / 3 for t in SubQuestionType
    }
    coverage = MetricResult(0.5, "Open: the second.", shares, {"sub_questions": sub_questions})
    return replace(plain, answer=answer, metrics={"linkage": linkage, "coverage": coverage})


def write_run(made: Run, folder: Path) -> Path:
    """The run as `typedrag evaluate` leaves it."""
    questions = [PlannedQuestion(q.id, q.question, q.question_type, q.subset) for q in made.questions]
    notes = {"name": made.name}
    identity = {name: value for name, value in made.settings.items() if name not in notes}
    with RunFolder.open(
        folder, identity, kind=KIND, resume=False, items=question_items(questions), notes=notes
    ) as held:
        for q in made.questions:
            held.store.add(Result(q.id, ANSWERS, q.answer and q.answer.to_dict(), q.error))
            for name, result in q.metrics.items():
                held.store.add(Result(q.id, name, metric_value(result), result.problem, not result.measurable))
    return folder


def check_page(page: Any) -> str:
    """A page needs nothing but itself, and lets no text of a stranger act; its policy."""
    policy = str(page.find("meta", {"http-equiv": "Content-Security-Policy"})["content"])
    assert policy.startswith("default-src 'none'")
    assert not page.find_all(["img", "iframe", "object", "embed"])
    assert [tag["href"] for tag in page.find_all("link")] == ["data:,"]
    assert not [tag for tag in page.find_all(True) if tag.get("src")]
    assert not [name for tag in page.find_all(True) for name in tag.attrs if name.startswith("on")]
    assert "@import" not in page.style.string and "url(" not in page.style.string
    return policy
