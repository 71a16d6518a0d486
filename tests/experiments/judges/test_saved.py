import json
from dataclasses import replace

import dspy
import pytest

from tests.optimizers.compile.targets.labels import LEARNT, covered, ranked, typed
from typedrag.core.errors import InputError
from typedrag.core.records import Estimate
from typedrag.experiments.judges.saved import JudgeCheck, SavedJudge, add_check, load_judge, save_judge
from typedrag.metrics.judges.linkage import LinkageJudge
from typedrag.optimizers.compile.targets import CoverageJudgeTarget, LinkageJudgeTarget, SubQuestionTyperTarget
from typedrag.programs.artifact import dump_state, fingerprint
from typedrag.programs.compiled import CompiledAbout

TARGETS = [
    pytest.param(LinkageJudgeTarget(convention="linkage"), ranked(), id="linkage"),
    pytest.param(CoverageJudgeTarget(), covered(), id="coverage"),
    pytest.param(SubQuestionTyperTarget(), typed(), id="types"),
]
MORE = Estimate(0.1, 0.02, 0.18, 40)
CHECK = JudgeCheck("a/model", "", "labels", "abc", difference=MORE, verdict="better", p=0.01)


def compiled(target, dataset) -> dspy.Module:
    """A judge with another instruction and labelled demonstrations."""
    student = dspy.LabeledFewShot(k=2).compile(target.student(), trainset=target.examples(dataset)[:4])
    [predictor] = student.predictors()
    predictor.signature = predictor.signature.with_instructions(LEARNT)
    return target.merge_into(None, student)


def check_of(judge: dspy.Module) -> JudgeCheck:
    return replace(CHECK, judge=fingerprint(dump_state(judge)))


@pytest.fixture
def saved(tmp_path):
    judge = compiled(LinkageJudgeTarget(), ranked())
    save_judge(judge, tmp_path / "judge", CompiledAbout(optimizer="gepa"))
    add_check(tmp_path / "judge", check_of(judge))
    return tmp_path / "judge"


@pytest.mark.parametrize(("target", "dataset"), TARGETS)
def test_a_judge_comes_back_as_it_was(target, dataset, tmp_path):
    judge = compiled(target, dataset)
    save_judge(judge, tmp_path / "judge")
    add_check(tmp_path / "judge", check_of(judge))
    loaded = load_judge(tmp_path / "judge", target.name, "a/model")
    assert type(loaded) is type(judge) and dump_state(loaded) == dump_state(judge)
    [before], [after] = judge.predictors(), loaded.predictors()
    assert after.signature.instructions == LEARNT and len(after.demos) == len(before.demos) == 2
    assert all(path.suffix == ".json" for path in (tmp_path / "judge").iterdir())


def test_the_convention_is_part_of_it(tmp_path):
    save_judge(LinkageJudge("linkage"), tmp_path / "judge")
    assert SavedJudge.read(tmp_path / "judge").build().convention == "linkage"


def test_a_judge_that_was_not_shown_to_be_better_is_not_used(saved):
    assert isinstance(load_judge(saved, "linkage-judge", "a/model"), LinkageJudge)
    with pytest.raises(InputError, match=r"not checked .* with 'another/model', only with a/model.*--compiled"):
        load_judge(saved, "linkage-judge", "another/model")
    [check] = SavedJudge.read(saved).checks
    for verdict in ("", "worse"):
        add_check(saved, replace(check, verdict=verdict))
        with pytest.raises(InputError, match="was not shown to agree better"):
            load_judge(saved, "linkage-judge", "a/model")
    assert len(SavedJudge.read(saved).checks) == 1
    add_check(saved, replace(check, scorer="another/model"))
    assert isinstance(load_judge(saved, "linkage-judge", "another/model"), LinkageJudge)
    assert SavedJudge.read(saved).about.optimizer == "gepa"
    assert SavedJudge.read(saved).find_check("another/model").date


def test_a_judge_of_another_kind_is_refused(saved):
    with pytest.raises(InputError, match=r"linkage-judge, where a coverage-judge"):
        load_judge(saved, "coverage-judge", "a/model")


def change(folder, name, **values):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"format": 2}, "Update typedrag"),
        ({"format": 0}, "Compile it again"),
        ({"judge": "oracle"}, "which there is not"),
        ({"options": {"key": 1}}, "other options"),
        ({"checks": "many"}, "checks"),
        ({"run": "me"}, "run"),
        ({"format": "one"}, "no compiled judge"),
    ],
)
def test_what_is_no_judge_that_can_be_read_is_refused(saved, values, said):
    change(saved, "judge.json", **values)
    with pytest.raises(InputError, match=said):
        SavedJudge.read(saved)


def test_a_missing_part_and_a_changed_signature_are_named(saved, tmp_path):
    signatures = json.loads((saved / "signatures.json").read_text())
    del signatures["rank"]["question"]
    (saved / "signatures.json").write_text(json.dumps(signatures))
    with pytest.raises(InputError, match=r"rank.* has changed since"):
        load_judge(saved, "linkage-judge", "a/model")
    (saved / "state.json").unlink()
    with pytest.raises(InputError, match=r"state\.json"):
        SavedJudge.read(saved)
    with pytest.raises(InputError, match="no compiled judge"):
        SavedJudge.read(tmp_path)


def test_only_judges_are_saved(tmp_path):
    with pytest.raises(InputError, match="Judges: "):
        save_judge(dspy.Predict("question -> answer"), tmp_path / "judge")


def test_keys_are_taken_out(tmp_path):
    judge = LinkageJudge()
    judge.rank.signature = judge.rank.signature.with_instructions("Use sk-planted to judge.")
    judge.rank.lm = dspy.LM("openai/gpt", api_key="sk-planted", api_base="http://host")
    about = CompiledAbout(metric="sk-planted", lms={"task": {"spec": "a/b", "api_key": "sk-planted"}})
    save_judge(judge, tmp_path / "judge", about, redact=lambda text: text.replace("sk-planted", "…"))
    held = "".join(path.read_text() for path in (tmp_path / "judge").iterdir())
    assert "sk-planted" not in held and "http://host" not in held
