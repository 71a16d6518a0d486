from dataclasses import replace

import dspy
import mlflow
import pytest

from tests.experiments.compiles import CANDIDATES, about, candidate, result, tracker
from tests.mlflow_stores import new_store
from tests.programs.artifact.test_compiled import compiled
from typedrag.core.redaction import make_redactor
from typedrag.experiments import read_config, run_evaluation
from typedrag.experiments.judges.saved import save_judge
from typedrag.metrics.judges.linkage import LinkageJudge
from typedrag.optimizers.compile.run import log_candidates, log_compile, render_candidates
from typedrag.programs.compiled import save_compiled

KEY, HOST = "sk-a-planted-key-0123456789", "lm.planted-host.example"


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    yield new_store(tmp_path_factory.mktemp("mlflow"))
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The folder of a compile of a rag."""
    out = tmp_path_factory.mktemp("compile") / "mine"
    save_compiled(compiled("rag"), out / "program", about())
    return out


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


def test_a_compile_that_was_killed_goes_on_in_the_same_run(uri, out, tmp_path, monkeypatch):
    first = tracker(uri, "killed")
    first.begin_folder(tmp_path, {"seed": 0}, kind="compile")
    log_candidates(first, CANDIDATES[:1], "program")
    with monkeypatch.context() as killed:  # in the middle of a candidate
        killed.setattr(mlflow.MlflowClient, "set_terminated", lambda *_, **__: 1 / 0)
        log_candidates(first, CANDIDATES[:2], "program")
    again = tracker(uri, "killed")
    again.begin_folder(tmp_path, {"seed": 0, "threads": 4}, kind="compile")
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
    compile_tracker.begin_folder(tmp_path, {}, kind="compile")
    assert log_compile(compile_tracker, (), result(tmp_path / "judge"), "linkage-judge", register_as="judges") == ""
    [run] = parents("judge")
    assert {f.path for f in mlflow.artifacts.list_artifacts(run_id=run.info.run_id, artifact_path="judge")} == {
        "judge/judge.json", "judge/state.json", "judge/signatures.json",
    }  # fmt: skip


def test_a_store_that_goes_away_stops_no_compile(uri, out, tmp_path, monkeypatch):
    notices: list[str] = []
    compile_tracker = tracker(uri, "away", notify=notices.append)
    compile_tracker.begin_folder(tmp_path, {}, kind="compile")

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
    config = {"programs": [{"program": "direct_lm"}], "dataset": {"name": "sample", "limit": 2}, "metrics": ["steps"]}
    config |= {"lm": lm, "tracking": {"uri": uri}, "threads": 1}
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
    compiling.begin_folder(folder, {"lm": {"base": f"https://{HOST}:8443/v1"}, "keys": [KEY]}, kind="compile")
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
