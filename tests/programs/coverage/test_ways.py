import json
from collections.abc import Sequence

import pytest

from tests.scripted import scripted
from typedrag.core.records import Answer
from typedrag.programs import Options, build_program
from typedrag.retrieval.lm_rerankers import PointwiseLMReranker
from typedrag.signatures import AnswerFromPassages, predictor
from typedrag.signatures.answering import AnswerReason, AnswerSubQuery
from typedrag.signatures.sub_question_coverage import (
    CORE_DEFINITION,
    AnswerByDefinition,
    AnswerByDefinitionPlainly,
    AnswerCoveringSubQuestions,
    AnswerSubQuestionsPlainly,
    CombineSubAnswers,
    DecomposeIntoSubQuestions,
    DecomposePlainly,
    FindAnsweringSentences,
    FindAnswerPlainly,
    ReviseAnswer,
    TypePlainly,
    TypeSubQuestions,
)
from typedrag.signatures.typed_rag import AnswerPlainly

QUESTION = "Why does homemade bread turn out dense and heavy?"
WRITTEN = [
    "Does too much flour make bread heavy?",
    "Does old yeast make bread dense?",
    *(f"What is a matter of background number {n}?" for n in range(8)),
]
CORE = WRITTEN[:2]


def types(prompt: str) -> dict:
    keys = json.loads(prompt.rpartition("[[ ## sub_questions ## ]]\n")[2].partition("\n")[0])
    return {"types": {key: "core" if text in CORE else "background" for key, text in keys.items()}}


def covering(*answered: str):
    """A judge that finds these sub-questions answered by the first sentence."""

    def judge(prompt: str) -> dict:
        keys = json.loads(prompt.rpartition("[[ ## sub_questions ## ]]\n")[2].partition("\n")[0])
        return {"verdicts": {key: int(text in answered) for key, text in keys.items()}}

    return judge


def covering_once_revised(*before: str, after: Sequence[str] = CORE):
    """A judge that finds these answered by a draft, and others by its revision."""
    return lambda prompt: covering(*(after if "Revised" in prompt else before))(prompt)


def said(text: str) -> dict:
    return {"citations": [1], "answer": text}


REPLIES = {
    DecomposeIntoSubQuestions: {"sub_questions": WRITTEN},
    TypeSubQuestions: types,
    AnswerFromPassages: said("From passages."),
    AnswerReason: said("A draft."),
    AnswerByDefinition: said("By definition."),
    AnswerCoveringSubQuestions: said("Covering."),
    AnswerSubQuery: said("A part."),
    CombineSubAnswers: {"answer": "Combined."},
    FindAnsweringSentences: covering(),
    ReviseAnswer: said("Revised."),
}


PLAIN = {
    DecomposePlainly: {"sub_questions": WRITTEN},
    TypePlainly: types,
    AnswerByDefinitionPlainly: {"answer": "By definition."},
    AnswerSubQuestionsPlainly: {"answer": "Covering."},
    AnswerPlainly: {"answer": "Plain."},
    FindAnswerPlainly: lambda prompt: {"verdicts": {"q1": {"answered": "yeast" in prompt.rpartition("q1")[2]}}},
}


@pytest.fixture
def ask(sample_retriever):
    def run(name: str, replies=None, reranker=None, **options):
        with scripted({**REPLIES, **PLAIN, **(replies or {})}) as engine:
            program = build_program(name, sample_retriever, reranker, Options(**options))
            return program(question=QUESTION), engine

    return run


def queries(answer) -> list[str]:
    return [
        step.input for s in answer.steps for step in s.walk() if step.name in ("retrieve", "query") and not step.steps
    ]


def test_the_definition_is_told_to_the_lm_that_answers(ask):
    answer, engine = ask("coverage_definition")
    assert engine.asked() == ["AnswerByDefinition"]
    assert answer.answer == "By definition."
    assert queries(answer) == [QUESTION]
    assert answer.fallback == ""


