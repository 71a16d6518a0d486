"""RichRAG against its paper's definitions (section 3), and its neighbour RAG-Fusion."""

import dspy
import pytest

from tests.scripted import DEFAULTS, scripted
from tests.scripted import signatures as s
from typedrag.core.call_context import use_context
from typedrag.core.errors import InputError
from typedrag.core.records import Answer, Passage
from typedrag.programs import Options, RAGFusion, RichRAG, RichRAGOptions
from typedrag.programs.richrag import merge
from typedrag.retrieval import AspectReranker, NoReranker
from typedrag.retrieval.lm_rerankers import PointwiseLMReranker

QUESTION = "What should people know about nuclear power?"
ASPECTS = DEFAULTS[s.ExploreSubAspects]["sub_aspects"]


class Spy:
    """For each query finds passages of its own and one that all share; remembers what it was asked."""

    def __init__(self, found: int = 30):
        self.calls = []
        self.found = found

    def search(self, queries, k):
        self.calls.append((list(queries), k))
        own = [[Passage(f"{q[-4:]}{n}", f"{n} on {q}", score=9 - n / 10) for n in range(self.found)] for q in queries]
        return [[Passage("all", "for all", score=10.0), *ranking][:k] for ranking in own]


class ListSpy:
    """A list ranker that takes the last passages and remembers what it was given."""

    def __init__(self):
        self.given = None

    def rerank(self, query, passages, k):
        raise AssertionError("it can read sub-aspects")

    def rerank_by_aspects(self, query, passages, k, aspects, *, repeat=False):
        self.given = query, list(passages), k, dict(aspects), repeat
        return [passages[-1]] * 2 if repeat else list(passages[::-1][:k])


def ask(program, question=QUESTION) -> Answer:
    return Answer.from_prediction(program(question=question))


def test_each_sub_aspect_is_searched_for_together_with_the_question_in_one_batch():
    spy = Spy()
    with scripted() as engine:
        answer = ask(RichRAG(spy))
    assert engine.asked() == ["ExploreSubAspects", "AnswerRichly"]
    assert spy.calls == [([f"{QUESTION} {aspect}" for aspect in ASPECTS], 20)]
    assert answer.program == "richrag" and answer.answer == "AnswerRichly says so." and answer.fallback == ""
    assert [step.name for step in answer.steps] == ["decompose", "retrieve", "pool", "answer"]


def test_repeated_passages_are_merged_with_the_set_of_their_sub_aspects():
    ranker = ListSpy()
    assert isinstance(ranker, AspectReranker) and not isinstance(NoReranker(), AspectReranker)
    with scripted():
        answer = ask(RichRAG(Spy(), ranker, Options(richrag=RichRAGOptions(passages_per_aspect=3, pool_limit=6))))
    query, passages, k, aspects, repeat = ranker.given
    assert (query, k, repeat) == (QUESTION, 5, False)
    ends = [aspect[-4:] for aspect in ASPECTS]
    assert [p.id for p in passages] == ["all", *(f"{e}0" for e in ends), f"{ends[0]}1", f"{ends[1]}1"]
    assert aspects["all"] == tuple(ASPECTS) and aspects[f"{ends[1]}0"] == (ASPECTS[1],)
    assert [p.id for p in answer.passages] == [p.id for p in passages[::-1][:5]]


def test_without_a_ranker_the_first_passages_of_all_sub_aspects_come_first():
    with scripted():
        answer = ask(RichRAG(Spy()))
    assert [p.id for p in answer.passages] == ["all", *(f"{a[-4:]}0" for a in ASPECTS), f"{ASPECTS[0][-4:]}1"]


@pytest.mark.parametrize(
    ("options", "graded", "said"),
    [(Options(), 14, "a higher max_lm_calls would grade 46 more"), (Options(max_lm_calls=70), 60, "")],
)
def test_the_lm_grades_as_many_of_the_pool_as_its_calls_allow_and_the_trace_says_how_to_grade_more(
    options, graded, said
):
    aspects = {"sub_aspects": [f"aspect {word}" for word in ("north", "south", "east", "west")]}
    with scripted({s.ExploreSubAspects: aspects}) as engine:
        answer = ask(RichRAG(Spy(), PointwiseLMReranker(), options))
    assert engine.asked().count("GradePassage") == graded
    [grades] = [step for step in answer.steps if step.name == "grades"]
    assert grades.output == said


def test_each_option_changes_what_it_says():
    def run(ranker=None, **options):
        spy, ranker = Spy(), ranker or ListSpy()
        with scripted():
            answer = ask(RichRAG(spy, ranker, Options(richrag=RichRAGOptions(**options))))
        return spy, ranker, answer

    assert len(run(max_aspects=2)[0].calls[0][0]) == 2
    assert run(passages_per_aspect=7)[0].calls[0][1] == 7
    assert len(run(pool_limit=11)[1].given[1]) == 11
    answer = run(repeat=True)[2]
    assert len(answer.passages) == 2 and answer.passages[0] == answer.passages[1]
    assert len(set(answer.citations)) == len(answer.citations)
    assert "one more than the 2 allowed" in " ".join(run(max_aspects=2)[2].dropped)


def test_the_question_alone_is_searched_for_without_sub_aspects():
    spy, ranker = Spy(), ListSpy()
    with scripted() as engine:
        ask(RichRAG(spy, ranker, Options(richrag=RichRAGOptions(search="question", passages_per_aspect=50))))
    assert engine.asked() == ["AnswerRichly"]
    assert spy.calls == [([QUESTION], 50)]
    assert set(ranker.given[3].values()) == {()}


