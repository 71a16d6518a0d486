import pytest

from tests.programs.passages import Numbered
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.errors import InputError
from typedrag.core.question_types import RevelatorRole
from typedrag.optimizers.compile.targets import RevelatorTarget, find_target, typed_example
from typedrag.programs import HANRAG, RAG, HANRAGOptions, Options
from typedrag.programs.hanrag import RevelatorModule

RIGHT = {
    RevelatorRole.ROUTER: (s.RouteQuestion, {"route": "complex"}),
    RevelatorRole.DECOMPOSER: (
        s.DecomposeCompound,
        {"sub_queries": ["How long is the Forth Bridge?", "When was the Forth Bridge opened?"]},
    ),
    RevelatorRole.REFINER: (s.RefineQuestion, {"query": "Where was John Fowler born?"}),
    RevelatorRole.RELEVANCE: (s.JudgeRelevance, {"relevant": True}),
    RevelatorRole.ENDING: (s.JudgeEnding, {"ending": True}),
}


@pytest.mark.parametrize("role", RevelatorRole)
def test_each_role_is_compiled_alone_by_its_own_labels(role, dataset):
    target = find_target(f"{role}-alone")
    assert isinstance(target, RevelatorTarget)
    examples = target.examples(dataset)
    signature, reply = RIGHT[role]
    with scripted({signature: reply}):
        scores = [target.metric(e, target.student()(**e.inputs())).score for e in examples]
    assert max(scores) == 1
    if role is not RevelatorRole.DECOMPOSER:
        assert min(scores) < 1


def test_a_label_that_the_role_cannot_write_is_named_with_its_row(dataset):
    [row, *_] = [e for e in dataset.examples if e.subset == "refiner"]
    with pytest.raises(InputError, match=f"row '{row.id}' has a query that the refiner does not write"):
        typed_example(RevelatorRole.REFINER, row.copy(query="mother of X"))


@pytest.mark.parametrize("role", RevelatorRole)
def test_what_was_compiled_is_put_back_into_a_copy(role):
    program, target = HANRAG(Numbered()), RevelatorTarget(role)
    student = target.student(program)
    student.predict.signature = student.predict.signature.with_instructions("Do it otherwise.")
    made = target.merge_into(program, student)
    changed = {r for r, m in made.revelator().items() if m.predict.signature.instructions == "Do it otherwise."}
    assert changed == {role}
    assert program.revelator()[role].predict.signature.instructions != "Do it otherwise."


def test_only_a_program_with_the_role_takes_it():
    target = RevelatorTarget(RevelatorRole.ROUTER)
    for program in (RAG(Numbered()), HANRAG(Numbered(), options=Options(hanrag=HANRAGOptions(router="rule")))):
        for act in (target.student, lambda other: target.merge_into(other, RevelatorModule(target.role, Options()))):
            with pytest.raises(InputError, match="has no router"):  # before anything is paid
                act(program)
