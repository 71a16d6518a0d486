import pytest

from typedrag.core.call_context import use_context
from typedrag.core.errors import InputError
from typedrag.core.records import Reference
from typedrag.programs import Options, build_program
from typedrag.programs.loading import ProgramSource

QUESTION = "Why does bread rise?"


@pytest.mark.parametrize(
    ("labels", "answer"),
    [
        ({"answers_compared": ("Gas.", "Luck."), "preference": 1.0}, "Gas."),
        ({"answers_compared": ("Luck.", "Gas."), "preference": -0.5}, "Gas."),
        ({"references": (Reference("Gas.", 3), Reference("Luck.", 1))}, "Gas."),
    ],
)
def test_the_datasets_best_answer_is_given_without_an_lm(labels, answer):
    with use_context(labels=labels):
        prediction = build_program("reference")(question=QUESTION)
    assert prediction.answer == answer
    assert prediction.usage.lm_calls == 0


def test_a_question_without_one_says_so():
    with pytest.raises(InputError, match="no answer of its own"):
        build_program("reference")(question=QUESTION)


def test_users_questions_have_none():
    with pytest.raises(InputError, match="program reference reads labels of a dataset"):
        ProgramSource("reference").check_unlabelled(Options(), None)
