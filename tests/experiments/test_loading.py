import json
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

import typedrag
from tests.programs.artifact.test_compiled import compiled, edit
from tests.programs.compiling import Spy
from typedrag.core.errors import InputError, RetrievalError, TypedRAGError
from typedrag.experiments.loading import load_program, program_source, read_program
from typedrag.lms import models
from typedrag.programs import Options
from typedrag.programs.artifact import dump_state
from typedrag.programs.compiled import save_compiled
from typedrag.retrieval.opening import _warn_sample, default_index, open_retriever

mlflow = pytest.importorskip("mlflow")

SERVE = """
import mlflow

class Served(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        raise AssertionError("a compiled program is loaded without its model")

    def predict(self, context, model_input: list[str]) -> list[str]:
        return model_input

mlflow.models.set_model(Served())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A compiled typed_rag."""
    folder = tmp_path_factory.mktemp("compiled") / "typed"
    save_compiled(compiled(), folder)
    return folder


@pytest.fixture(scope="module")
def registry(tmp_path_factory, folder):
    """A store where the program is the first version of a registered model and an artifact of a run."""
    home = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{home / 'mlflow.db'}"
    (home / "serve.py").write_text(SERVE)
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    mlflow.set_tracking_uri(uri)
    experiment = mlflow.create_experiment("compiling", artifact_location=(home / "artifacts").as_uri())
    with mlflow.start_run(experiment_id=experiment) as run:
        mlflow.log_artifacts(str(folder), "best")
        serve = {"python_model": str(home / "serve.py"), "pip_requirements": []}
        mlflow.pyfunc.log_model(
            name="model", artifacts={"program": str(folder)}, registered_model_name="typed", **serve
        )
        mlflow.pyfunc.log_model(name="other", registered_model_name="other", **serve)
        mlflow.log_text("{}", "notes/x.json")
    mlflow.MlflowClient().set_registered_model_alias("typed", "champion", 1)
    yield uri, run.info.run_id
    mlflow.set_tracking_uri(before)


@pytest.fixture
def sources(registry):
    """By what the program is called."""
    _, run = registry
    return ["models:/typed@champion", "models:/typed/1", "models:/typed/1/", f"runs:/{run}/model", f"runs:/{run}/best"]


def refused(source: str | Path, error: type[TypedRAGError] = InputError) -> str:
    with pytest.raises(error) as said:
        read_program(source)
    assert "\n" not in str(said.value)
    assert str(source).rstrip("/") in str(said.value)
    return str(said.value)


def test_a_folder_is_loaded_over_a_retriever_or_an_index(folder, sample_index, monkeypatch):
    assert typedrag.load_program is load_program
    program = load_program(folder, retriever=Spy())
    assert dump_state(program) == dump_state(compiled())
    assert load_program(str(folder), index=sample_index).retriever.index == sample_index
    monkeypatch.setenv("TYPEDRAG_INDEX", str(sample_index))
    assert load_program(folder).retriever.index == sample_index
    monkeypatch.delenv("TYPEDRAG_INDEX")


def test_an_index_that_is_not_named_is_the_sample_which_is_said_once(folder, monkeypatch, caplog):
    monkeypatch.delenv("TYPEDRAG_INDEX", raising=False)
    _warn_sample.cache_clear()
    assert load_program(folder).retriever.index == default_index()
    assert typedrag.build_program("rag").retriever.index == default_index()
    [warning] = [r.getMessage() for r in caplog.records if r.name == "typedrag.retrieval.opening"]
    assert warning.startswith("no index is named, so a sample on everyday subjects is searched")


