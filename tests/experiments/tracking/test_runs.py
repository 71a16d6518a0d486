from pathlib import Path

import pytest

from tests.experiments.evaluations import evaluation_of
from typedrag.core.errors import LMUnavailable, TypedRAGError
from typedrag.experiments import read_config, read_run, run_evaluation
from typedrag.programs.program import program_class

mlflow = pytest.importorskip("mlflow")

KEY = "sk-a-planted-key-0123456789"


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    """A store whose tables, which take seconds to make, are made once."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture
def evaluate(server, tmp_path, uri, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_API_KEY", KEY)

    def run(*, resume=False, on_notice=print, tracing=False, tracking=None, **flags):
        own = {"enabled": True, "uri": uri, "experiment": tmp_path.name, "tracing": tracing, **(tracking or {})}
        few = {"dataset": {"limit": 6}, "metrics": ["tiny", "length"], "threads": 16, **flags}
        config = read_config(None, evaluation_of(server, tracking=own, **few))
        return list(run_evaluation(config, tmp_path / "run", resume=resume, on_notice=on_notice))

    return run


def tracked(tmp_path) -> list:
    return mlflow.MlflowClient().search_runs([mlflow.get_experiment_by_name(tmp_path.name).experiment_id])


def texts_of(folder: Path) -> bytes:
    return b"".join(f.read_bytes() for f in folder.rglob("*") if f.is_file())


def test_a_run_is_told_with_all_that_it_was_made_with_and_that_came_of_it(evaluate, tmp_path):
    evaluate()
    [run] = tracked(tmp_path)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "evaluation run: direct_lm on sample"
    assert [run.data.tags[tag] for tag in ("kind", "program", "dataset")] == ["evaluation", "direct_lm", "sample"]
    assert run.info.run_id == read_run(tmp_path / "run").settings["mlflow run"]
    params = run.data.params
    assert params["program"] == "direct_lm"
    reads = program_class("direct_lm").reads
    assert reads >= {n.removeprefix("options.").partition(".")[0] for n in params if "options." in n}
    assert not {"name", "data", "licence", "git commit"} & params.keys()
    assert params["lm settings.max_tokens"] == "1024"
    assert params["metric tiny.scorer"] == "vllm:stub"
    assert len(params["dataset fingerprint"]) == 64
    assert run.data.tags.get("mlflow.source.git.commit") == read_run(tmp_path / "run").settings["git commit"]
    [logged] = run.inputs.dataset_inputs
    assert (logged.dataset.name, logged.dataset.digest) == ("sample", params["dataset fingerprint"][:36])
    assert {tag.key: tag.value for tag in logged.tags} == {"mlflow.data.context": params["split"]}
    experiment = mlflow.get_experiment(run.info.experiment_id)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    metrics = run.data.metrics
    assert metrics["tiny/good"] == 1.0
    assert "tiny/good/reason" not in metrics  # of one question
    assert (metrics["tiny/n"], metrics["tiny/failed"], metrics["length/not_measurable"]) == (6, 0, 1)
    assert (metrics["answers/questions"], metrics["cost/tokens"], metrics["spent/lm_calls"]) == (6, 110, 12)


def test_the_experiment_is_the_environment_s_unless_one_is_named(evaluate, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", f"{tmp_path.name} of the environment")
    evaluate(tracking={"experiment": None})
    [run] = mlflow.search_runs(experiment_names=[f"{tmp_path.name} of the environment"], output_format="list")
    assert run.info.status == "FINISHED"
    assert mlflow.get_experiment_by_name(tmp_path.name) is None


def test_a_run_that_is_continued_is_the_same_run(evaluate, tmp_path):
    evaluate(caps={"lm_calls": 4}, threads=1)
    [stopped] = tracked(tmp_path)
    assert stopped.info.status == "KILLED"
    assert stopped.data.metrics["tiny/n"] < 6
    evaluate(resume=True)
    [finished] = tracked(tmp_path)
    assert finished.info.run_id == stopped.info.run_id
    assert finished.info.status == "FINISHED"
    assert finished.data.metrics["tiny/n"] == 6
    assert len(mlflow.load_table("questions.json", run_ids=[finished.info.run_id])) == 6


def test_a_run_that_a_fault_ends_is_told_as_far_as_it_came(evaluate, server, tmp_path):
    server.reply = lambda call: (401, "gone") if len(server.calls) > 5 else None
    with pytest.raises(LMUnavailable):
        evaluate(threads=1)
    [run] = tracked(tmp_path)
    assert run.info.status == "KILLED"
    assert run.data.metrics["answers/questions"] < 6
    assert mlflow.active_run() is None


def test_a_store_that_cannot_be_used_is_said_before_anything_is_asked(evaluate, server, tmp_path):
    (tmp_path / "text").write_text("no database")
    with pytest.raises(TypedRAGError, match=r"MLflow's store cannot be used.*--no-tracking"):
        evaluate(tracking={"uri": f"sqlite:///{tmp_path / 'text'}"})
    assert server.calls == []
    assert not (tmp_path / "run").exists()  # which would be in the way of the mended command


@pytest.mark.parametrize("tracing", [False, True])
def test_no_key_and_no_address_is_left_anywhere(evaluate, server, tmp_path, uri, tracing):
    """Not even where a server repeats them in its errors."""
    refused = iter([True])
    server.reply = lambda call: (400, f"{server.api_base} does not know {KEY}") if next(refused, None) else None
    evaluate(tracing=tracing, threads=1)
    server.reply = lambda call: (401, f"{server.api_base} does not know {KEY}")
    with pytest.raises(LMUnavailable):
        evaluate(tracing=tracing, threads=1, resume=True, dataset={"name": "sample", "limit": 8})
    run = read_run(tmp_path / "run")
    assert any("[hidden] does not know [hidden]" in q.error for q in run.questions)
    store = Path(uri.removeprefix("sqlite:///")).parent
    for written in (texts_of(tmp_path), texts_of(store)):
        assert written
        assert KEY.encode() not in written
        assert server.api_base.encode() not in written
    if tracing:
        assert "does not know" in str([s.events for t in traces_of(tmp_path) for s in t.data.spans])


def traces_of(tmp_path):
    experiment = mlflow.get_experiment_by_name(tmp_path.name).experiment_id
    return mlflow.search_traces(locations=[experiment], return_type="list")


def test_tracing_makes_a_trace_of_each_answer_and_judgment(evaluate, tmp_path):
    evaluate(tracing=True)
    traces = traces_of(tmp_path)
    assert len(traces) == 6 + 6  # the metric that asks no LM has nothing to trace
    [run] = tracked(tmp_path)
    ids = {q.id for q in read_run(tmp_path / "run").questions}
    for step in ("answer", "tiny"):
        of_step = [t for t in traces if t.info.tags["step"] == step]
        assert {t.info.tags["question"] for t in of_step} == ids
    answer = next(t for t in traces if t.info.tags["step"] == "answer")
    assert answer.info.trace_metadata["mlflow.sourceRun"] == run.info.run_id
    names = [span.name for span in answer.data.spans]
    assert names[0] == "answer"
    assert set(names[1:]) == {"DirectLM.forward", "Predict.forward", "LM.__call__"}


@pytest.mark.parametrize("tracing", [False, True])
def test_an_mlflow_run_of_the_caller_stays_active_and_has_no_traces(evaluate, tmp_path, uri, tracing):
    mlflow.set_tracking_uri(uri)
    with mlflow.start_run() as mine:
        evaluate(tracing=tracing)
        assert mlflow.active_run().info.run_id == mine.info.run_id
    [run] = tracked(tmp_path)
    assert run.info.status == "FINISHED"
    sources = [trace.info.trace_metadata["mlflow.sourceRun"] for trace in traces_of(tmp_path)]
    assert sources == [run.info.run_id] * (12 if tracing else 0)
