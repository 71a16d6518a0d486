"""IRCoT and Adaptive-RAG."""

import pytest

from tests.programs.passages import Numbered
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.records import Answer
from typedrag.metrics.ranking import retrieval_cycles
from typedrag.programs import AdaptiveRAG, IRCoT, IRCoTOptions, Options

QUESTION = "In which town was the designer of the Forth Bridge born?"


def ask(program, question=QUESTION, **replies) -> tuple[Answer, list[str]]:
    with scripted({getattr(s, name): reply for name, reply in replies.items()}) as engine:
        answer = Answer.from_prediction(program(question=question))
    return answer, engine.asked()


def thoughts(*said: str, finished_after: int = 99):
    numbered = iter(enumerate(said, 1))

    def reply(prompt):
        number, thought = next(numbered)
        return {"thought": thought, "finished": number >= finished_after}

    return reply


def test_each_sentence_is_the_next_query_until_it_is_finished():
    retriever = Numbered()
    said = thoughts("John Fowler designed it.", "He was born in Sheffield.", finished_after=2)
    answer, asked = ask(IRCoT(retriever), ReasonOneStep=said)
    assert asked == ["ReasonOneStep", "ReasonOneStep", "AnswerFromPassages"]
    assert [batch for batch, _ in retriever.batches] == [[QUESTION], ["John Fowler designed it."]]
    assert retrieval_cycles(answer.steps) == 2
    assert len(answer.passages) == 10  # five of each retrieval


def test_steps_and_passages_are_limited():
    options = Options(ircot=IRCoTOptions(max_steps=3, max_passages=7))
    many = thoughts(*[f"Thought {n}." for n in range(9)])
    answer, asked = ask(IRCoT(Numbered(), options=options), ReasonOneStep=many)
    assert asked.count("ReasonOneStep") == 3 and retrieval_cycles(answer.steps) == 3
    assert len(answer.passages) == 7


def test_a_thought_that_comes_again_ends_the_reasoning():
    answer, asked = ask(IRCoT(Numbered()), ReasonOneStep={"thought": "The same.", "finished": False})
    assert asked == ["ReasonOneStep", "ReasonOneStep", "AnswerFromPassages"]
    assert answer.fallback == ""


def test_unreadable_reasoning_is_answered_from_what_was_found():
    answer, _ = ask(IRCoT(Numbered(), options=Options(retries=0)), ReasonOneStep="torn")
    assert answer.answer == "AnswerFromPassages says so."
    assert "answered from what was found by then" in answer.fallback


@pytest.mark.parametrize(
    ("route", "asked", "cycles"),
    [
        ("straightforward", ["AnswerWithoutPassages"], 0),
        ("single-step", ["AnswerFromPassages"], 1),
        ("complex", ["ReasonOneStep", "AnswerFromPassages"], 1),
    ],
)
def test_complexity_decides(route, asked, cycles):
    answer, seen = ask(AdaptiveRAG(Numbered()), JudgeComplexity={"route": route})
    assert seen == ["JudgeComplexity", *asked]
    assert answer.route == route and retrieval_cycles(answer.steps) == cycles


def test_an_unknown_complexity_is_a_single_step():
    answer, _ = ask(AdaptiveRAG(Numbered(), options=Options(retries=0)), JudgeComplexity={"route": "compound"})
    assert answer.route == "single-step" and "taken as single-step" in answer.fallback


def test_one_call_is_left_for_the_answer():
    answer, asked = ask(
        IRCoT(Numbered(), options=Options(max_lm_calls=4)), ReasonOneStep=thoughts(*[f"Thought {n}." for n in range(9)])
    )
    assert asked == ["ReasonOneStep"] * 3 + ["AnswerFromPassages"]
    assert answer.fallback == ""
