import dspy
import pytest

from benchmarks.typed_retrieval import as_deep, beside, measure, table, without_answers
from tests.programs.passages import Numbered
from tests.programs.ways import EACH_ANSWERED
from tests.scripted import scripted
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Passage, Reference
from typedrag.programs import RAG, Options, TypedRAG

ASKED = {
    QuestionType.EVIDENCE_BASED: ("How do vaccines protect the body against disease?", []),
    QuestionType.COMPARISON: ("What is the difference between nuclear power and wind power?", ["FrameComparison"]),
    QuestionType.REASON: ("Why does homemade bread turn out dense and heavy?", ["DecomposeReason"]),
    QuestionType.DEBATE: ("Should schools require pupils to wear a uniform?", ["FrameDebate"]),
}


@pytest.mark.parametrize("options", [Options(), EACH_ANSWERED], ids=["default", "each answered"])
@pytest.mark.parametrize("question_type", ASKED)
def test_an_lm_is_asked_for_decompositions_alone(question_type, options):
    question, asked = ASKED[question_type]
    with scripted() as engine:
        found = without_answers(TypedRAG(Numbered(), options=options))(question=question)
    assert engine.asked() == asked
    assert found.question_type == question_type
    assert len(found.passages) >= 5


def test_a_search_as_deep_has_as_many_candidates_as_all_queries_found():
    question, _ = ASKED[QuestionType.REASON]
    spy = Numbered()
    with scripted():
        found = without_answers(TypedRAG(spy))(question=question)
    assert [len(queries) for queries, _ in spy.batches] == [3]  # the question, and joined to it two sub-queries
    passages = as_deep(found, RAG(spy))
    assert spy.batches[-1] == ([question], 15)
    assert len(passages) == 5


def test_of_the_first_five_the_good_and_the_gain_are_counted():
    labels = [4, 3, 2, 1]
    references = tuple(Reference(f"label {n}", n) for n in labels)
    example = dspy.Example(references=references, passage_texts=("label 4", "label 3"))
    best = [Passage(str(n), f"label  {n}") for n in labels]
    assert measure(best, example, 1) == {"ndcg": 1.0, "good": 2, "passages": 4, "ids": ["4", "3", "2", "1"]}
    others = [Passage(f"x{n}", f"unlabelled {n}") for n in range(5)]
    below = measure([*others, *best], example, 1)
    assert (below["ndcg"], below["good"], below["passages"]) == (0.0, 0, 9)
    # gains 3, 2, 1 at ranks 1, 2, 3 at best; here 3 at rank 2
    second = measure([others[0], best[0]], example, 1)["ndcg"]
    assert second == pytest.approx((3 / 1.585) / (3 + 2 / 1.585 + 1 / 2), 1e-3)


def test_differences_are_of_the_same_questions():
    def row(ndcg: float) -> dict[str, object]:
        return {"question_type": "reason", "typed": {"ndcg": ndcg, "good": 1}, "decomposed": ""}

    rows = beside({"a": row(0.75), "b": row(0.5), "c": row(0)}, {"a": row(0.25), "b": row(0)})
    said = table(rows, ("before", "typed")).splitlines()
    assert said[-1].startswith("| all | 2 | 0.125 | 0.625 | 0.500 (n = 2 questions) | 1.000 | 1.000 |")