def test_as_published_the_definition_is_searched_for_too_and_prompts_say_no_more_than_the_paper(ask):
    plain = {"answer_prompt": "plain", "ungrounded": True}
    assert all(getattr(Options.as_published("coverage_definition"), name) == value for name, value in plain.items())
    answer, engine = ask("coverage_definition", **plain)
    assert (engine.asked(), queries(answer)) == (["AnswerByDefinitionPlainly"], [f"{QUESTION} {CORE_DEFINITION}"])
    core = ["DecomposePlainly", *["TypePlainly"] * len(WRITTEN)]
    answer, engine = ask("coverage_sub_questions", types_per_call=1, **plain)
    assert (engine.asked(), answer.answer) == ([*core, "AnswerSubQuestionsPlainly"], "Covering.")
    answer, engine = ask("coverage_retrieval", types_per_call=1, **plain)
    assert engine.asked() == [*core, "AnswerPlainly"]
    answer, engine = ask("coverage_end_to_end", types_per_call=1, **plain)
    assert engine.asked() == [*core, "AnswerPlainly", "AnswerPlainly", "CombineSubAnswers"]
    assert not any("answered" in prompt or "citations" in prompt for name, prompt in engine.prompts if "Answer" in name)


def test_as_published_the_pool_is_judged_as_answers_are(ask):
    how = {"answer_prompt": "plain", "coverage_rerank": "judge", "max_lm_calls": 500}
    answer, engine = ask("coverage_retrieval", **how)
    [judged] = [step for step in answer.steps if step.name == "judgments"]
    assert engine.asked().count("FindAnswerPlainly") == 2 * int(judged.input.split()[0]) > 2


def test_core_sub_questions_are_searched_for_and_told_to_the_lm_that_answers(ask):
    answer, engine = ask("coverage_sub_questions")
    assert engine.asked() == ["DecomposeIntoSubQuestions", "TypeSubQuestions", "AnswerCoveringSubQuestions"]
    assert queries(answer) == [" ".join([QUESTION, *CORE])]
    _, prompt = engine.prompts[-1]
    assert all(text in prompt for text in CORE)
    assert WRITTEN[2] not in prompt
    assert answer.usage.lm_calls == 3


def test_retrieval_pools_what_is_found_for_each_and_ranks_it_by_what_it_covers(ask, sample_retriever):
    answer, engine = ask("coverage_retrieval")
    assert engine.asked() == ["DecomposeIntoSubQuestions", "TypeSubQuestions", "AnswerFromPassages"]
    assert queries(answer) == [QUESTION, *CORE]
    rankings = [[p.id for p in ranking] for ranking in sample_retriever.search([QUESTION, *CORE], 5)]
    in_all = set.intersection(*map(set, rankings))
    assert in_all
    first = [p.id for p in answer.passages][: len(in_all)]
    assert set(first) == in_all


def test_a_reranker_ranks_the_whole_pool_for_each_core_sub_question(ask, sample_retriever):
    asked: list[tuple[str, set[str]]] = []

    class ById:
        """For every query the passage with the last id first."""

        def rerank(self, query, passages, k):
            asked.append((query, {p.id for p in passages}))
            return sorted(passages, key=lambda p: p.id, reverse=True)[:k]

    answer, _ = ask("coverage_retrieval", reranker=ById(), rerank_candidates=6, top_k=3)
    assert [query for query, _ in asked] == CORE
    [pool] = {frozenset(ids) for _, ids in asked}
    assert pool == {p.id for ranking in sample_retriever.search([QUESTION, *CORE], 6) for p in ranking}
    assert [p.id for p in answer.passages] == sorted(pool, reverse=True)[:5]


def test_what_only_the_question_finds_comes_last(ask, sample_retriever):
    answer, _ = ask("coverage_retrieval", top_k=8, answer_passages=20, score_cutoff=0)
    of_question, *of_core = ({p.id for p in r} for r in sample_retriever.search([QUESTION, *CORE], 8))
    only = of_question - set.union(*of_core)
    found = [p.id for p in answer.passages]
    assert only and set(found[-len(only) :]) == only


