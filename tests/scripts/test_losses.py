from dataclasses import replace

import dspy

from scripts.results_page import Cause, losses
from tests.experiments.runs import question, run
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Passage, Reference, Step

RANK = "linkage/expected_rank"
GOOD, BAD = Passage("good", "Yeast eats sugar and makes gas."), Passage("bad", "Bread is baked in ovens.")
EXAMPLE = dspy.Example(
    id="q0", question="Why does bread rise?", references=(Reference("Yeast makes gas", 3),), passage_ids=("good",)
)


def answered(rank, passages=(GOOD,), text="Yeast makes gas.", sub_answers=(), number=0):
    made = question(number, {"expected_rank": rank})
    steps = tuple(Step("sub-query", "which gas?", said) for said in sub_answers)
    return replace(
        made, answer=replace(made.answer, answer=text, passages=passages, steps=(Step("sub-queries", steps=steps),))
    )


def causes(ours, theirs=None, labels=None, example=EXAMPLE):
    found = losses(
        run("typed-rag", ours), run("rag", theirs or answered(1.0)), {"q0": example}, measure=RANK, labels=labels
    )
    return found[0].causes if found else None


def test_a_type_that_was_labelled_otherwise():
    actual = question(0).question_type
    another = next(t for t in QuestionType if t is not actual)
    assert causes(answered(2.0), labels={"q0": another}) == (Cause.WRONG_TYPE,)
    assert causes(answered(2.0), labels={"q0": actual}) == (Cause.WORSE_ANSWER,)
    assert causes(answered(2.0), labels={}) == (Cause.WORSE_ANSWER,)


def test_passages_that_hold_less_than_the_baseline_s():
    assert causes(answered(2.0, (BAD,))) == (Cause.DRIFT,)
    assert causes(answered(2.0, (BAD,)), answered(1.0, (BAD,))) == (Cause.NO_ANSWER,)
    assert causes(answered(2.0, (GOOD, BAD))) == (Cause.WORSE_ANSWER,)


def test_what_a_sub_answer_had_and_the_answer_has_not():
    kept, lost = "Yeast makes gas, which lifts dough.", "Dough is lifted."
    assert causes(answered(2.0, text=lost, sub_answers=(kept, "Nobody knows."))) == (Cause.LOST,)
    assert causes(answered(2.0, text=kept, sub_answers=(lost,))) == (Cause.WORSE_ANSWER,)


def test_what_is_lost_is_seen_in_any_script():
    kept, lost = "Дрожжи выделяют газ, и тесто поднимается.", "Тесто поднимается."
    example = EXAMPLE.copy(references=(Reference(kept, 3),))
    assert causes(answered(2.0, text=lost, sub_answers=(kept,)), example=example) == (Cause.LOST,)


def test_all_causes_that_apply_are_named_in_the_order_of_the_steps():
    another = next(t for t in QuestionType if t is not question(0).question_type)
    loss = answered(2.0, (BAD,), "No.", ("Yeast makes gas.",))
    assert causes(loss, labels={"q0": another}) == (Cause.WRONG_TYPE, Cause.DRIFT, Cause.LOST)


def test_only_what_is_worse_by_the_measure_is_a_loss():
    assert causes(answered(1.0)) is None
    assert causes(answered(1.0), answered(2.0)) is None


def test_the_worst_loss_comes_first_and_failures_are_no_losses():
    examples = {f"q{i}": EXAMPLE for i in range(4)}
    ours = run(
        "typed", answered(1.5), answered(3.0, number=1), question(2, answer=None), question(3, judge_failed=True)
    )
    theirs = run("rag", *(answered(1.0, number=i) for i in range(4)))
    found = losses(ours, theirs, examples, measure=RANK)
    assert [(loss.id, loss.loss) for loss in found] == [("q1", 2.0), ("q0", 0.5)]
