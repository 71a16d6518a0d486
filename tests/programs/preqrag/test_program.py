"""PreQRAG's control flow, by a scripted LM over real retrievers."""

import pytest

from tests.retrieval.encoders import save_encoder
from tests.scripted import DEFAULTS, scripted
from tests.scripted import signatures as s
from typedrag.core.records import NOT_IN_COLLECTION, Answer, Answered, Passage
from typedrag.programs import Options, PreQRAG, PreQRAGOptions, build_program
from typedrag.retrieval import (
    DenseRetriever,
    Encoder,
    embed_index,
    open_retriever,
    reciprocal_rank_fusion,
    retriever_parts,
    weighted_fusion,
)
from typedrag.retrieval.lm_rerankers import PointwiseLMReranker

SINGLE = "Why does hommade bread turn out dense and heavy?"
MULTI = "How does nuclear power work, and how does wind power work?"
SPARSE = DEFAULTS[s.RewriteForSparse]["sparse_query"]
DENSE = DEFAULTS[s.RewriteForDense]["dense_query"]
SUBS = DEFAULTS[s.SplitQuestion]["two_sub_questions"]
STYLES = {
    "A": "AnswerDirectly",
    "B": "AnswerAsExpert",
    "C": "AnswerInSentences",
    "D": "AnswerAfterReasoning",
}


@pytest.fixture(scope="module")
def index(sample_index, tmp_path_factory):
    """The sample corpus with both parts; what the dense one finds is of no matter here."""
    import shutil

    out = shutil.copytree(sample_index, tmp_path_factory.mktemp("both") / "sample")
    encoder = Encoder(save_encoder(tmp_path_factory.mktemp("encoder")))
    embed_index(out, encoder)
    return out


@pytest.fixture(scope="module")
def hybrid(index):
    return open_retriever("hybrid", index)


@pytest.fixture
def searched(hybrid, monkeypatch):
    """What each part was asked, in order."""
    asked: list[tuple[str, list[str], int]] = []
    for name, part in zip(("bm25", "dense"), retriever_parts(hybrid), strict=True):

        def spy(queries, k, name=name, search=part.search):
            asked.append((name, list(queries), k))
            return search(queries, k)

        monkeypatch.setattr(part, "search", spy)
    return asked


