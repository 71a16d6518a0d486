"""What is answered where the passages hold no answer."""

import dspy
import pytest

from tests.programs.passages import ASKING_PROGRAMS, Numbered
from tests.scripted import DEFAULTS, scripted
from tests.scripted import signatures as s
from typedrag.core.records import NOT_IN_COLLECTION, Answer, Answered
from typedrag.programs import Options, SubQueryOptions, build_program

REASON = "Why does homemade bread turn out dense and heavy?"
DEBATE = "Should schools require pupils to wear a uniform?"
AGGREGATE = SubQueryOptions(combine="aggregate", search="sub-query")
NO = {"citations": [], "answered": False, "answer": ""}
FROM_PASSAGES = [
    signature
    for signature in vars(s).values()
    if isinstance(signature, type)
    and issubclass(signature, dspy.Signature)
    and {"passages", "citations"} <= signature.model_fields.keys()
]


def ask(name="rag", question=REASON, options=None, retriever=None, **replies) -> tuple[Answer, list[str]]:
    """The answer, and the signatures asked for."""
    with scripted({getattr(s, signature): reply for signature, reply in replies.items()}) as engine:
        program = build_program(name, retriever or Numbered(), options=options)
        answer = Answer.from_prediction(program(question=question))
    return answer, engine.asked()


@pytest.mark.parametrize("written", ["", "Bread is dense for lack of gas."])
def test_where_the_passages_hold_no_answer_the_collection_does_not_say(written):
    answer, asked = ask(AnswerFromPassages={"citations": [1], "answered": False, "answer": written})
    assert asked == ["AnswerFromPassages"]  # an answer that is blank for that is not asked for again
    assert (answer.answer, answer.answered, answer.grounded) == (NOT_IN_COLLECTION, Answered.NOTHING, False)
    assert len(answer.passages) == 5 and answer.citations == () and answer.fallback == ""
    assert [d for d in answer.dropped if written and d.startswith(written)] == list(answer.dropped)
    assert next(step for step in answer.steps if step.name == "answer").output == "not answered"


def test_an_answer_that_cites_nothing_is_kept_and_not_grounded():
    answer, _ = ask(AnswerFromPassages={"citations": [], "answered": True, "answer": "For lack of gas."})
    assert (answer.answer, answer.answered, answer.grounded) == ("For lack of gas.", Answered.PASSAGES, False)


CHECKED = Options(answer_support=0.4)
DRAFT = {"citations": [1], "answer": "Bakers know that gluten needs patience."}


def test_an_answer_that_its_passages_do_not_support_gives_way_to_quotes():
    quote = {"citations": [1], "answer": "Passage 0 on bread."}
    answer, asked = ask(options=CHECKED, AnswerFromPassages=DRAFT, QuotePassages=quote)
    assert asked == ["AnswerFromPassages", "QuotePassages"]
    assert (answer.answer, answer.answered, answer.usage.lm_calls) == (quote["answer"], Answered.PASSAGES, 2)
    assert f"{DRAFT['answer']} (its passages support little of it)" in answer.dropped


@pytest.mark.parametrize("quote", [NO, {"citations": [1], "answer": "Gluten needs patience."}])
def test_where_quotes_are_not_in_the_passages_either_the_collection_does_not_say(quote):
    answer, _ = ask(options=CHECKED, AnswerFromPassages=DRAFT, QuotePassages=quote)
    assert (answer.answer, answer.answered) == (NOT_IN_COLLECTION, Answered.NOTHING)


@pytest.mark.parametrize(
    ("options", "draft"),
    [
        (CHECKED, "Passage 0 says that bread turns out heavy."),
        (CHECKED, "Das Brot ist dicht, weil die Hefe zu alt war und zu wenig Gas bildet."),
        (Options(answer_support=0.4, answer_prompt="plain"), DRAFT["answer"]),
        (Options(answer_support=0.4, max_lm_calls=1), DRAFT["answer"]),
    ],
    ids=["supported", "in another language", "plain", "no calls left"],
)
def test_other_answers_stay(options, draft):
    reply = {"citations": [1], "answer": draft}
    answer, asked = ask(options=options, AnswerFromPassages=reply, AnswerPlainly={"answer": draft})
    assert answer.answer == draft and len(asked) == 1


def test_what_the_lm_knows_is_told_apart_and_cites_nothing():
    answer, asked = ask(options=Options(ungrounded=True), AnswerFromPassages=NO)
    assert asked == ["AnswerFromPassages", "AnswerWithoutPassages"]
    assert (answer.answer, answer.answered) == ("AnswerWithoutPassages says so.", Answered.KNOWLEDGE)
    assert answer.citations == answer.passages == () and answer.fallback == ""


@pytest.mark.parametrize("torn", ["torn", {"citations": [], "answered": True, "answer": " "}])
def test_a_reply_that_cannot_be_read_still_gives_way_to_the_best_passage(torn):
    answer, _ = ask(options=Options(retries=0), AnswerFromPassages=torn)
    assert answer.answer == answer.passages[0].text
    assert (answer.answered, answer.grounded) == (Answered.PASSAGES, True)


@pytest.mark.parametrize("there", [100, 0], ids=["found", "nothing found"])
@pytest.mark.parametrize("name", ASKING_PROGRAMS)
def test_every_program_says_so(name, there):
    never = {signature.__name__: NO for signature in FROM_PASSAGES}
    written = {"sub_questions": [f"What is reason number {n} for dense bread?" for n in range(10)]}
    core = {"types": {f"q{n}": "core" for n in range(1, 11)}}
    replies = {**never, "DecomposeIntoSubQuestions": written, "TypeSubQuestions": core}
    answer, _ = ask(name, retriever=Numbered(there), **replies)
    expected = Answered.KNOWLEDGE if name == "direct_lm" else Answered.NOTHING
    assert answer.answered == expected
    assert (answer.answer == NOT_IN_COLLECTION) == (expected is Answered.NOTHING)


def test_only_answered_sub_queries_are_aggregated():
    first, second = DEFAULTS[s.DecomposeReason]["sub_queries"]

    def reply(prompt):
        return NO if first in prompt else {"citations": [1], "answer": "Too much flour."}

    with scripted({s.AnswerSubQuery: reply}) as engine:
        program = build_program("typed_rag", Numbered(), options=Options(reason=AGGREGATE))
        answer = Answer.from_prediction(program(question=REASON))
    name, prompt = engine.prompts[-1]
    assert name == "AggregateReasons" and second in prompt and first not in prompt
    assert answer.fallback == "" and answer.grounded
    assert all(second in p.text for p in answer.passages)
    ways = next(step for step in answer.steps if step.name == "sub-queries").steps
    assert "the passages do not answer" in ways[0].output and ways[1].output == "Too much flour."


def test_where_no_sub_query_is_answered_the_collection_does_not_say():
    answer, asked = ask("typed_rag", options=Options(reason=AGGREGATE), AnswerSubQuery=NO)
    assert asked == ["DecomposeReason", "AnswerSubQuery", "AnswerSubQuery"]
    assert (answer.answer, answer.answered) == (NOT_IN_COLLECTION, Answered.NOTHING)
    assert len(answer.passages) == 10 and answer.fallback == ""


def test_a_debate_tells_of_the_sides_that_no_passage_speaks_for():
    def reply(prompt):
        return NO if "limit pupils" in prompt else {"citations": [1], "answer": "They save time."}

    answer, _ = ask("typed_rag", DEBATE, AnswerFromPerspective=reply)
    assert answer.answer == "MediatePerspectives says so.\n\nThe collection holds no case for: against."
    assert answer.grounded
