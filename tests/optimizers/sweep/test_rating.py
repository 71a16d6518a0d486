"""The weights of the rating and what a program does are searched in one study."""

import json

import pytest

from tests.datasets.files import write_jsonl
from typedrag.core.errors import InputError
from typedrag.experiments.results import read_run
from typedrag.optimizers.sweep import SweepConfig
from typedrag.optimizers.sweep.best import choose, measure_best
from typedrag.optimizers.sweep.resources import SweepResources

TYPES = {"salt": "core", "yeast": "background", "oven": "follow-up"}
KNOBS = {"rating.core": [0.0, 1.0], "rating.follow_up": [-1.0, 1.0]}


def judges(call):
    """A judge to whom every sub-question is answered by a sentence that says its word."""
    prompt = call.request["messages"][-1]["content"]

    def field(name):
        return json.loads(prompt.partition(f"[[ ## {name} ## ]]\n")[2].partition("\n")[0])

    if call.wanted == ("sub_questions",):
        return {"sub_questions": [f"What about the {word}?" for word in (*TYPES, *(f"part{n}" for n in range(7)))]}
    words = {key: question.split()[-1][:-1] for key, question in field("sub_questions").items()}
    if call.wanted == ("types",):
        return {"types": {key: TYPES.get(word, "background") for key, word in words.items()}}
    sentences = field("sentences").items()
    return {"verdicts": {key: next((int(n) for n, s in sentences if word in s), 0) for key, word in words.items()}}


@pytest.fixture
def pairs(tmp_path):
    """People like answers that are about the core, and not those that stray."""
    rows = []
    for n in range(16):
        first, second = ("salt", "oven") if n % 2 else ("oven", "salt")
        rows.append({
            "id": f"q{n}", "question": f"Why does bread number {n} rise?", "first": f"It is the {first}.",
            "second": f"It is the {second}.", "preference": 1 if n % 2 else -1,
        })  # fmt: skip
    return write_jsonl(tmp_path / "pairs.jsonl", *rows)


@pytest.fixture
def preferences(pairs, server):
    server.reply = judges
    return {
        "program": {"program": "reference"},
        "knobs": KNOBS,
        "objectives": ["preference/accuracy"],
        "metrics": [{"name": "preference", "options": {"coverage": {"cite": "sentences"}}}],
        "dataset": {"name": "pairs", "path": pairs, "split": "train", "limit": 6},
        "held_out": {"split": "test", "limit": 4},
    }


def test_weights_that_people_go_by_are_found_and_judged_once(sweep, preferences, server, tmp_path):
    swept = sweep(**preferences)
    assert swept.stopped == ""
    values = {tuple(t.params.values()): t.values[0] for t in swept.trials()}
    assert values == {(0.0, -1.0): 1.0, (1.0, -1.0): 1.0, (1.0, 1.0): 0.5, (0.0, 1.0): 0.0}
    questions = len(read_run(next((tmp_path / "sweep" / "trials").iterdir())).questions)
    assert len(server.calls) == 2 * questions + 2  # sub-questions and their types; the two answers are the same to all
    best = measure_best(swept, choose(swept))
    accuracy = best.measured[0]
    assert accuracy.measure == "preference/accuracy"
    assert accuracy.held_out.value == accuracy.base_held_out.value == 1.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metrics": ["tiny"], "objectives": ["tiny/score"]}, "'rating.core' turns no metric of the sweep"),
        ({"metrics": ["coverage"], "objectives": ["coverage/rating"]}, "changes what 'coverage/rating' means"),
        ({"metrics": ["coverage", "tiny"], "objectives": ["objective/score"]}, "changes what 'objective/score' means"),
    ],
)
def test_trials_are_not_compared_by_what_their_weights_change(settings, preferences, tmp_path, changes, said):
    config = SweepConfig.model_validate({**settings(), **preferences, **changes})
    with pytest.raises(InputError, match=said):
        SweepResources(config, tmp_path).check()
