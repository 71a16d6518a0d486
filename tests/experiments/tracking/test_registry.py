import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.experiments.compiles import about, register
from tests.mlflow_stores import new_store
from tests.programs.artifact.test_compiled import edit
from typedrag.core.errors import InputError
from typedrag.core.records import Estimate
from typedrag.experiments.held_out import SCORE
from typedrag.experiments.tracking.registry import (
    RegisteredProgram,
    objections,
    promote,
    registered_programs,
)
from typedrag.programs.compiled import CompiledAbout

mlflow = pytest.importorskip("mlflow")

TRUTH = "truthfulness/truthfulness"
WORSE = {"compiled": 0.45, "base": 0.5, "verdict": "worse"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Versions 1 to 3 of `answers`, one of `others`, one that is not read any more, and a stranger's model."""
    home = tmp_path_factory.mktemp("registry")
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    uri = new_store(home / "store")
    versions = [about(0.6), about(0.65, dataset_fingerprint="another"), about(**WORSE)]
    for number, said in enumerate(versions, 1):
        assert register(uri, home / str(number), "answers", said, top_k=number) == f"models:/answers/{number}"
    register(uri, home / "other", "others", about(compiled=None))
    register(uri, home / "old", "old", about())
    register(uri, home / "changed", "changed", about())
    for old in (f for f in (home / "store").rglob("program.json") if "old" in run_name_of(f)):
        edit(old.parent, "program.json", format=99)
    for changed in (f for f in (home / "store").rglob("signatures.json") if "changed" in run_name_of(f)):
        changed.write_text(json.dumps({name: {} for name in json.loads(changed.read_text())}))
    client = mlflow.MlflowClient()
    client.create_registered_model("stranger")
    client.create_model_version("stranger", str(home / "other"))
    yield uri
    mlflow.set_tracking_uri(before)


def run_name_of(file: Path) -> str:
    """Of the run whose model a file belongs to; empty of others."""
    model = next((part for part in file.parts if part.startswith("m-")), None)
    if model is None:
        return ""
    client = mlflow.MlflowClient()
    return str(client.get_run(client.get_logged_model(model).source_run_id).info.run_name)


@pytest.fixture
def client(store):
    """The registry, whose aliases are taken away afterwards."""
    mlflow.set_tracking_uri(store)
    client = mlflow.MlflowClient()
    yield client
    for alias in client.get_registered_model("answers").aliases:
        client.delete_registered_model_alias("answers", alias)


def test_what_is_registered_is_listed_with_its_scores(store, client):
    client.set_registered_model_alias("answers", "champion", "2")
    client.set_registered_model_alias("answers", "tried", "2")
    found = registered_programs(tracking_uri=store)
    assert [(p.name, p.version) for p in found] == [
        ("answers", 1), ("answers", 2), ("answers", 3), ("changed", 1), ("old", 1), ("others", 1),
    ]  # fmt: skip
    first, second, third, changed, old, other = found
    assert "has changed since" in changed.problem
    assert (first.program, first.problem, first.aliases) == ("rag", "", ())
    assert (first.base.value, first.compiled.value, first.about.verdict) == (0.5, 0.6, "better")
    assert sorted(second.aliases) == ["champion", "tried"]
    assert third.about.verdict == "worse"
    assert (old.about, old.compiled) == (None, None)
    assert "format 99" in old.problem
    assert other.compiled is None
    assert client.get_run(first.run).info.run_name == "compile 1 → better"
    assert asdict(first)["about"]["compiled"]["objective/score"]["n"] == 100


def test_a_run_has_an_agent_beside_its_model(client):
    run = client.get_model_version("answers", "1").run_id
    agent, model = (mlflow.models.get_model_info(f"runs:/{run}/{name}") for name in ("agent", "model"))
    assert agent.metadata == {"task": "agent/v1/responses"} and model.metadata is None


def test_what_is_worse_than_before_it_was_compiled_is_not_promoted_unless_forced(store, client):
    with pytest.raises(InputError) as refused:
        promote("answers", 3, tracking_uri=store)
    assert str(refused.value) == (
        "models:/answers/3 is not promoted: on the test split it is worse than before it was compiled "
        "(0.450 on 100 questions, before 0.500 on 100 questions, p 0.010). Promote it all the same: --force"
    )
    assert client.get_registered_model("answers").aliases == {}
    done = promote("answers", 3, force=True, tracking_uri=store)
    assert (done.before, len(done.objections)) == (None, 1)
    assert client.get_registered_model("answers").aliases == {"champion": 3}


def test_what_is_not_there_is_refused_with_what_is(store, client):
    for arguments, said in {
        ("none", 1): r"no registered model is called 'none'. There are: answers, changed, old, others, stranger",
        ("answers", 9): r"'answers' has no version 9. Versions: 1, 2, 3",
        ("stranger", 1): "models:/stranger/1",
        ("old", 1): "format 99",
        ("changed", 1): "has changed since",
        ("answers", 1, "v1"): "no alias can be called 'v1'",
        ("answers", 1, "no such"): "no alias can be called 'no such'",
        ("it's", 1): "no registered model is called",
    }.items():
        with pytest.raises(InputError, match=said) as refused:
            promote(*arguments, force=True, tracking_uri=store)
        assert "\n" not in str(refused.value)


# what speaks against a promotion


def champion(said: CompiledAbout | None, problem: str = "") -> RegisteredProgram:
    return RegisteredProgram("answers", 4, ("champion",), "", "rag", said, problem)


ONE, OTHER = "0123456789abcdef", "fedcba9876543210"


@pytest.mark.parametrize(
    ("said", "present", "objection"),
    [
        ({}, None, None),
        ({}, {}, None),
        ({"compiled": 0.61}, {}, None),
        ({"compiled": None}, None, None),
        ({"compiled": 0.59}, {}, "is better on the test split (0.600 on 100 questions, this one 0.590 on 100"),
        ({"compiled": None}, {}, "compared with the present champion, version 4, by the test split (not me"),
        ({}, {"compiled": None}, "by the test split (0.600 on 100 questions, not measured)"),
        ({"metric": "linkage=1"}, {}, "another metric (linkage=1, there linkage=1,coverage=0.5)"),
        (
            {"metric_options": {"linkage": {"reversed": True}}},
            {},
            "setting of a metric (linkage.reversed=True, there",
        ),
        ({"dataset": "wiki-nfqa"}, {}, "another dataset (wiki-nfqa, there antique)"),
        ({"test_questions": ONE}, {"test_questions": OTHER}, "another set of test questions (0123456789ab, there fedc"),
        ({"test_questions": ONE}, {"test_questions": ONE}, None),
        ({"test_questions": ONE}, {}, None),
        ({"index": ONE}, {"index": ONE}, None),
        ({"index": OTHER}, {"index": ONE}, "another index (fedcba987654, there 0123456789ab)"),
        ({"n": 50}, {}, "another number of test questions (50, there 100)"),
        ({"lms": {"task": {"spec": "vllm:large"}}}, {}, "another task LM (vllm:large, there embedded temperature=0.0"),
        ({"lms": {**about().lms, "prompt": {"spec": "openai/x"}}}, {}, None),
        ({"lms": {**about().lms, "judge": {"spec": "openai/x"}}}, {}, "another judge LM (openai/x, the"),
    ],
)
def test_what_speaks_against_a_promotion(said, present, objection):
    found = list(objections(about(**said), None if present is None else champion(about(**present))))
    assert len(found) == (objection is not None)
    assert not objection or objection in found[0]


def test_one_of_which_nothing_was_changed_is_objected_to():
    [objection] = objections(about(0.6, verdict="unchanged"), None)
    assert objection == "it is no better than its base, of which the compile has changed nothing"


def test_a_champion_that_cannot_be_loaded_speaks_against_its_successor():
    [found] = objections(about(0.9), champion(None, "models:/answers/4 is of format 99"))
    assert found == "the present champion, version 4, cannot be loaded (models:/answers/4 is of format 99)"


def test_what_lost_truth_perhaps_by_chance_is_promoted_with_a_warning(store, client, tmp_path):
    def scores(value):
        return {SCORE: Estimate(value, value, value, 4), TRUTH: Estimate(-value, -value, -value, 4)}

    said = {"base": scores(0.25), "compiled": scores(0.5)}
    register(store, tmp_path, "answers", replace(about(0.5, verdict=""), **said), top_k=9)
    done = promote("answers", 4, tracking_uri=store)
    assert done.warning == (
        "its answers are less truthful than before it was compiled "
        "(-0.500 on 4 questions, before -0.250 on 4 questions), be it by chance"
    )
    assert promote("answers", 1, "other", tracking_uri=store).warning == ""
    client.delete_model_version("answers", "4")


def test_one_that_is_less_truthful_is_objected_to_however_well_it_ranks():
    better, less_true = about(0.7), about(0.7, verdict="less truthful")
    scores = {
        side: {**getattr(less_true, side), TRUTH: Estimate(v, v, v, 100)}
        for side, v in (("base", 0.2), ("compiled", -0.1))
    }
    assert list(objections(better, None)) == []
    [objection] = objections(replace(less_true, **scores), None)
    assert objection == (
        "on the test split its answers are less truthful than before it was compiled "
        "(-0.100 on 100 questions, before 0.200 on 100 questions)"
    )
