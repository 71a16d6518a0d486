"""Two places of the Typed-RAG authors' stored code in our own words: the published cells may be of what they do."""

from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Passage
from typedrag.programs import Options, build_program


class JoinedKeys:
    """Finds passages as a dictionary by id, and hands on what iterating over it gives."""

    def search(self, queries, k):
        found = {"14098516": "Port wine is fortified with brandy."}
        return [[Passage(id_, reference) for id_, reference in zip(found, found, strict=True)] for _ in queries]


def read_list(text: str) -> None:
    """Reads a list out of a reply, and forgets to return it."""
    [line.strip("- ") for line in text.splitlines()]


def test_prompts_over_the_keys_of_a_dictionary_hold_ids_and_no_passage():
    with scripted() as engine:
        build_program("rag", JoinedKeys(), options=Options.as_published("rag"))(question="How is port wine made?")
    [(_, prompt)] = engine.prompts
    assert "14098516" in prompt and "brandy" not in prompt


def test_a_question_whose_decomposition_is_never_read_is_answered_by_plain_rag():
    options = Options.as_published().with_given({"type_classifier": "linear", "retries": 0})
    lost = {s.ParaphraseReason: {"sub_queries": read_list("- Why?\n- How?") or "torn"}}
    with scripted(lost) as engine:
        program = build_program("typed_rag", JoinedKeys(), options=options)
        answer = program(question=QuestionType.REASON.example, question_type=QuestionType.REASON)
    assert engine.asked()[-1] == "AnswerPlainly" and answer.fallback