def test_first_starts_at_the_same_time_make_one_sample_index(tmp_path):
    find = "from typedrag.retrieval import open_retriever; print(len(open_retriever('bm25').search(['bread'], 3)[0]))"
    environment = {**os.environ, "TYPEDRAG_CACHE": str(tmp_path), "TYPEDRAG_MODELS": str(models.models_dir())}
    environment.pop("TYPEDRAG_INDEX", None)
    started = [
        subprocess.Popen([sys.executable, "-c", find], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate()[0] for process in started] == ["3\n"] * 3
    [index] = (tmp_path / "indexes").iterdir()
    assert [folder.name for folder in index.glob("gen-*")] == ["gen-1"]


def test_a_program_is_saved_and_not_pickled(sample_index, tmp_path):
    program = typedrag.build_program("rag", open_retriever("bm25", sample_index))
    for dumps in (pickle.dumps, cloudpickle.dumps):
        with pytest.raises(TypeError, match=r"a BM25Retriever, .* cannot be pickled: write it by program\.save"):
            dumps(program)
    program.save(tmp_path / "program.json")
    again = typedrag.build_program("rag", open_retriever("bm25", sample_index))
    again.load(tmp_path / "program.json")
    assert dump_state(again) == dump_state(program)


def test_what_needs_no_index_is_loaded_without(tmp_path):
    save_compiled(compiled("direct_lm"), tmp_path / "c")
    assert load_program(tmp_path / "c").name == "direct_lm"


def test_mlflow_gives_the_same_program_by_all_its_names(sources, folder):
    for source in sources:
        read = read_program(source)
        assert read.source == source
        assert read.state == read_program(folder).state
        assert dump_state(read.build(Spy())) == dump_state(compiled())


def test_nothing_is_unpickled_and_no_network_is_needed(sources, folder, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")

    def never(*arguments, **more):
        raise AssertionError("not allowed")

    for module in (pickle, cloudpickle):
        for name in ("load", "loads", "Unpickler"):
            monkeypatch.setattr(module, name, never, raising=False)
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, never)
    for source in (folder, *sources):
        assert load_program(source, retriever=Spy()).name == "typed_rag"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("models:/none@champion", "models:/none@champion cannot be had from MLflow: Registered Model with name=none"),
        ("models:/typed@none", "cannot be had from MLflow: Registered model alias none not found"),
        ("models:/typed/7", "cannot be had from MLflow"),
        ("models:/typed", "cannot be had from MLflow"),
        ("models:/", "models:/ is no compiled program"),
        ("models:/other/1", "models:/other/1 is a model, but no compiled program"),
        ("runs:/0123/model", "cannot be had from MLflow: Run with id=0123 not found"),
        ("runs:/RUN/none", "cannot be had from MLflow"),
        ("runs:/RUN/other", "is a model, but no compiled program"),
        ("runs:/RUN/notes", "is no compiled program"),
    ],
)
def test_what_mlflow_has_not_is_refused_in_a_line(registry, source, said):
    assert said in refused(source.replace("RUN", registry[1]))


def test_a_model_cannot_lead_out_of_itself(registry, folder, tmp_path, monkeypatch):
    from mlflow.models import Model

    for path in ("../../secret", "/etc", ""):
        model = Model(flavors={"python_function": {"artifacts": {"program": {"path": path}}}})
        monkeypatch.setattr(mlflow.models, "get_model_info", lambda uri, model=model: model)
        assert "is a model, but no compiled program" in refused("models:/typed/1")


