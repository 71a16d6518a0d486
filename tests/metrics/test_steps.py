from __future__ import annotations

import dspy
import pytest

from tests.scripted import scripted
from typedrag.core.records import Step
from typedrag.metrics import build_metric
from typedrag.metrics.ranking import retrieval_cycles
from typedrag.programs import RAG, DirectLM, Options, Program, TypedRAG

RETRIEVE, ANSWER = Step("retrieve"), Step("answer")


@pytest.mark.parametrize(
    ("steps", "cycles"),
    [
        ((), 0),
        ((ANSWER,), 0),
        ((RETRIEVE, ANSWER), 1),
        ((RETRIEVE, ANSWER, RETRIEVE, ANSWER), 2),
        ((Step("retrieve", steps=(Step("query"), Step("query"))), ANSWER), 1),
        ((Step("sub-queries", steps=(Step("sub-query", steps=(RETRIEVE, ANSWER)),) * 3),), 1),
        ((Step("revise", steps=(RETRIEVE, ANSWER)), Step("revise", steps=(RETRIEVE, ANSWER))), 2),
    ],
)
def test_cycles(steps: tuple[Step, ...], cycles: int) -> None:
    assert retrieval_cycles(steps) == cycles
    scored = build_metric("steps")(dspy.Example(), dspy.Prediction(answer="", steps=steps))
    assert scored.measures == {"steps": cycles} and scored.score == 1 / (1 + cycles)


@pytest.mark.parametrize(("program", "cycles"), [(DirectLM, 0), (RAG, 1), (TypedRAG, 1)])
def test_programs_record_what_is_counted(program: type[Program], cycles: int, sample_retriever) -> None:
    """Typed-RAG retrieves for all sub-queries of a question at once."""
    with scripted():
        made = program(sample_retriever)(question="Why did the Roman Empire fall?")
    assert retrieval_cycles(made.steps) == cycles


def test_reranking_every_sub_query_is_still_one_cycle(sample_retriever) -> None:
    with scripted():
        made = TypedRAG(sample_retriever, options=Options(rerank_everywhere=True))(question="Why did Rome fall?")
    assert retrieval_cycles(made.steps) == 1
