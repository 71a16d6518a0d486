import pytest

from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.records import Passage, total_usage
from typedrag.lms.trace import collect_steps, limit_calls, reserve_calls
from typedrag.programs import RAG, Options
from typedrag.retrieval import open_reranker
from typedrag.retrieval.lm_rerankers import ListwiseLMReranker, PointwiseLMReranker

PASSAGES = [Passage(f"p{n}", f"worth {n} words", score=1.0) for n in (2, 0, 3, 1, 3, 2)]
TWELVE = [Passage(f"p{n}", f"number {n:02}") for n in range(12)]


def by_worth(prompt: str) -> dict[str, int]:
    return {"grade": next(n for n in range(4) if f"worth {n}" in prompt)}


def ids(passages) -> list[str]:
    return [p.id for p in passages]


def test_point_wise_ranks_by_grades_and_ties_keep_the_order():
    with scripted({s.GradePassage: by_worth}) as engine, collect_steps() as steps:
        ranked = open_reranker("lm-pointwise").rerank("How?", PASSAGES, 4)
    assert [(p.id, p.score) for p in ranked] == [("p3", 3.0), ("p3", 3.0), ("p2", 2.0), ("p2", 2.0)]
    assert len(engine.prompts) == 6 and total_usage(steps).lm_calls == 6
    assert [step.output for step in steps[0].steps] == ["2", "0", "3", "1", "3", "2"]  # as they came, not as they ended


def test_what_cannot_be_graded_comes_last():
    with scripted({s.GradePassage: lambda prompt: "torn" if "worth 3" in prompt else by_worth(prompt)}):
        ranked = PointwiseLMReranker(retries=0).rerank("How?", PASSAGES, 6)
    assert ids(ranked) == ["p2", "p2", "p1", "p0", "p3", "p3"] and ranked[-1].score == -1


@pytest.mark.parametrize(
    ("spec", "reply"),
    [("lm-pointwise", {s.GradePassage: {"grade": 1}}), ("lm-listwise", {s.OrderPassages: {"order": [1]}})],
)
def test_the_lm_that_ranks_sees_as_much_of_a_passage_as_the_one_that_answers(spec, reply, sample_retriever):
    long = [Passage(f"p{n}", " ".join(f"w{i}." for i in range(400))) for n in range(2)]
    program = RAG(sample_retriever, open_reranker(spec), Options(passage_words=300))
    with scripted(reply) as engine:
        program.reranker.rerank("How?", long, 2)
        open_reranker(spec).rerank("How?", long, 2)
    shown = [max(n for n in range(400) if f"w{n}." in prompt) + 1 for _, prompt in engine.prompts]
    assert sorted(set(shown)) == [200, 300]


def test_a_call_is_left_for_the_answer():
    with scripted({s.GradePassage: by_worth}) as engine, collect_steps() as steps, limit_calls(4), reserve_calls(1):
        ranked = PointwiseLMReranker().rerank("How?", PASSAGES, 6)
    assert len(engine.prompts) == 3
    assert ids(ranked) == ["p3", "p2", "p0", "p1", "p3", "p2"]
    assert steps[0].dropped == tuple(f"p{n} (no LM calls left to grade it)" for n in (1, 3, 2))
    assert steps[0].output == "a higher max_lm_calls would grade 3 more"


def test_list_wise_lets_a_good_passage_rise_through_windows_that_overlap():
    windows = []

    def highest_first(prompt: str) -> dict[str, list[int]]:
        at = {n: prompt.index(f"number {n:02}") for n in range(12) if f"number {n:02}" in prompt}
        windows.append(sorted(at, key=lambda n: at[n]))
        return {"order": [windows[-1].index(max(at)) + 1]}  # the others are not named

    with scripted({s.OrderPassages: highest_first}), collect_steps() as steps:
        ranked = ListwiseLMReranker(window=6, step=3).rerank("How?", TWELVE, 12)
    assert windows == [[6, 7, 8, 9, 10, 11], [3, 4, 5, 11, 6, 7], [0, 1, 2, 11, 3, 4]]
    assert ids(ranked) == [f"p{n}" for n in (11, *range(11))]
    assert [p.score for p in ranked] == [1 / place for place in range(1, 13)]
    assert total_usage(steps).lm_calls == 3


def test_numbers_that_are_none_or_come_twice_are_passed_by():
    with scripted({s.OrderPassages: {"order": [3, 3, 44, 1]}}):
        assert ids(open_reranker("lm-listwise").rerank("How?", TWELVE[:4], 4)) == ["p2", "p0", "p1", "p3"]


def test_where_calls_run_out_the_first_window_is_ordered():
    with (
        scripted({s.OrderPassages: {"order": [2]}}) as engine,
        collect_steps() as steps,
        limit_calls(2),
        reserve_calls(1),
    ):
        ranked = ListwiseLMReranker(window=6, step=3).rerank("How?", TWELVE, 12)
    assert len(engine.prompts) == 1 and ids(ranked)[:2] == ["p1", "p0"]
    assert steps[0].dropped == ("window from 7 (no LM calls left for it)", "window from 4 (no LM calls left for it)")