def test_rag_fusion_of_the_paper_fuses_what_is_found_for_the_sub_aspects():
    found = {ASPECTS[0]: "abc", ASPECTS[1]: "xyc", ASPECTS[2]: "nmc"}

    class Fixed:
        def search(self, queries, k):
            return [[Passage(i, i, score=1.0) for i in found[q.removeprefix(f"{QUESTION} ")]] for q in queries]

    def answered_from(merge):
        with scripted():
            answer = ask(RichRAG(Fixed(), options=Options(richrag=RichRAGOptions(merge=merge, pool_limit=4))))
        return [p.id for p in answer.passages]

    assert answered_from("turns") == ["a", "x", "n", "b"]
    assert answered_from("fusion") == ["c", "a", "x", "n"]


def golden(**options):
    return (
        RichRAG(spy := Spy(), ranker := ListSpy(), Options(richrag=RichRAGOptions(aspects="golden", **options))),
        spy,
        ranker,
    )


def test_golden_sub_aspects_take_the_place_of_those_that_the_lm_names():
    program, spy, ranker = golden()
    with scripted() as engine, use_context(labels={"aspects": ("history", "waste", "history")}):
        answer = ask(program)
    assert engine.asked() == ["AnswerRichly"]
    assert spy.calls[0][0] == [f"{QUESTION} history", f"{QUESTION} waste"]
    assert set(ranker.given[3].values()) == {("history", "waste"), ("history",), ("waste",)}
    assert answer.steps[0].output == "history; waste"


def test_the_lm_that_answers_is_told_the_sub_aspects():
    program, spy, _ = golden(search="question", tell_aspects=True)
    with scripted() as engine, use_context(labels={"aspects": ("history", "waste")}):
        ask(program)
    assert spy.calls[0][0] == [QUESTION]
    [(asked, prompt)] = engine.prompts
    assert asked == "AnswerByAspects" and '["history", "waste"]' in prompt


def test_golden_sub_aspects_that_nobody_gives_are_refused():
    program, *_ = golden()
    with pytest.raises(InputError, match="the question has no labelled ones"), scripted():
        program(question=QUESTION)


def test_sub_aspects_that_repeat_others_are_dropped_and_counted():
    with scripted({s.ExploreSubAspects: {"sub_aspects": ["the costs", "Costs", "effects", "causes"]}}):
        answer = ask(RichRAG(spy := Spy()))
    assert [q.removeprefix(f"{QUESTION} ") for q in spy.calls[0][0]] == ["the costs", "effects", "causes"]
    assert answer.dropped[0] == "Costs (repeats another)"


@pytest.mark.parametrize(
    ("program", "signature", "asked"),
    [(RichRAG, s.ExploreSubAspects, "AnswerRichly"), (RAGFusion, s.VaryQuery, "AnswerFromPassages")],
)
def test_without_readable_queries_the_question_alone_is_searched_for(program, signature, asked):
    spy = Spy()
    with scripted({signature: "torn"}) as engine:
        answer = ask(program(spy, options=Options(retries=0)))
    assert spy.calls[0][0] == [QUESTION] and engine.asked()[-1] == asked
    assert "searched with the question alone" in answer.fallback
    assert answer.usage.lm_calls == 2


def test_an_answer_that_cannot_be_read_gives_way_to_the_best_passage():
    with scripted({s.AnswerRichly: "torn"}):
        answer = ask(RichRAG(Spy(), options=Options(retries=0)))
    assert answer.answer == "for all" and "the best passage found is given as it is" in answer.fallback


def test_the_pool_of_one_ranking_is_its_beginning():
    ranking = [Passage(str(n), "x") for n in range(5)]
    pool = merge([ranking], [], limit=3)
    assert pool.passages == ranking[:3] and set(pool.aspects.values()) == {()}
    assert merge([], [], 3).passages == []


def test_rag_fusion_fuses_the_rankings_of_the_question_and_its_variants():
    question = "Why does homemade bread turn out dense and heavy?"
    variants = DEFAULTS[s.VaryQuery]["queries"]
    found = {question: "abc", variants[0]: "bca", variants[1]: "bxa"}

    class Fixed:
        def search(self, queries, k):
            assert list(queries) == [question, *variants]
            return [[Passage(i, i, score=1.0) for i in found[q]] for q in queries]

    with scripted() as engine:
        answer = ask(RAGFusion(Fixed()), question)
    assert engine.asked() == ["VaryQuery", "AnswerFromPassages"]
    assert [p.id for p in answer.passages] == ["b", "a", "c", "x"]


def test_as_published_all_named_sub_aspects_are_searched_for():
    named = ["the costs", "Costs", "effects"]
    with scripted({s.ExploreSubAspects: {"sub_aspects": named}}):
        answer = RichRAG(spy := Spy(), options=Options.as_published("richrag"))(question=QUESTION)
    assert answer.answer == "AnswerRichlyPlainly says so."
    assert [q.removeprefix(f"{QUESTION} ") for q in spy.calls[0][0]] == named


def test_the_explorer_may_be_an_lm_of_its_own(monkeypatch):
    with scripted() as own:
        lm = dspy.settings.lm
    monkeypatch.setattr("typedrag.lms.lm._open_once", lambda spec: {"own/lm": lm}[spec])
    # the scripted LM takes no schema: its adapter is DSPy's own, and the reply is in its layout
    own.replies[s.ExploreSubAspects] = '[[ ## sub_aspects ## ]]\n["costs", "effects"]\n\n[[ ## completed ## ]]'
    with scripted() as engine:
        answer = ask(RichRAG(Spy(), options=Options(richrag=RichRAGOptions(explorer_lm="own/lm"))))
    assert (own.asked(), engine.asked()) == (["ExploreSubAspects"], ["AnswerRichly"])
    assert answer.steps[0].output == "costs; effects" and answer.steps[0].usage.lm_calls == 1
