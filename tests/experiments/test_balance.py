from collections import Counter

import dspy
from hypothesis import given
from hypothesis import strategies as st

from typedrag.core.question_types import QuestionType
from typedrag.datasets.sample import load_sample
from typedrag.experiments.question_typing import balance_types, infer_type

labelled = st.lists(st.sampled_from(QuestionType.non_factoid()), max_size=30).map(
    lambda types: [dspy.Example(id=str(n), question=f"q{n}", question_type=t) for n, t in enumerate(types)]
)


@given(labelled, st.integers(0, 3))
def test_all_are_kept_and_each_start_is_as_balanced_as_can_be(examples, seed):
    ordered = balance_types(examples, seed)
    assert sorted(e.id for e in ordered) == sorted(e.id for e in examples)
    total = Counter(e.question_type for e in examples)
    for end in range(len(ordered) + 1):
        start = Counter(e.question_type for e in ordered[:end])
        most = max(start.values(), default=0)
        assert all(start[t] >= min(total[t], most - 1) for t in total)


@given(labelled, st.randoms())
def test_the_order_of_the_source_makes_no_difference(examples, random):
    shuffled = random.sample(examples, len(examples))
    assert [e.id for e in balance_types(shuffled)] == [e.id for e in balance_types(examples)]


def test_another_seed_gives_another_order():
    examples = load_sample().examples
    first, second = balance_types(examples, 0), balance_types(examples, 1)
    assert [e.id for e in first] != [e.id for e in second]
    assert len({e.question_type for e in first[:6]}) == 6


def test_questions_without_a_label_are_classified():
    assert infer_type(dspy.Example(question="Why do leaves turn red in autumn?")) is QuestionType.REASON
    assert infer_type(dspy.Example(question="Why?", question_type="debate")) is QuestionType.DEBATE
