import pytest

from typedrag.core.records import Passage, SubAnswer
from typedrag.lms.trace import collect_steps
from typedrag.programs.sub_queries import Part, combine_parts, drop_unused_citations

COSTS = Passage("costs", "A wind farm costs less than a reactor.")
BIRDS = Passage("birds", "Turbines kill birds and bats at night.")
PARTS = [
    Part("What does it cost?", SubAnswer("What does it cost?", "Less than a reactor.", ("costs",)), (COSTS, BIRDS)),
    Part("Whom does it harm?", SubAnswer("Whom does it harm?", "Birds and bats.", ("birds", "costs")), (BIRDS, COSTS)),
]


@pytest.mark.parametrize(
    ("answer", "citations", "dropped"),
    [
        ("It costs less than a reactor, but kills birds and bats.", ("costs", "birds"), ()),
        ("Turbines kill birds and bats.", ("birds",), ("citation costs (the answer uses nothing of it)",)),
        ("Windräder töten Vögel und Fledermäuse.", ("costs", "birds"), ()),
    ],
)
def test_what_is_gone_from_a_combined_answer_is_not_cited(answer, citations, dropped):
    with collect_steps() as steps:
        made = drop_unused_citations(combine_parts(answer, PARTS), "Is wind power good?")
    assert (made.answer, made.citations, made.passages) == (answer, citations, (COSTS, BIRDS))
    assert tuple(d for step in steps for d in step.dropped) == dropped