class Backwards:
    """A reranker that turns the order round and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def rerank(self, query, passages, k):
        self.asked.append((query, len(passages), k))
        return list(reversed(passages))[:k]


def options(retries: int = 0, **ways) -> Options:
    return Options(preqrag=PreQRAGOptions(**ways), retries=retries)


def ask(program, question) -> Answer:
    return Answer.from_prediction(program(question=question))


def ids(passages) -> list[str]:
    return [p.id for p in passages]


def test_a_single_document_question_has_a_rewrite_for_each_part(hybrid, searched):
    with scripted() as engine:
        answer = ask(PreQRAG(hybrid), SINGLE)
    assert sorted(engine.asked()[:2]) == ["RewriteForDense", "RewriteForSparse"]
    assert engine.asked()[2:] == ["AnswerAsExpert"]
    assert searched == [("bm25", [SPARSE], 100), ("dense", [DENSE], 100)]
    lists = [
        retriever_parts(hybrid).sparse.search([SPARSE], 100)[0],
        retriever_parts(hybrid).dense.search([DENSE], 100)[0],
    ]
    assert ids(answer.passages) == ids(reciprocal_rank_fusion(lists))[:3]
    assert (answer.answer, answer.fallback, answer.dropped) == ("AnswerAsExpert says so.", "", ())
    assert answer.usage.lm_calls == 3 and answer.route == "single-document"
    assert [step.name for step in answer.steps] == ["classify", "rewrite", "rewrite", "retrieve", "pool", "answer"]


def test_a_multi_document_question_has_two_sub_questions_each_for_both_parts(hybrid, searched):
    with scripted() as engine:
        answer = ask(PreQRAG(hybrid), MULTI)
    assert engine.asked() == ["SplitQuestion", "AnswerAsExpert"]
    assert searched == [("bm25", SUBS, 100), ("dense", SUBS, 100)]
    found = zip(
        retriever_parts(hybrid).sparse.search(SUBS, 100), retriever_parts(hybrid).dense.search(SUBS, 100), strict=True
    )
    pooled = reciprocal_rank_fusion([reciprocal_rank_fusion(lists)[:5] for lists in found])
    assert ids(answer.passages) == ids(pooled)[:3]
    assert MULTI in engine.prompts[-1][1] and answer.route == "multi-document"


def test_scores_are_fused_where_the_retriever_does(index):
    weighted = open_retriever("hybrid:0.2", index)
    with scripted():
        answer = ask(PreQRAG(weighted), SINGLE)
    lists = [
        retriever_parts(weighted).sparse.search([SPARSE], 100)[0],
        retriever_parts(weighted).dense.search([DENSE], 100)[0],
    ]
    assert ids(answer.passages) == ids(weighted_fusion(lists, [0.8, 0.2]))[:3]


def test_a_reranker_chooses_by_the_question_among_more(hybrid, searched):
    reranker = Backwards()
    with scripted():
        answer = ask(PreQRAG(hybrid, reranker), SINGLE)
        ask(PreQRAG(hybrid, reranker, Options(preqrag=PreQRAGOptions(passages=2), rerank_candidates=7)), MULTI)
    assert [k for _, _, k in searched] == [20, 20, 7, 7]
    assert [(query, k) for query, _, k in reranker.asked] == [(SINGLE, 3), (MULTI, 2)]
    assert all(3 < count <= 40 for _, count, _ in reranker.asked)
    assert len(answer.passages) == 3 and "rerank" in [step.name for step in answer.steps]


@pytest.mark.parametrize(
    ("style", "generation", "question"),
    [*((style, 1, SINGLE) for style in STYLES), ("B", 3, SINGLE), *zip(STYLES, (1, 2, 3, 2), [MULTI] * 4, strict=True)],
)
def test_all_styles_and_methods(hybrid, style, generation, question):
    with scripted() as engine:
        answer = ask(PreQRAG(hybrid, options=options(prompt_style=style, generation=generation)), question)
    answered, said = STYLES[style], f"{STYLES[style]} says so."
    asked = [name for name in engine.asked() if not name.startswith("Rewrite")]
    assert answer.fallback == "" and answer.usage.lm_calls == len(engine.asked())
    assert set(answer.citations) <= set(ids(answer.passages)) and answer.citations
    if question == SINGLE:  # methods differ for multi-document questions alone
        assert (asked, answer.answer) == ([answered], said)
    elif generation == 1:
        assert (asked, answer.answer) == (["SplitQuestion", answered], said)
    elif generation == 2:
        assert asked == ["SplitQuestion", answered, answered, "AnswerFromSubAnswers"]
        assert answer.answer == "AnswerFromSubAnswers says so."
        prompt = engine.prompts[-1][1]
        assert MULTI in prompt and all(sub in prompt for sub in SUBS) and prompt.count(said) == 2
    else:
        assert (asked, answer.answer) == (["SplitQuestion", answered, answered], f"{said}\n\n{said}")


def test_each_sub_question_is_answered_from_its_own_passages(hybrid):
    reranker = Backwards()
    with scripted() as engine:
        answer = ask(PreQRAG(hybrid, reranker, options(generation=3)), MULTI)
    assert {(query, k) for query, _, k in reranker.asked} == {(sub, 3) for sub in SUBS}
    first, second = (prompt for name, prompt in engine.prompts if name == "AnswerAsExpert")
    assert (SUBS[0] in first) != (SUBS[0] in second)
    assert 3 <= len(answer.passages) <= 6
    [step] = [step for step in answer.steps if step.name == "sub-queries"]
    assert [sub.input for sub in step.steps] == SUBS  # in their order, whichever ended first
    assert [inner.name for inner in step.steps[0].steps] == ["rerank", "answer"]


def test_a_reranker_that_asks_the_lm_leaves_the_calls_that_answers_need(hybrid):
    few = options(generation=2).model_copy(update={"max_lm_calls": 8})
    with scripted() as engine:
        answer = ask(PreQRAG(hybrid, PointwiseLMReranker(), few), MULTI)
    asked = engine.asked()
    assert len(asked) == 8
    assert asked.count("AnswerAsExpert") == 2 and asked[-1] == "AnswerFromSubAnswers"
    assert answer.answer == DEFAULTS[s.AnswerFromSubAnswers]["answer"]


@pytest.mark.parametrize(("spec", "rewrite", "lacks"), [("bm25", "Sparse", "dense"), ("dense", "Dense", "bm25")])
def test_with_one_part_it_is_searched_and_the_trace_says_so(index, spec, rewrite, lacks):
    with scripted() as engine:
        single = ask(PreQRAG(open_retriever(spec, index)), SINGLE)
        multi = ask(PreQRAG(open_retriever(spec, index)), MULTI)
    assert engine.asked() == [f"RewriteFor{rewrite}", "AnswerAsExpert", "SplitQuestion", "AnswerAsExpert"]
    assert single.dropped == multi.dropped == (f"{lacks} (it is not searched)",)
    assert single.fallback == multi.fallback == ""


# what fails


@pytest.mark.parametrize("signature", [s.RewriteForSparse, s.RewriteForDense])
@pytest.mark.parametrize("reply", ["torn", {"nothing": "asked for"}])
def test_a_question_whose_rewrite_fails_is_searched_for_as_it_stands(hybrid, searched, signature, reply):
    with scripted({signature: reply}):
        answer = ask(PreQRAG(hybrid, options=options(retries=1)), SINGLE)
    expected = {("bm25", SPARSE), ("dense", DENSE)}
    failed = ("bm25", SPARSE) if signature is s.RewriteForSparse else ("dense", DENSE)
    assert {(name, queries[0]) for name, queries, _ in searched} == (expected - {failed}) | {(failed[0], SINGLE)}
    assert "searched for as it stands" in answer.fallback
    assert answer.usage.lm_calls == 4  # once again, and counted


@pytest.mark.parametrize(
    ("reply", "queries"),
    [
        ("torn", [MULTI]),
        ({"two_sub_questions": [SUBS[0]]}, [MULTI]),
        ({"two_sub_questions": [SUBS[0], "https://cup.example"]}, [MULTI, SUBS[0]]),
        ({"two_sub_questions": [SUBS[0], SUBS[0]]}, [MULTI, SUBS[0]]),
    ],
)
@pytest.mark.parametrize("generation", [1, 2])
def test_a_question_that_cannot_be_split_is_searched_for_as_it_stands(hybrid, searched, reply, queries, generation):
    with scripted({s.SplitQuestion: reply}):
        answer = ask(PreQRAG(hybrid, options=options(generation=generation)), MULTI)
    assert [asked for _, asked, _ in searched] == [queries, queries]
    assert "searched for as it stands" in answer.fallback
    assert answer.answer
    assert "sub-questions" not in [step.name for step in answer.steps]  # the whole is no part of itself


@pytest.mark.parametrize(
    ("question", "written"),
    [
        (
            "What causes malaria, and what are its effects?",
            ["What causes malaria?", "What are the effects of malaria?"],
        ),
        ("When was Leeds founded, and by whom?", ["When was Leeds founded?", "By whom was Leeds founded?"]),
        ("Is pyton or jva better?", ["What is Python good for?", "What is Java good for?"]),
    ],
)
def test_parts_may_differ_by_the_word_that_asks_and_mend_what_is_misspelt(hybrid, searched, question, written):
    with scripted(
        {s.SplitQuestion: {"two_sub_questions": written}, s.ClassifyDocumentScope: {"scope": "multi-document"}}
    ):
        answer = ask(PreQRAG(hybrid, options=options(classifier="lm")), question)
    assert [asked for _, asked, _ in searched] == [written, written]
    assert answer.fallback == ""


def test_answers_can_be_phrases(hybrid):
    phrase = Options(answer_length="phrase", preqrag=PreQRAGOptions(generation=2, prompt_style="D"))
    with scripted() as engine:
        single, multi = (ask(PreQRAG(hybrid, options=phrase), question) for question in (SINGLE, MULTI))
    assert engine.asked()[2:] == ["AnswerInPhrase", "SplitQuestion", *["AnswerInPhrase"] * 2, "ComposePhrase"]
    assert single.fallback == multi.fallback == ""


@pytest.mark.parametrize("style", STYLES)
def test_as_published_each_style_is_the_paper_s_own_prompt_and_asks_for_the_answer_alone(hybrid, style):
    published = Options.as_published("preqrag")
    published = published.with_given({"preqrag": {"prompt_style": style}})
    with scripted() as engine:
        answer = ask(PreQRAG(hybrid, options=published), SINGLE)
    name, prompt = engine.prompts[-1]
    assert name == f"{STYLES[style]}Plainly" and "under 200 tokens" in " ".join(getattr(s, name).instructions.split())
    assert "citations" not in prompt and "answered" not in prompt
    assert (answer.citations, answer.fallback) == ((), "") and answer.passages


def test_where_combining_fails_the_sub_answers_are_given(hybrid):
    with scripted({s.AnswerFromSubAnswers: "torn"}):
        answer = ask(PreQRAG(hybrid, options=options(generation=2)), MULTI)
    assert answer.answer == "AnswerAsExpert says so.\n\nAnswerAsExpert says so."
    assert "the sub-answers are given one after the other" in answer.fallback


@pytest.mark.parametrize("generation", [2, 3])
def test_where_no_sub_question_is_answered_by_its_passages_the_collection_does_not_say(hybrid, generation):
    with scripted({s.AnswerAsExpert: {"citations": [], "answered": False, "answer": ""}}) as engine:
        answer = ask(PreQRAG(hybrid, options=options(generation=generation)), MULTI)
    assert engine.asked() == ["SplitQuestion", "AnswerAsExpert", "AnswerAsExpert"]
    assert (answer.answer, answer.answered) == (NOT_IN_COLLECTION, Answered.NOTHING)
    assert len(answer.passages) >= 3 and answer.citations == ()


def test_scores_below_zero_are_cut_by_how_far_they_are_below_the_best():
    class Cosines(DenseRetriever):
        def __init__(self):
            pass

        def search(self, queries, k):
            return [[Passage(str(n), "x", score=score) for n, score in enumerate((-0.1, -0.12, -0.9))] for _ in queries]

    with scripted():
        answer = ask(build_program("rag", Cosines()), "Is it so?")
    assert ids(answer.passages) == ["0", "1"]


@pytest.mark.parametrize(("classifier", "asked"), [("rule", 0), ("lm", 1), ("either", 1)])
def test_who_classifies(hybrid, classifier, asked):
    with scripted({s.ClassifyDocumentScope: {"scope": "multi-document"}}) as engine:
        ask(PreQRAG(hybrid, options=options(classifier=classifier)), SINGLE)
    assert engine.asked().count("ClassifyDocumentScope") == asked
    assert ("SplitQuestion" in engine.asked()) == bool(asked)


def test_where_no_sub_question_is_answered_the_passages_of_both_are_answered_from(hybrid):
    def reply(prompt):
        return {"citations": [1], "answer": "So."} if MULTI in prompt else "torn"

    with scripted({s.AnswerAsExpert: reply}):
        answer = ask(PreQRAG(hybrid, options=options(generation=3)), MULTI)
    assert answer.answer == "So." and "answered from the passages of both sub-questions" in answer.fallback
