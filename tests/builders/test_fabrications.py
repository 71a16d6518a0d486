import dspy
import pytest

from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.builders.fabrications import Fabrications
from typedrag.core.errors import InputError
from typedrag.core.records import Reference
from typedrag.datasets import AnswerKind, load_dataset
from typedrag.files.text_files import write_json_lines
from typedrag.runs.work import Stages

YEARS = {"Who opened the bridge?": "Anna Berg", "When was it opened?": "1890", "When was it closed?": "1954"}


def questions():
    references = (Reference("It was so.", 3), Reference("It was not.", 0))
    return [
        dspy.Example(id=f"q{n}", question=question, answers=(gold,), references=references, subset="quiz")
        for n, (question, gold) in enumerate(YEARS.items())
    ]


def stated(prompt):
    gold = prompt.split("[[ ## right_answer ## ]]\n")[1].split("\n")[0]
    return {"answer": f"As far as is known it was {gold} that time."}


def built(questions, replies=None):
    scripts = {
        s.StateAnswer: stated,
        s.GuessAnswer: {"answer": "It was Karl, in 1700."},
        s.ProposeWrongAnswer: {"wrong_answer": "1901"},
        **(replies or {}),
    }
    with scripted(scripts):
        return Fabrications(retries=0).fabricate(questions, Stages())


def candidates(row):
    return {AnswerKind(c["kind"]): c["text"] for c in row["candidates"]}


def test_a_right_answer_stands_beside_a_wrong_one_of_each_kind(tmp_path):
    made = built(questions())
    when = candidates(made.rows[1])
    assert next(iter(when)) is AnswerKind.RIGHT
    assert when[AnswerKind.RIGHT] == "As far as is known it was 1890 that time."
    assert when[AnswerKind.GUESSED] == "It was Karl, in 1700."
    assert when[AnswerKind.EXCHANGED] == "As far as is known it was 1954 that time."  # a number for a number
    assert when[AnswerKind.FALSIFIED] == "As far as is known it was 1901 that time."
    assert when[AnswerKind.OFF_SUBJECT] in (candidates(made.rows[n])[AnswerKind.RIGHT] for n in (0, 2))
    assert AnswerKind.EXCHANGED not in candidates(made.rows[0])  # no other name
    assert made.left_out == {"exchanged: none could be made": 1}
    write_json_lines(tmp_path / "made.jsonl", made.rows)
    example = load_dataset("fabrications", tmp_path / "made.jsonl").examples[1]
    assert example.candidates[0].kind is AnswerKind.RIGHT and example.references[0].label == 3


def test_what_holds_the_right_answer_is_no_fabrication():
    made = built(questions()[1:2], {s.GuessAnswer: {"answer": "In 1890, I guess."}})
    assert AnswerKind.GUESSED not in candidates(made.rows[0])
    assert made.left_out["guessed: it holds the right answer"] == 1


def test_questions_whose_right_answer_is_not_short_or_not_stated_are_left_out():
    long, several = questions()[:2]
    long.answers, several.answers = ("because " * 9,), ("1890 && Anna Berg",)
    unstated = built([long, several, questions()[2]], {s.StateAnswer: {"answer": "I cannot say."}})
    assert unstated.rows == []
    assert unstated.left_out == {
        "questions: a long gold answer": 1,
        "questions: a gold answer of several entities": 1,
        "questions: the right answer was not stated": 1,
    }


def test_the_first_candidate_must_be_the_right_one(tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        '{"id": "1", "question": "Why?", "answers": ["so"], "candidates": [{"kind": "guessed", "text": "no"}, '
        '{"kind": "right", "text": "so"}]}\n'
    )
    with pytest.raises(InputError, match=r"rows.jsonl, line 1 .* first candidate is not the right one"):
        load_dataset("fabrications", tmp_path / "rows.jsonl")