def test_a_store_that_is_not_there_is_no_reason_to_make_one(tmp_path, monkeypatch):
    monkeypatch.setattr(mlflow, "is_tracking_uri_set", lambda: False)
    monkeypatch.setenv("TYPEDRAG_DATA", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert "cannot be had: MLflow keeps nothing at sqlite:///" in refused("models:/typed@champion")
    assert not list(tmp_path.iterdir())


# programs by name and by place


def test_a_name_is_a_name_even_where_a_folder_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_compiled(compiled("rag"), Path("rag"))
    save_compiled(compiled("rag"), Path("mine"))
    assert program_source("rag").compiled is None
    assert program_source("rag").settings == {"program": "rag"}
    mine = program_source("mine")
    assert mine.settings == {"program": "rag", "compiled": mine.compiled.fingerprint}
    assert program_source("./rag").settings == mine.settings
    assert program_source("coverage-end-to-end").settings == {"program": "coverage_end_to_end"}
    with pytest.raises(InputError, match=r"no program is called 'rag-s'.* name a compiled one"):
        program_source("rag-s")
    with pytest.raises(InputError, match="no program is called 'rags'"):
        program_source("rags")
    with pytest.raises(InputError, match="nowhere/rag is no compiled program"):
        program_source("nowhere/rag")
    with pytest.raises(InputError, match="no program is called 'xxx"):
        program_source("x" * 5000)


def test_options_are_those_that_it_was_compiled_with(tmp_path):
    save_compiled(compiled("rag", Options(top_k=3)), tmp_path / "c")
    source = program_source(f"{tmp_path}/c")
    assert source.options() == Options(top_k=3)
    with pytest.raises(InputError, match="has the options that it was compiled with"):
        source.options(as_published="paper")
    assert program_source("rag").options(as_published="paper") == Options.as_published()
    assert source.build(Spy(), None, Options(top_k=2)).options.top_k == 2


@pytest.mark.parametrize("spec", ["cross-encoder:evil/model", "bi-encoder:/tmp/evil", "bi-encoder:../x", "list:evil"])
def test_a_stranger_s_reranker_is_not_loaded(tmp_path, spec):
    save_compiled(compiled("rag"), tmp_path / "c", reranker=spec)
    with pytest.raises(InputError, match="which does not come with typedrag") as error:
        load_program(tmp_path / "c", retriever=Spy())
    assert repr(spec) in str(error.value)
    assert load_program(tmp_path / "c", retriever=Spy(), reranker=Spy()).reranker


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("typed_rag", {"type_classifier": "hub:evil/model"}),
        ("hanrag", {"hanrag": {"revelator_lm": "openai/evil"}}),
        ("richrag", {"richrag": {"explorer_lm": "openai/evil"}}),
    ],
)
def test_what_a_stranger_s_options_name_is_not_loaded(tmp_path, name, own):
    save_compiled(compiled(name), tmp_path / "c")
    edit(tmp_path / "c", "program.json", options=own)
    with pytest.raises(InputError, match="which does not come with typedrag"):
        load_program(tmp_path / "c", retriever=Spy())
    source = program_source(f"{tmp_path}/c")
    with pytest.raises(InputError, match="which does not come with typedrag"):
        source.options(overrides={"retries": 1})
    assert source.options(overrides=own) == Options().with_given(own)


def test_what_a_stranger_s_options_name_and_the_program_does_not_read_is_as_by_default(tmp_path):
    save_compiled(compiled("rag"), tmp_path / "c")
    own = {"type_classifier": "hub:evil/model", "hanrag": {"revelator_lm": "openai/evil"}, "top_k": 3}
    edit(tmp_path / "c", "program.json", options=own)
    assert load_program(tmp_path / "c", retriever=Spy()).options == Options(top_k=3)


def test_labels_are_refused_also_where_a_program_was_saved_with_what_reads_them(tmp_path):
    save_compiled(compiled("rag"), tmp_path / "c", retriever="gold")
    source = program_source(f"{tmp_path}/c")
    with pytest.raises(InputError, match="retriever=gold reads labels of a dataset"):
        source.check_unlabelled(Options(), None)
    source.check_unlabelled(Options(), "bm25")


def test_a_reranker_that_comes_with_typedrag_is(tmp_path):
    for spec in ("none", "bi-encoder", "bi-encoder:all-minilm-l6-v2", "cross-encoder"):
        save_compiled(compiled("rag"), tmp_path / "c", reranker=spec)
        assert program_source(f"{tmp_path}/c").reranker == spec
    assert program_source("rag").reranker == "none"
    edit(tmp_path / "c", "program.json", reranker="best")
    with pytest.raises(InputError, match="'best' is no reranker"):
        load_program(tmp_path / "c", retriever=Spy())
    assert json.loads((tmp_path / "c" / "program.json").read_text())["reranker"] == "best"


def test_the_retriever_is_that_which_it_was_compiled_with(tmp_path, sample_index):
    save_compiled(compiled("rag"), tmp_path / "c", retriever="hybrid:0.3")
    assert program_source(str(tmp_path / "c")).retriever == "hybrid:0.3"
    with pytest.raises(RetrievalError, match="has no dense part"):
        load_program(tmp_path / "c", index=sample_index)
    save_compiled(compiled("rag"), tmp_path / "d")
    assert program_source(str(tmp_path / "d")).retriever == program_source("rag").retriever == "bm25"
    assert program_source("preqrag").retriever == "auto"
    edit(tmp_path / "d", "program.json", retriever="best")
    with pytest.raises(InputError, match="is no retriever"):
        load_program(tmp_path / "d", index=sample_index)
