import dspy
import pytest

from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Reference
from typedrag.metrics.judges.human_labels import Agreement, RankLabels, TypeLabels, VerdictLabels, labelled_answers
from typedrag.metrics.judges.linkage import Convention, draw_references
from typedrag.signatures.fields import Verdict
from typedrag.sub_questions.coverage_judge import Coverage

CORE, BACKGROUND, FOLLOW_UP = SubQuestionType


def ranked(rank: int, label: int, question: str = "Why?", tied: bool = True) -> dspy.Example:
    return dspy.Example(question=question, references=["a", "b", "c", "d"], rank=rank, label=label, tied=tied)


def said(rank: int, probabilities: dict[int, float] | None = None) -> dspy.Prediction:
    return dspy.Prediction(rank=rank, probabilities=probabilities)


def test_a_rank_is_scored_by_its_distance():
    metric = RankLabels()
    assert [metric(ranked(2, 3), said(rank)).score for rank in (1, 2, 3, 4)] == pytest.approx([2 / 3, 1, 2 / 3, 1 / 3])
    assert metric(ranked(2, 3), said(1, {1: 0.5, 2: 0.5})).score == pytest.approx(1 - 0.5 / 3)
    assert "rank 2 of 4, as good as «b»; it was ranked 4." in metric(ranked(2, 3), said(4)).feedback


def test_where_an_answer_can_come_after_all_two_places_are_right_for_an_equal():
    metric = RankLabels(convention=Convention.LINKAGE)
    assert [metric(ranked(2, 3), said(rank)).score for rank in (1, 2, 3, 5)] == pytest.approx([0.75, 1, 1, 0.5])
    assert metric(ranked(2, 3, tied=False), said(3)).score == 0.75
    assert "rank 2 or 3 of 5" in metric(ranked(2, 3), said(5)).feedback


def test_a_judge_agrees_that_orders_pairs_of_a_question_as_people_do():
    cases, metric = [ranked(1, 4), ranked(4, 1), ranked(2, 3)], Agreement(labels=RankLabels())

    def agreement(*ranks: int) -> float:
        return metric(dspy.Example(cases=cases), dspy.Prediction(judgments=[said(rank) for rank in ranks])).score

    assert agreement(1, 4, 3) == 1
    assert agreement(1, 3, 4) == pytest.approx(2 / 3)
    assert agreement(2, 2, 2) == 0.5  # saying the same of all is no skill
    assert metric.labels.comparable(cases) and not metric.labels.comparable(cases[:1])


VERDICTS = dspy.Example(
    question="Why?",
    text="Yeast eats sugar.",
    sub_questions={"q1": "What eats sugar?", "q2": "Who bakes?", "q3": "How hot is it?", "q4": "Is it old?"},
    verdicts={
        "q1": Verdict(fragment="Yeast eats", answered=True),
        **{f"q{n}": Verdict(fragment="", answered=False) for n in (2, 3, 4)},
    },
)


def verdicts(*answered: bool) -> dspy.Prediction:
    return dspy.Prediction(verdicts=[Coverage(a, "Yeast" if a else "") for a in answered])


def test_both_kinds_of_verdicts_count_alike():
    metric = VerdictLabels()
    assert metric(VERDICTS, verdicts(True, False, False, False)).score == 1
    assert metric(VERDICTS, verdicts(False, False, False, False)).score == 0.5  # saying always no is no skill
    found = metric(VERDICTS, verdicts(False, True, False, False))
    assert found.score == pytest.approx((0 + 2 / 3) / 2) and found.measures == {"accuracy": 0.5}
    assert "2 of 4" in found.feedback and "«What eats sugar?» is answered by «Yeast eats»" in found.feedback
    assert "«Who bakes?» is not answered; «Yeast» does not do so" in found.feedback


def test_agreement_on_verdicts_is_that_on_pairs_of_a_text():
    metric, all_no = VerdictLabels(), VERDICTS.copy(verdicts={**VERDICTS.verdicts, "q1": VERDICTS.verdicts["q2"]})
    assert metric.agreement([VERDICTS], [verdicts(True, False, False, False)]) == 1
    assert metric.agreement([VERDICTS], [verdicts(True, True, True, True)]) == 0.5
    judged = [verdicts(True, False, False, False), verdicts(False, False, False, False)]
    assert metric.agreement([VERDICTS, all_no.copy(text="Another.")], judged) == 1
    assert metric.comparable([VERDICTS, all_no]) and not metric.comparable([all_no])


def test_types_are_those_of_most_people():
    example = dspy.Example(
        question="Why?", sub_questions={"q1": "a?", "q2": "b?"}, types={"q1": CORE, "q2": BACKGROUND}
    )
    metric = TypeLabels()
    found = metric(example, dspy.Prediction(types=[CORE, FOLLOW_UP]))
    assert found.score == 0.5 and "«b?» is background, taken for follow-up" in found.feedback
    assert metric.agreement([example], [dspy.Prediction(types=[CORE, FOLLOW_UP])]) == 0.5
    assert "All as people" in metric(example, dspy.Prediction(types=[CORE, BACKGROUND])).feedback


def test_labelled_answers_are_no_references():
    answers = [Reference(f"Answer {i}.", i % 3) for i in range(12)]
    cases = labelled_answers(dspy.Example(id="q", question="Why?", references=answers))
    assert len(cases) == 9
    for case in cases:
        assert sorted(r.label for r in case.example.references) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert case.candidate not in case.example.references
        assert draw_references(case.example) == case.references and len(case.references) == 3
        assert case.references[case.rank - 1].label == case.candidate.label