def test_passages_for_sub_questions_whose_weight_is_below_0_come_last(ask, sample_retriever):
    """What is found for a core sub-question is put after all else once its like counts against a passage."""
    types_ = {"types": {f"q{n}": ("core", "follow-up")[n == 2] if n < 3 else "background" for n in range(1, 11)}}
    first, second = ({p.id for p in r} for r in sample_retriever.search(CORE, 5))
    few = {"answer_passages": 20, "score_cutoff": 0}
    answer, _ = ask("coverage_retrieval", {TypeSubQuestions: types_}, coverage_weights={"follow_up": -1}, **few)
    assert queries(answer) == [QUESTION, *CORE]
    found = [p.id for p in answer.passages]
    [of_question] = sample_retriever.search([QUESTION], 5)
    assert set(found) == first | {p.id for p in of_question}  # nothing is added for it
    strayed = (second - first) & set(found)
    assert strayed and set(found[-len(strayed) :]) == strayed


def test_a_judge_can_rank_the_pool(ask, sample_retriever):
    [ranking] = sample_retriever.search([CORE[1]], 5)
    wanted = ranking[-1]

    def judge(prompt: str) -> dict:
        keys = json.loads(prompt.rpartition("[[ ## sub_questions ## ]]\n")[2].partition("\n")[0])
        covers = wanted.text.split(".")[0] in prompt
        return {"verdicts": dict.fromkeys(keys, int(covers))}

    replies = {FindAnsweringSentences: judge}
    answer, engine = ask("coverage_retrieval", replies, coverage_rerank="judge", score_cutoff=0, max_lm_calls=40)
    assert answer.passages[0].id == wanted.id
    assert engine.asked().count("FindAnsweringSentences") > 5
    assert not any("to judge it" in left for step in answer.steps for s in step.walk() for left in s.dropped)
    few, engine = ask("coverage_retrieval", replies, coverage_rerank="judge", score_cutoff=0, max_lm_calls=5)
    assert engine.asked().count("FindAnsweringSentences") == 2
    assert few.answer == "From passages."
    [judged] = [s for step in few.steps for s in step.walk() if s.name == "judgments"]
    assert judged.input == "2 passages" and len(judged.steps) == 2
    assert judged.output == f"a higher max_lm_calls would judge {len(judged.dropped)} more"
    assert judged.dropped and all(" (no LM calls left to judge it)" in left for left in judged.dropped)
    torn = {FindAnsweringSentences: "no JSON"}  # asked for again, but not by the call that is the answer's
    few, engine = ask("coverage_retrieval", torn, coverage_rerank="judge", score_cutoff=0, max_lm_calls=5)
    assert len(engine.prompts) == 5
    assert few.answer == "From passages."


def test_passages_are_judged_as_far_as_the_calls_of_all_their_sub_questions_suffice(ask):
    many = [f"What is cause number {n} of dense bread?" for n in range(12)]  # two calls a passage
    replies = {
        DecomposeIntoSubQuestions: {"sub_questions": many},
        TypeSubQuestions: {"types": {f"q{n}": "core" for n in range(1, 13)}},
        FindAnsweringSentences: covering(*many),
    }
    few = {"coverage_rerank": "judge", "max_lm_calls": 8, "max_core_sub_questions": 99, "score_cutoff": 0}
    answer, engine = ask("coverage_retrieval", replies, **few)
    assert engine.asked().count("FindAnsweringSentences") == 4  # of two passages: the answer needs the last
    assert (answer.answer, answer.fallback) == ("From passages.", "")


@pytest.mark.parametrize(("per_call", "calls"), [(1, 10), (20, 1)])
def test_sub_questions_are_typed_as_many_in_a_call_as_is_said(ask, per_call, calls):
    _, engine = ask("coverage_sub_questions", types_per_call=per_call)
    assert engine.asked().count("TypeSubQuestions") == calls


