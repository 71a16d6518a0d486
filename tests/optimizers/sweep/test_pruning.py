import pytest

from typedrag.optimizers.sweep import SweepConfig
from typedrag.optimizers.sweep.study import is_behind

BASE = {"program": {"program": "rag"}, "knobs": {"top_k": [1]}, "dataset": {"name": "sample"}}


def goes_on(values, others, first=1, growth=2, objectives=("em/f1",), constraints=()):
    given = {"objectives": objectives, "constraints": constraints, "pruning": {"growth": growth}}
    return not is_behind(values, others, first, SweepConfig.model_validate({**BASE, **given}))


def trial(*values, tokens=None):
    return {"em/f1": list(values), **({"cost/tokens": [tokens] * len(values)} if tokens is not None else {})}


@pytest.mark.parametrize(
    ("own", "others", "first", "going"),
    [
        (trial(0.1), [], 1, True),  # nobody waits for others to come
        (trial(0.5), [trial(0.4)], 1, True),
        (trial(0.4), [trial(0.5)], 1, False),
        (trial(0.4), [trial(0.4)] * 5, 1, True),
        (trial(0.5, 0.5), [trial(0.4, 0.4, 1.0, 1.0)], 2, True),  # only the first questions count
        (trial(None, 0.8), [trial(0.2, 0.9)], 2, True),  # a judgment that is missing is left out
        (trial(None), [trial(0.1)], 1, False),
    ],
)
def test_of_two_the_worse_stays_behind_and_of_equals_both_go_on(own, others, first, going):
    assert goes_on(own, others, first) is going


def test_one_of_so_many_goes_on():
    others = [trial(n / 10) for n in range(1, 8)]
    for growth, allowed in ((2, 4), (4, 2)):
        going = [goes_on(t, [o for o in others if o is not t] + [trial(0)], growth=growth) for t in others]
        assert sum(going) == allowed


def test_with_several_objectives_who_is_dominated_stays_behind():
    dear_and_good, cheap_and_bad = trial(0.9, tokens=900), trial(0.1, tokens=100)
    both = ("em/f1", "cost/tokens")
    assert goes_on(cheap_and_bad, [dear_and_good], objectives=both)
    assert goes_on(dear_and_good, [cheap_and_bad], objectives=both)
    assert not goes_on(trial(0.05, tokens=200), [dear_and_good, cheap_and_bad], objectives=both)


def test_who_breaks_a_constraint_is_behind_all_that_do_not():
    limits = [{"measure": "cost/tokens", "at_most": 500}]
    assert not goes_on(trial(0.9, tokens=600), [trial(0.1, tokens=400)], constraints=limits)
    assert goes_on(trial(0.1, tokens=400), [trial(0.9, tokens=600)], constraints=limits)
    assert not goes_on(trial(0.9, tokens=700), [trial(0.1, tokens=600)], constraints=limits)
