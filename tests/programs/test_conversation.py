import pytest

from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.records import Answer, Usage
from typedrag.programs import Options, Program, build_program
from typedrag.signatures.answering import Turn

TURNS = (
    Turn(speaker="user", text="Why does white bread rise?"),
    Turn(speaker="assistant", text="Yeast makes gas, which the dough holds."),
)
LAST = "And why is it dense with rye?"
ALONE = "Why does rye bread turn out dense?"


def answer(program: Program, turns=TURNS, question=LAST) -> Answer:
    return Answer.from_prediction(program(question=question, turns=turns))


def test_a_question_that_leans_on_earlier_turns_is_answered_as_it_stands_alone(sample_retriever):
    with scripted() as lm:
        made = answer(build_program("rag", sample_retriever))
    assert lm.asked() == ["StandaloneQuestion", "AnswerFromPassages"]
    asked, answered = (prompt for _, prompt in lm.prompts)
    assert LAST in asked and "Yeast makes gas" in asked
    assert ALONE in answered and "Yeast makes gas, which" not in answered
    assert made.question == ALONE
    first = made.steps[0]
    assert (first.name, first.input, first.output) == ("stand alone", LAST, ALONE)
    assert (first.usage, made.usage) == (Usage(1, 10, 5), Usage(2, 20, 10))


def test_without_earlier_turns_nothing_is_asked(sample_retriever):
    with scripted() as lm:
        made = answer(build_program("rag", sample_retriever), turns=())
    assert lm.asked() == ["AnswerFromPassages"]
    assert made.question == LAST


@pytest.mark.parametrize("reply", ["torn", {"standalone_question": ""}, {"standalone_question": "x" * 601}])
def test_where_that_fails_the_last_message_is_the_question(sample_retriever, reply):
    with scripted({s.StandaloneQuestion: reply}):
        made = answer(build_program("rag", sample_retriever, options=Options(retries=0)))
    assert made.question == LAST
    assert made.fallback.startswith("step 'stand alone' failed")
    assert made.fallback.endswith("the last message is taken as it is")
    assert made.citations


def test_of_a_long_conversation_the_end_is_shown(sample_retriever):
    turns = [Turn(speaker="user", text=f"turn{n:02} " + "long " * 500) for n in range(20)]
    with scripted() as lm:
        answer(build_program("direct_lm"), turns=turns)
    prompt = lm.prompts[0][1]
    assert "turn19" in prompt and "turn14" in prompt and "turn13" not in prompt
    assert prompt.count("long") < 6 * 120