def test_end_to_end_answers_each_and_combines(ask):
    answer, engine = ask("coverage_end_to_end")
    asked = engine.asked()
    assert asked[:2] == ["DecomposeIntoSubQuestions", "TypeSubQuestions"]
    assert asked[2:] == ["AnswerSubQuery", "AnswerSubQuery", "CombineSubAnswers"]
    assert queries(answer) == CORE
    assert answer.answer == "Combined."
    assert answer.usage.lm_calls == 5


@pytest.mark.parametrize("name", ["coverage_sub_questions", "coverage_retrieval", "coverage_end_to_end"])
@pytest.mark.parametrize(
    "replies",
    [
        {DecomposeIntoSubQuestions: "no JSON"},
        {TypeSubQuestions: lambda prompt: {"types": dict.fromkeys((f"q{n}" for n in range(1, 11)), "background")}},
    ],
)
def test_without_core_sub_questions_it_is_plain_rag_and_says_so(ask, name, replies):
    answer, _ = ask(name, replies, retries=0)
    assert answer.answer == "From passages."
    assert "answered without core sub-questions" in answer.fallback
    assert queries(answer) == [QUESTION]


def test_a_reranker_that_asks_the_lm_leaves_calls_for_all_answers(sample_retriever):
    options = Options(max_lm_calls=12, retries=0)
    with scripted(REPLIES) as engine:
        program = build_program("coverage_end_to_end", sample_retriever, PointwiseLMReranker(retries=0), options)
        answer = program(question=QUESTION)
    asked = engine.asked()
    assert asked[-1] == "CombineSubAnswers" and asked.count("AnswerSubQuery") == 2
    assert asked.count("GradePassage") == 12 - 5 and answer.usage.lm_calls == 12


def test_where_no_sub_question_finds_anything_the_question_itself_is_searched_for(sample_retriever):
    class OnlyTheQuestion:
        def search(self, queries, k):
            found = zip(queries, sample_retriever.search(queries, k), strict=True)
            return [ranking if query == QUESTION else [] for query, ranking in found]

    with scripted(REPLIES) as engine:
        answer = build_program("coverage_end_to_end", OnlyTheQuestion())(question=QUESTION)
    assert engine.asked()[-1] == "AnswerFromPassages" and answer.passages
    assert "no passage found" in answer.fallback


@pytest.mark.parametrize("name", ["coverage_sub_questions", "coverage_retrieval", "coverage_end_to_end"])
def test_sub_questions_that_are_copied_from_a_demonstration_are_none(ask, name):
    [demonstration] = predictor(DecomposeIntoSubQuestions).demos
    answer, engine = ask(name, {DecomposeIntoSubQuestions: {"sub_questions": demonstration.sub_questions}})
    assert "no usable sub-question came out; answered without core sub-questions" in answer.fallback
    assert engine.asked()[-1] == "AnswerFromPassages"


# rounds


def test_a_round_looks_for_what_the_draft_leaves_open_and_revises(ask):
    judge = covering_once_revised(CORE[0])
    answer, engine = ask("typed_rag", {FindAnsweringSentences: judge}, coverage_rounds=1, top_k=2)
    assert engine.asked()[-5:] == [
        "DecomposeIntoSubQuestions",
        "TypeSubQuestions",
        "FindAnsweringSentences",
        "ReviseAnswer",
        "FindAnsweringSentences",
    ]
    assert answer.answer == "Revised."
    assert queries(answer)[-1] == CORE[1]
    _, prompt = engine.prompts[-2]
    assert "A draft." in prompt and CORE[1] in prompt and CORE[0] not in prompt
    assert len({p.id for p in answer.passages}) == len(answer.passages)
    assert len(answer.citations) == 2
    assert answer.usage.lm_calls == len(engine.prompts)


def test_rounds_end_where_nothing_is_open(ask):
    answer, engine = ask("typed_rag", {FindAnsweringSentences: covering(*CORE)}, coverage_rounds=3)
    assert answer.answer == "A draft."
    assert engine.asked().count("FindAnsweringSentences") == 1
    assert "ReviseAnswer" not in engine.asked()


