import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.runs import question, run
from typedrag.core.errors import InputError
from typedrag.experiments.compare import compare
from typedrag.experiments.labels import GradedAnswer, Grades, answers_to_grade
from typedrag.experiments.results import Run


def made(name: str, skill: float, *, failed: int | None = None, n: int = 60) -> tuple[Run, list[int]]:
    """A run, with a judge whose scores follow the grades that a person would give, and these grades."""
    luck, questions, right = random.Random(name), [], []
    for i in range(n):
        quality = luck.gauss(skill, 1)
        right.append(1 if i == failed else 1 + sum(quality > least for least in (-1, 0, 1)))
        same = question(i, answer=None if i == failed else f"{name} says so of {i}." if i % 6 else "It is not known.")
        judged = replace(same.metrics["linkage"], score=0.0, measures={"mrr": quality / 9}) if same.metrics else None
        questions.append(replace(same, metrics={"linkage": judged} if judged else {}))
    return run(name, *questions), right


@pytest.fixture
def runs() -> list[tuple[Run, list[int]]]:
    return [made("rag", 0.0), made("typed_rag", 0.5, failed=8)]


def graded(runs: list[tuple[Run, list[int]]], file: Path, most: int) -> Grades:
    """The first grades in the order of `typedrag label`; an answer that both gave has one grade."""
    grades = Grades(file)
    known = {GradedAnswer.of(q): grade for r, right in runs for q, grade in zip(r.questions, right, strict=True)}
    for key in list(answers_to_grade([r for r, _ in runs]))[:most]:
        grades.add(key, known[key])
    return grades


def test_grades_and_judge_together_are_surer_than_grades_alone(runs, tmp_path):
    grades = graded(runs, tmp_path / "grades.jsonl", most=70)
    [alone, powered] = compare([r for r, _ in runs], measures=["linkage/mrr"], grades=grades).graded
    assert (alone.run, alone.judge, alone.judged) == ("typed_rag", "", 0)
    assert powered.judge == "linkage/mrr" and powered.judged == 60 and powered.graded == alone.graded
    assert powered.correlation > 0.5
    for by_grades, by_both in zip(
        (alone.baseline, alone.other, alone.difference),
        (powered.baseline, powered.other, powered.difference),
        strict=True,
    ):
        assert by_both.high - by_both.low < by_grades.high - by_grades.low
    assert 1 <= alone.baseline.value <= 4 and alone.difference.value == pytest.approx(
        alone.other.value - alone.baseline.value, abs=0.15
    )


def test_an_order_is_the_same_for_any_runs_and_puts_a_question_s_answers_together(runs):
    both, one = (answers_to_grade([r for r, _ in some]) for some in (runs, runs[:1]))
    questions = [key.question for key in both]
    assert list(dict.fromkeys(questions)) == [key.question for key in one]
    assert questions != sorted(questions, key=lambda q: int(q[1:]))
    assert all(questions[n - 1] == q or q not in questions[:n] for n, q in enumerate(questions))
    assert questions.count("q6") == 1 and questions.count("q7") == 2  # to one of them both gave the same answer
    assert [answer for _, answer in both.values()].count(None) == 1
    first = [key for key in both if key in one]
    assert first != list(one) or any(both[a][0] for a in first)


def test_whose_answer_comes_first_is_by_chance(runs):
    ours = {GradedAnswer.of(q) for q in runs[0][0].questions}
    first = {}
    for key in answers_to_grade([r for r, _ in runs]):
        first.setdefault(key.question, key in ours)
    assert 15 < sum(first.values()) < 55


def test_what_was_taken_back_does_not_count_and_the_last_grade_does(tmp_path):
    key, other = GradedAnswer("q1", "a"), GradedAnswer("q2", "b")
    grades = Grades(tmp_path / "grades.jsonl")
    for answer, grade in ((key, 3), (other, 2), (key, None), (other, 4)):
        grades.add(answer, grade)
    assert [*Grades(tmp_path / "grades.jsonl")] == [other]
    assert Grades(tmp_path / "grades.jsonl").get(other) == 4
    with (tmp_path / "grades.jsonl").open("a") as file:
        file.write('{"question": "q3", "ans')  # killed amid a line
    assert [*Grades(tmp_path / "grades.jsonl")] == [other]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            '{"question": "q1", "answer": "a", "grade": 5, "scale": "antique"}',
            "line 1: 5 is no grade of scale 'antique'",
        ),
        ('{"question": "q1", "answer": "a", "grade": 1, "scale": "stars"}', "line 1 .*scale"),
        ('{"question": "q1", "grade": 1}', "line 1 .*answer"),
        ("[1]", "line 1 is not as it was written"),
    ],
)
def test_a_line_that_is_no_grade_is_named(line, problem, tmp_path):
    (tmp_path / "grades.jsonl").write_text(f"{line}\n")
    with pytest.raises(InputError, match=problem):
        Grades(tmp_path / "grades.jsonl")


def test_scales_are_kept_apart(tmp_path):
    Grades(tmp_path / "grades.jsonl", "right").add(GradedAnswer("q1", "a"), 1)
    assert Grades(tmp_path / "grades.jsonl").scale == "right"
    with pytest.raises(InputError, match="a grade of scale 'right', not 'antique'"):
        Grades(tmp_path / "grades.jsonl", "antique")


def test_grades_of_other_answers_are_refused(runs, tmp_path):
    grades = Grades(tmp_path / "grades.jsonl")
    grades.add(GradedAnswer("q1", "another"), 3)
    with pytest.raises(InputError, match="none of the grades is of an answer of these runs"):
        compare([r for r, _ in runs], measures=["linkage/mrr"], grades=grades)
