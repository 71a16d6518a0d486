from dataclasses import replace

import dspy
import pytest

from tests.experiments.labels import field, no_embeddings, said, scripted_scorer
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Nugget, Reference, SubQuestion
from typedrag.datasets import AnswerKind, Dataset, MadeAnswer
from typedrag.experiments.judges.check import check_judges
from typedrag.experiments.judges.judging import CheckSettings, Scorer
from typedrag.lms.replies import use_reply_store

GOLD = ("1890", "1954")


@pytest.fixture(autouse=True)
def _no_embeddings(monkeypatch):
    no_embeddings(monkeypatch)


def dataset(**more):
    def example(n, gold):
        right = f"It was opened in {gold} by her"
        made = {
            AnswerKind.RIGHT: right,
            AnswerKind.EXCHANGED: right.replace(gold, "1700"),
            AnswerKind.FALSIFIED: right.replace(gold, "1701"),
            AnswerKind.NOTHING_FOUND: "Nothing is told",
        }
        return dspy.Example(
            id=str(n),
            question=f"When was bridge {n} opened?",
            answers=(gold,),
            candidates=tuple(MadeAnswer(kind, text) for kind, text in made.items()),
            references=(Reference(f"opened in {gold}", 3), Reference("It was", 0)),
            **more,
        ).with_inputs("question")

    return Dataset("fabrications", tuple(example(n, gold) for n, gold in enumerate(GOLD)))


def rows(scorers=(), **more):
    [made] = check_judges({"fabrications": dataset(**more)}, scorers, CheckSettings(threads=2)).checks
    return {a.judge: a for a in made.agreements}


def test_it_is_told_by_kind_how_often_the_right_answer_comes_first():
    by_judge = rows()
    values = {name: e.value for name, e in by_judge["similarity to the best reference"].measures.items()}
    assert values == {"fabricated": 1, "exchanged": 1, "falsified": 1, "nothing-found": 1}
    # nearness to the question tells a fabrication from nothing: half a point
    values = {name: e.value for name, e in by_judge["similarity to the question"].measures.items()}
    assert values == {"fabricated": 0.5, "exchanged": 0.5, "falsified": 0.5, "nothing-found": 1}
    assert by_judge["similarity to the question"].n == 6
    assert by_judge["LINKAGE, combined"].measures["fabricated"].value == 1 and not by_judge["LINKAGE, combined"].scorer


def test_truthfulness_is_told_by_references_alone_and_of_silence_by_its_field():
    measures = {name: e.value for name, e in rows()["truthfulness, by support"].measures.items()}
    assert measures == {"fabricated": 1, "exchanged": 1, "falsified": 1, "nothing-found": 1}


def test_a_row_without_references_is_left_out_of_what_needs_them_and_the_check_goes_on():
    labelled = dataset()
    first, second = labelled.examples
    lacking = replace(labelled, examples=(first.copy(references=()), second))
    [made] = check_judges({"fabrications": lacking}, (), CheckSettings(threads=2)).checks
    compared = {a.judge: a.n for a in made.agreements}
    assert compared["truthfulness, by support"] == compared["LINKAGE, combined"] == 3
    assert compared["similarity to the question"] == 6


def test_coverage_is_of_a_row_s_own_sub_questions_or_of_those_that_a_scorer_writes(tmp_path):
    own = "coverage, core, of the example's sub-questions"
    assert own not in rows()
    asked = (SubQuestion("It was opened in 1890 by her", SubQuestionType.CORE),)
    measures = {name: e.value for name, e in rows(sub_questions=asked)[own].measures.items()}
    assert measures == {"fabricated": 0.5, "exchanged": 0.5, "falsified": 0.5, "nothing-found": 1}
    lm = scripted_scorer(
        RankAmongReferences=said(rank=1),
        PlaceAmongReferences=said(rank=1),
        GradeRelevance=said(grade=0),
        GradeEquivalence=said(grade=0),
        GradeCorrectness=said(grade=0),
        CompareAnswers=said(verdict="tie"),
    )
    with use_reply_store(tmp_path / "replies"):
        by_judge = rows([Scorer("scripted", lm)])
    assert by_judge["coverage, core"].n == 6 and own not in by_judge
    assert lm.engine.asked().count("DecomposeIntoSubQuestions") == 2  # once for all answers to a question


def test_nuggets_are_those_of_the_question_and_are_judged_without_an_lm():
    assert not [name for name in rows() if name.startswith("nuggets")]
    by_judge = rows(nuggets=(Nugget("It was opened in 1890 by her"), Nugget("It was opened in 1954 by her")))
    measures = {name: e.value for name, e in by_judge["nuggets, weighted, strict"].measures.items()}
    assert measures == {"fabricated": 1, "exchanged": 1, "falsified": 1, "nothing-found": 1}
    assert by_judge["nuggets, vital"].n == 6 and not by_judge["nuggets, vital"].scorer


def test_a_judge_that_pays_for_a_fabrication_is_found_out():
    def grade(prompt):
        answer = field(prompt, "answer")
        return said(grade=2 if "1700" in answer else 1 if "1701" in answer else 0)

    def compare(prompt):
        return said(verdict="first" if "1700" in field(prompt, "first_answer") else "second")

    lm = scripted_scorer(
        GradeRelevance=grade,
        GradeEquivalence=said(grade=0),
        GradeCorrectness=said(grade=0),
        CompareAnswers=compare,
        RankAmongReferences=lambda prompt: said(rank=2 if "1700" in field(prompt, "candidate") else 1),
        PlaceAmongReferences=said(rank=1),
    )
    by_judge = rows([Scorer("scripted", lm)])
    measures = {judge: {name: e.value for name, e in a.measures.items()} for judge, a in by_judge.items()}
    assert measures["relevance"] == {"fabricated": 0, "exchanged": 0, "falsified": 0, "nothing-found": 0.5}
    assert measures["equivalence"]["fabricated"] == 0.5
    assert measures["LINKAGE, worst rank n, single rank"]["exchanged"] == 1
    assert measures["LINKAGE, worst rank n, single rank"]["falsified"] == 0.5
    assert measures["pairwise, both orders"]["exchanged"] == 0
