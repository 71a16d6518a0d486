"""Each option changes what a program does."""

import pytest
from pydantic import ValidationError

from tests.scripted import DEFAULTS, scripted
from tests.scripted import signatures as s
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Passage
from typedrag.programs import RAG, Options, SubQueryOptions, TypedRAG
from typedrag.retrieval import NoReranker

REASON = "Why does homemade bread turn out dense and heavy?"
EVIDENCE = "How do vaccines protect the body against disease?"


class Spy:
    """Finds 30 passages for anything and remembers what it was asked."""

    def __init__(self):
        self.calls = []

    def search(self, queries, k):
        self.calls.append((list(queries), k))
        return [[Passage(f"{n}", f"passage {n} " + "word " * 300) for n in range(min(k, 30))] for _ in queries]


class Backwards:
    """A reranker that turns the order round."""

    def rerank(self, query, passages, k):
        return list(reversed(passages))[:k]


def run(question, reranker=None, **options):
    spy = Spy()
    with scripted() as engine:
        prediction = TypedRAG(spy, reranker, Options(**options))(question=question)
    return prediction, spy, engine


def test_top_k_and_rerank_candidates():
    assert run(EVIDENCE, top_k=3)[1].calls[0][1] == 3
    assert run(EVIDENCE, top_k=3, reranker=NoReranker(), rerank_candidates=12)[1].calls[0][1] == 3
    assert run(EVIDENCE, Backwards(), top_k=3, rerank_candidates=12)[1].calls[0][1] == 12


def test_rerank_everywhere():
    assert run(EVIDENCE, Backwards())[0].passages[0].id == "19"
    assert run(EVIDENCE, Backwards(), rerank_everywhere=False)[0].passages[0].id == "0"


def test_answer_passages_and_passage_words():
    prediction, _, engine = run(EVIDENCE, answer_passages=2, passage_words=10)
    assert len(prediction.passages) == 2
    assert engine.prompts[-1][1].count("word") == 2 * 8
    assert len(prediction.passages[0].text.split()) == 302


def test_max_sub_queries():
    assert len(run(REASON, max_sub_queries=1)[1].calls[0][0]) == 2  # the question and one


@pytest.mark.parametrize("question_type", ["reason", "instruction", "debate"])
def test_how_sub_queries_are_combined_and_searched_per_type(question_type):
    question = {
        "reason": REASON,
        "instruction": "How do I paint the walls of a room?",
        "debate": "Should schools require pupils to wear a uniform?",
    }[question_type]
    ways = SubQueryOptions(combine="aggregate", search="joined")
    _, spy, _ = run(question, **{question_type: ways})
    assert all(q.startswith(question) for q in spy.calls[0][0])
    ways = SubQueryOptions(combine="pool", search="sub-query")
    _, spy, engine = run(question, **{question_type: ways})
    assert [q.startswith(question) for q in spy.calls[0][0]] == [True, False, False]
    assert len(engine.prompts) == 2


def test_score_cutoff():
    class Falling(Spy):
        def search(self, queries, k):
            return [[Passage(str(n), "x", score=self.best - 2 * n) for n in range(k)] for _ in queries]

    def seen(reranker=None, best=10.0, **options):
        Falling.best = best
        with scripted():
            prediction = TypedRAG(Falling(), reranker, Options(**options))(question=EVIDENCE)
        return [p.id for p in prediction.passages]

    assert seen() == ["0", "1", "2", "3"]
    assert seen(score_cutoff=0.7) == ["0", "1"]
    assert seen(score_cutoff=0) == seen(best=1.0, score_cutoff=0) == ["0", "1", "2", "3", "4"]
    assert seen(Backwards(), score_cutoff=0.7) == ["19", "18", "17", "16", "15"]


def test_comparison_search():
    question = "What is the difference between nuclear power and wind power?"
    items = DEFAULTS[s.FrameComparison]["items_compared"]
    assert run(question)[1].calls[0][0] == [question, *(f"{question} {item}" for item in items)]
    assert run(question, comparison_search="items")[1].calls[0][0] == items


def test_experience_search():
    question = "What are the best tips for cycling to work every day?"
    assert run(question)[1].calls[0][0] == [f"{question} cycling to work tips"]
    assert run(question, experience_search="keywords")[1].calls[0][0] == ["cycling to work tips"]
    assert run(question, experience_search="question")[1].calls[0][0] == [question]
    assert run(question, experience_search="each")[1].calls[0][0] == ["cycling to work", "tips"]


def test_retries():
    with scripted({s.AnswerFromPassages: "torn"}) as engine:
        RAG(Spy(), options=Options(retries=3))(question=EVIDENCE)
    assert len(engine.prompts) == 4


def test_by_type():
    """A debate has options of its own, and a reason question the others."""
    debate = "Should school uniforms be required?"
    own = {"debate": {"top_k": 2, "max_sub_queries": 1}}
    assert run(debate, top_k=7, by_type=own)[1].calls[0][1] == 2
    assert run(REASON, top_k=7, by_type=own)[1].calls[0][1] == 7
    assert len(run(debate, by_type=own)[1].calls[0][0]) < len(run(debate)[1].calls[0][0])


@pytest.mark.parametrize(
    ("own", "problem"),
    [({"threads": 1}, "debate has no threads of its own"), ({"top_k": 0}, "greater than 0"), ({"top_k": "x"}, "valid")],
)
def test_options_of_a_type_are_checked(own, problem):
    with pytest.raises(ValidationError, match=problem):
        Options(by_type={"debate": own})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"by_type": {"reason": {"foo": 3}}}, "^reason has no foo of its own; it may have top_k"),
        ({"hanrag": {"router": "foo"}}, r"^option hanrag\.router cannot be 'foo'\. .*'rule' or .*'compound'"),
        ({"top_k": "many"}, "^option top_k cannot be 'many'. Input should be a valid integer"),
    ],
)
def test_an_option_that_does_not_fit_is_named_with_what_would(given, said):
    with pytest.raises(InputError, match=said):
        Options().with_given(given)


@pytest.mark.parametrize("question_type", ["comparison", "experience", "reason", "instruction", "debate"])
def test_a_type_that_is_not_decomposed_is_answered_the_evidence_based_way(question_type):
    question = QuestionType(question_type).example
    typed = Options(decompose={question_type: False}, type_classifier="lm")
    with scripted({s.ClassifyQuestion: {"question_type": question_type}}) as engine:
        prediction = TypedRAG(Spy(), options=typed)(question=question)
    assert engine.asked() == ["ClassifyQuestion", "AnswerFromPassages"]
    assert (prediction.question_type, prediction.fallback) == (question_type, "")


def test_modules_is_one_switch_that_other_options_override():
    by_signatures = Options().with_given(
        {"modules": "signatures", "reason": {"search": "joined"}, "coverage_rounds": 2}
    )
    assert (by_signatures.type_classifier, by_signatures.coverage_rounds) == ("lm", 2)
    assert by_signatures.reason == SubQueryOptions(combine="aggregate", search="joined")
    assert by_signatures.instruction == by_signatures.debate == Options(modules="signatures").reason
    assert Options.model_validate(by_signatures.model_dump()) == by_signatures
    with pytest.raises(InputError, match="option modules cannot be 'all'"):
        Options().with_given({"modules": "all"})


def test_unknown_and_misfit_options_are_refused():
    with pytest.raises(ValidationError):
        Options(topk=3)
    with pytest.raises(ValidationError):
        Options(top_k=0)
    with pytest.raises(ValidationError):
        Options().top_k = 4
