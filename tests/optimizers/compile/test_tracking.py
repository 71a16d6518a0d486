import json
from dataclasses import replace
from pathlib import Path

import dspy
import pytest

import typedrag
from tests.experiments.compiles import CANDIDATES, OBJECTIVE, about, candidate, result, tracker
from tests.mlflow_stores import new_store
from tests.programs.artifact.test_compiled import compiled
from tests.programs.compiling import Spy
from typedrag.core.records import Estimate, Usage
from typedrag.core.redaction import make_redactor
from typedrag.experiments import read_config, run_evaluation
from typedrag.experiments.compare import Difference, RunComparison, Stratum
from typedrag.experiments.judges.saved import save_judge
from typedrag.lms.cost import Spending
from typedrag.metrics.judges.linkage import LinkageJudge
from typedrag.optimizers.compile.held_out import HeldOut
from typedrag.optimizers.compile.tracking import RISK, log_candidates, log_compile, render_candidates
from typedrag.programs.artifact import dump_state
from typedrag.programs.compiled import save_compiled

mlflow = pytest.importorskip("mlflow")

KEY = "sk-a-planted-key-0123456789"
HOST = "lm.planted-host.example"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture(scope="module")
def uri(home):
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    yield new_store(home)
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The folder of a compile of a rag."""
    out = tmp_path_factory.mktemp("compile") / "mine"
    save_compiled(compiled("rag"), out / "program", about())
    return out


@pytest.fixture(scope="module")
def told(uri, out):
    """A compile that MLflow was told of: its run, and the version that was registered."""
    compile_tracker = tracker(uri, "told")
    settings = {"optimizer": "gepa", "options": {f"o{n}": n for n in range(120)}, "git commit": "0123abc"}
    compile_tracker.begin_folder(out, settings, {RISK: "linkage pays for fabrications"})
    for number in range(1, 5):
        log_candidates(compile_tracker, CANDIDATES[:number], "program")
    estimates = {"baseline": Estimate(0.5, 0.4, 0.6, n=9), "other": Estimate(0.7, 0.6, 0.8, n=9)}
    difference = Difference(
        measure=OBJECTIVE,
        run="compiled",
        stratum=Stratum("type", "reason"),
        n=9,
        left_out={},
        **estimates,
        difference=Estimate(0.2, 0.1, 0.3, n=9),
    )
    test = HeldOut(RunComparison("base", ("base", "compiled"), (difference,)), {}, {})
    registered = log_compile(
        compile_tracker,
        CANDIDATES,
        result(out / "program", spent=Spending(Usage(200, 20_000, 1_000), dollars=0.5, unpriced=40), test=test),
        "program",
        stopped="the budget is spent",
        register_as="answers",
    )
    [run] = parents("told")
    return run, registered


def runs(experiment: str) -> list:
    mine = mlflow.get_experiment_by_name(experiment).experiment_id
    return mlflow.MlflowClient().search_runs([mine], order_by=["attributes.start_time"])


def parents(experiment: str) -> list:
    return [run for run in runs(experiment) if "mlflow.parentRunId" not in run.data.tags]


def nested(experiment: str) -> dict[int, object]:
    """By the number of the candidate."""
    found = [run for run in runs(experiment) if "mlflow.parentRunId" in run.data.tags]
    numbers = {int(run.data.tags["typedrag.candidate"]): run for run in found}
    assert len(numbers) == len(found)
    return numbers


def curve(run, name: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in mlflow.MlflowClient().get_metric_history(run.info.run_id, name)]


def test_a_compile_is_a_run_with_all_that_it_was_made_with(told, out):
    run, _ = told
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "mine"
    assert run.info.run_id == json.loads((out / "mlflow.json").read_text())["run"]
    assert run.data.params["optimizer"] == "gepa"
    assert len(run.data.params) == 122
    assert run.data.tags["mlflow.source.git.commit"] == "0123abc"
    assert run.data.tags["stopped"] == "the budget is spent"
    assert run.data.tags["risk"] == "linkage pays for fabrications"


def test_candidates_are_nested_runs_and_points_of_curves(told):
    run, _ = told
    found = nested("told")
    assert {r.data.tags["mlflow.parentRunId"] for r in found.values()} == {run.info.run_id}
    assert sorted(found) == [0, 1, 2, 3]
    assert found[2].info.status == "FINISHED"
    assert found[2].info.run_name == "candidate 2"
    assert found[2].data.metrics == {
        "score": 0.9, "base": 0.4, "n": 5, "failed": 1, "unjudged": 2, "lm_calls": 120, "tokens": 18000,
    }  # fmt: skip
    assert found[2].data.params == {"how": "proposed", "changed": "answer", "state": "state2"}
    assert curve(run, "candidate/score") == [(0, 0.4), (1, 0.35), (2, 0.9), (3, 0.55)]
    assert curve(run, "candidate/best") == [(0, 0.4), (1, 0.4), (2, 0.4), (3, 0.55)]
    assert curve(run, "spent/lm_calls")[-2:] == [(3, 160), (4, 200)]


def test_the_test_split_s_scores_are_metrics(told):
    run, _ = told
    metrics = run.data.metrics
    assert metrics[f"test/base/{OBJECTIVE}"] == 0.5
    assert metrics[f"test/compiled/{OBJECTIVE}"] == 0.6
    assert metrics[f"test/compiled/{OBJECTIVE}/high"] == 0.7
    assert metrics[f"test/compiled/{OBJECTIVE}/n"] == 100
    assert metrics["test/p"] == 0.01
    assert metrics[f"test/difference/{OBJECTIVE}/reason"] == 0.2
    assert run.data.tags["verdict"] == "better"


def test_the_trajectory_is_a_page_and_a_table(told, tmp_path):
    run, _ = told
    folder = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, dst_path=str(tmp_path)))
    page = (folder / "trajectory.html").read_text()
    assert (page.count('<img class="chart"'), page.count('<th scope="row"')) == (1, 4)
    assert "&lt;b&gt;proposed&lt;/b&gt;" in page
    assert "<b>proposed" not in page
    table = mlflow.load_table("candidates.json", run_ids=[run.info.run_id])
    assert list(table["score"]) == pytest.approx([0.4, 0.35, 0.9, 0.55])
    assert set(table["target"]) == {"program"}
    saved = json.loads((folder / "result.json").read_text())
    assert (saved["spent"]["tokens"], saved["test"]["differences"][0]["stratum"]) == (21_000, "reason")


def test_the_program_is_loaded_by_all_its_names_without_a_pickle(told, home, monkeypatch):
    run, registered = told
    assert registered == "models:/answers/1"
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    mlflow.MlflowClient().set_registered_model_alias("answers", "champion", "1")
    names = ("models:/answers@champion", f"runs:/{run.info.run_id}/model", f"runs:/{run.info.run_id}/program")
    for name in names:
        assert dump_state(typedrag.load_program(name, retriever=Spy())) == dump_state(compiled("rag"))
    model = mlflow.pyfunc.load_model("models:/answers@champion")
    assert [column.name for column in model.metadata.signature.inputs] == ["question", "question_type"]
    assert "answer" in model.metadata.signature.outputs.input_names()
    assert model.input_example is not None
    files = [f.name for f in home.rglob("*") if f.is_file()]
    assert "MLmodel" in files
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".cloudpickle", "uv.lock"))]


def test_a_compile_that_was_killed_goes_on_in_the_same_run(uri, out, tmp_path, monkeypatch):
    first = tracker(uri, "killed")
    first.begin_folder(tmp_path, {"seed": 0})
    log_candidates(first, CANDIDATES[:1], "program")
    with monkeypatch.context() as killed:  # in the middle of a candidate
        killed.setattr(mlflow.MlflowClient, "set_terminated", lambda *_, **__: 1 / 0)
        log_candidates(first, CANDIDATES[:2], "program")
    again = tracker(uri, "killed")
    again.begin_folder(tmp_path, {"seed": 0, "threads": 4})
    assert parents("killed")[0].info.status == "RUNNING"
    log_candidates(again, CANDIDATES[:3], "program")  # best so far: from the first session
    log_candidates(again, CANDIDATES, "program")
    log_compile(again, CANDIDATES, result(out / "program"), "program")
    [run] = parents("killed")
    assert run.info.status == "FINISHED"
    assert run.data.params == {"seed": "0", "threads": "4"}
    found = nested("killed")
    assert sorted(found) == [0, 1, 2, 3]
    assert {r.info.status for r in found.values()} == {"FINISHED"}
    assert sorted(set(curve(run, "candidate/best"))) == [(0, 0.4), (1, 0.4), (2, 0.4), (3, 0.55)]


def test_a_page_shows_the_best_so_far_and_escapes_texts():
    page = render_candidates(CANDIDATES, "answers", "<mine>", "It pays <b>.")
    assert '<p class="warning">It pays &lt;b&gt;.</p>' in page and "<title>&lt;mine&gt;</title>" in page
    assert "answers: 4 candidates, 160 LM calls" in page
    assert page.count(">5 of 20</td>") == 1 and "<script" not in page
    assert 'class="warning"' not in render_candidates([candidate(0, 0.5)], "answers", "mine")


def test_a_judge_is_an_artifact_and_no_model(uri, tmp_path):
    save_judge(LinkageJudge(), tmp_path / "judge")
    compile_tracker = tracker(uri, "judge")
    compile_tracker.begin_folder(tmp_path, {})
    assert log_compile(compile_tracker, (), result(tmp_path / "judge"), "linkage-judge", register_as="judges") == ""
    [run] = parents("judge")
    assert {f.path for f in mlflow.artifacts.list_artifacts(run_id=run.info.run_id, artifact_path="judge")} == {
        "judge/judge.json", "judge/state.json", "judge/signatures.json",
    }  # fmt: skip


def test_a_store_that_goes_away_stops_no_compile(uri, out, tmp_path, monkeypatch):
    notices: list[str] = []
    compile_tracker = tracker(uri, "away", notify=notices.append)
    compile_tracker.begin_folder(tmp_path, {})

    def gone(*_, **__):
        raise ConnectionError("no route\nto the host")

    with monkeypatch.context() as away:
        away.setattr(mlflow.MlflowClient, "create_run", gone)
        for number in (1, 2):
            log_candidates(compile_tracker, CANDIDATES[:number], "program")
        assert notices == ["could not log a candidate to MLflow: no route. It and the others are logged at the end"]
        assert log_compile(compile_tracker, CANDIDATES, result(out / "program"), "program") == ""
        assert "Nothing is lost" in notices[1]
    log_compile(compile_tracker, CANDIDATES, result(out / "program"), "program")
    assert len(nested("away")) == 4
    assert len(notices) == 2


def test_no_key_and_no_address_is_left_anywhere(server, tmp_path, monkeypatch):
    """An evaluation whose server repeats them in its errors, and a compile in whose every text they are."""
    monkeypatch.setenv("TYPEDRAG_API_KEY", KEY)
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    uri = new_store(tmp_path / "store")
    refused = iter([True])
    secrets = f"{server.api_base} does not know {KEY}"
    server.reply = lambda call: (400, secrets) if next(refused, None) else None
    lm = {"spec": "vllm:stub", "api_base": server.api_base, "num_retries": 0}
    config = {
        "programs": [{"program": "direct_lm"}],
        "dataset": {"name": "sample", "limit": 2},
        "metrics": ["steps"],
        "lm": lm,
        "tracking": {"uri": uri},
        "threads": 1,
    }
    list(run_evaluation(read_config(None, config), tmp_path / "run"))

    asked = dspy.LM("openai/gpt-4o-mini", api_base=f"https://{HOST}:8443/v1", api_key=KEY)
    error = RuntimeError(f"401: POST https://{HOST}:8443/v1/chat/completions: wrong key {KEY}")
    redact, notices = make_redactor([asked]), []
    said = replace(about(), optimizer_options={"teacher": str(error)}, lms={"task": {"spec": f"openai/{HOST}"}})
    program = compiled("rag")
    program.answer_without_passages.demos = [dspy.Example(question="Why?", answer=str(error))]
    folder = tmp_path / "compile" / f"run of {KEY}"
    save_compiled(program, folder / "program", said, redact=redact)
    compiling = tracker(uri, redact=redact, notify=notices.append)
    compiling.begin_folder(folder, {"lm": {"base": f"https://{HOST}:8443/v1"}, "keys": [KEY]})
    found = replace(candidate(0, 0.4, best=True), how=str(error), changed=(KEY,))
    log_candidates(compiling, [found], "program")
    with monkeypatch.context() as away:
        away.setattr(mlflow.MlflowClient, "log_text", lambda *_, **__: (_ for _ in ()).throw(error))
        log_compile(compiling, [found], None, "program", stopped=str(error))
    done = result(folder / "program", risk=str(error))
    registered = log_compile(compiling, [found], done, "program", stopped=str(error), register_as="clean")
    assert registered == "models:/clean/1"
    assert len(notices) == 1
    mlflow.set_tracking_uri(before)

    for folder in ("store", "run", "compile"):
        written = {f: f.read_bytes() for f in (tmp_path / folder).rglob("*") if f.is_file()}
        assert written
        for secret in (KEY, HOST, server.api_base, server.api_base.split("/")[2]):
            assert not [f for f, data in written.items() if secret.encode() in data]
        assert KEY not in notices[0] and HOST not in notices[0]
    assert b"[hidden]" in b"".join(f.read_bytes() for f in (tmp_path / "store").rglob("*.json"))