@pytest.mark.parametrize(
    ("after", "covers"),
    [
        ([], f"2 sub-questions open after it, 1 before; no longer covered: {CORE[0]}"),
        (CORE[:1], "1 sub-questions open after it, 1 before"),
        (CORE[1:], f"1 sub-questions open after it, 1 before; no longer covered: {CORE[0]}"),
    ],
)
def test_a_revision_that_covers_no_more_is_not_taken(ask, after, covers):
    judge = covering_once_revised(CORE[0], after=after)
    answer, engine = ask("typed_rag", {FindAnsweringSentences: judge}, coverage_rounds=9, top_k=2)
    assert answer.answer == "A draft." and answer.fallback == ""
    assert engine.asked().count("ReviseAnswer") == 1
    assert Answer.from_prediction(answer).dropped == (f"Revised. ({covers})",)


def test_a_revision_that_gains_less_than_it_strays_is_not_taken(ask):
    """It covers the other core sub-question, and goes into all that was not asked."""
    keys = {f"q{n}": "core" if n < 3 else "follow-up" for n in range(1, len(WRITTEN) + 1)}
    judge = covering_once_revised(CORE[0], after=WRITTEN)
    replies = {TypeSubQuestions: {"types": keys}, FindAnsweringSentences: judge}
    for follow_up, answer in ((-0.25, "Revised."), (-1.0, "A draft.")):
        made, _ = ask("typed_rag", replies, coverage_rounds=1, top_k=2, coverage_weights={"follow_up": follow_up})
        assert made.answer == answer


def test_a_revision_that_covers_more_but_loses_what_was_covered_is_not_taken(ask):
    core = WRITTEN[:3]
    keys = {f"q{n}": "core" if n <= len(core) else "background" for n in range(1, len(WRITTEN) + 1)}
    judge = covering_once_revised(core[2], after=core[:2])
    replies = {TypeSubQuestions: {"types": keys}, FindAnsweringSentences: judge}
    answer, _ = ask("typed_rag", replies, coverage_rounds=1, top_k=2)
    assert answer.answer == "A draft."
    [dropped] = Answer.from_prediction(answer).dropped
    assert dropped == f"Revised. (1 sub-questions open after it, 2 before; no longer covered: {core[2]})"


def test_a_round_has_the_calls_it_needs_left_by_a_reranker(ask):
    judge = covering_once_revised(CORE[0], after=CORE)
    few = {"coverage_rounds": 1, "top_k": 2, "rerank_candidates": 4, "answer_passages": 2, "max_lm_calls": 12}
    answer, engine = ask("typed_rag", {FindAnsweringSentences: judge}, PointwiseLMReranker(), **few)
    assert engine.asked().count("GradePassage") == 5  # of eight
    assert answer.answer == "Revised."


def test_a_round_that_fails_leaves_the_answer_as_it_was(ask):
    answer, engine = ask("typed_rag", {ReviseAnswer: "no JSON"}, coverage_rounds=2, retries=0, top_k=2)
    assert answer.answer == "A draft."
    assert "not revised any further" in answer.fallback
    assert answer.usage.lm_calls == len(engine.prompts)  # what was spent on the revision is counted


def test_rounds_end_where_nothing_new_is_found(ask):
    judge = covering_once_revised(after=CORE[:1])
    answer, engine = ask("typed_rag", {FindAnsweringSentences: judge}, coverage_rounds=9, top_k=1, max_lm_calls=99)
    assert engine.asked().count("ReviseAnswer") == 1
    assert engine.asked()[-1] == "FindAnsweringSentences"
    assert answer.answer == "Revised." and not Answer.from_prediction(answer).dropped


def test_rounds_end_with_the_lm_calls(ask):
    answer, engine = ask("typed_rag", coverage_rounds=9, max_lm_calls=5, top_k=2)
    assert "ReviseAnswer" not in engine.asked()
    assert answer.answer == "A draft."
    assert answer.fallback == ""
