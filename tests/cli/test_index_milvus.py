"""Commands over an index in a real Milvus."""

import json

import pytest

from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from tests.milvus import milvus_server
from typedrag import load_program
from typedrag.core.errors import InputError
from typedrag.datasets.sample import PASSAGES
from typedrag.experiments.config import EvaluationConfig, ProgramConfig
from typedrag.experiments.resources import Resources
from typedrag.programs import Options, build_program
from typedrag.programs.compiled import save_compiled
from typedrag.retrieval import BM25Retriever

STUB = "vllm:stub"
TOKEN = "somebody:a-secret-word"


@pytest.fixture(scope="module")
def milvus(tmp_path_factory):
    with milvus_server(tmp_path_factory.mktemp("milvus")) as started:
        yield started


@pytest.fixture(autouse=True)
def _token(monkeypatch):
    monkeypatch.setenv("MILVUS_TOKEN", TOKEN)


@pytest.fixture
def place(milvus, run) -> str:
    """The address of the sample corpus."""
    place = f"milvus:{milvus.url}/sample"
    done = run("index", "build", PASSAGES, "--out", place, "--resume")
    assert done.exit_code == 0, done.output
    assert "144 passages in language en in " in done.stderr and place in done.stderr
    return place


def test_it_is_built_described_searched_and_asked(run, place):
    facts = json.loads(run("index", "info", place).stdout)
    assert (facts["passages"], facts["encoder"], facts["language"]) == (144, None, "en")
    found = run("index", "search", f"{place}?filter=id in ['vaccines-2', 'bread-1']", "vaccines", "-k", 1, "--json")
    assert json.loads(found.stdout)["id"] == "vaccines-2"
    asked = run("ask", "Why do vaccines work?", "--program", "rag", "--lm", STUB, "--retriever", place, "--json")
    assert asked.exit_code == 0, asked.output
    assert {p["id"].partition("-")[0] for p in json.loads(asked.stdout)["passages"]} & {"vaccines"}
    assert "over sample" in asked.stderr


def test_a_run_is_known_by_the_index_and_keeps_neither_address_nor_key(run, place, milvus, sample_index, tmp_path):
    evaluate = ("evaluate", "--no-tracking", "--dataset", "sample", "--limit", 2, "--metric", "length", "--lm", STUB,
                "--program", "rag", "--out", tmp_path / "run")  # fmt: skip
    where = f"{place}?search=bm25&filter=id != 'x'"
    done = run(*evaluate, "--retriever", where)
    assert done.exit_code == 0, done.output
    files = [f.read_bytes() for f in (tmp_path / "run").rglob("*") if f.is_file()]
    assert files and not [f for f in files if milvus.url.encode() in f or b"a-secret-word" in f]
    [summary] = [json.loads(f) for f in files if b'"planned"' in f]
    settings = summary["settings"]
    assert (settings["engine"], settings["filter"]) == ("milvus", "id != 'x'")
    assert settings["passages from"] == "milvus:[hidden]/sample"
    again = run(*evaluate, "--retriever", where, "--resume")
    assert again.exit_code == 0, again.output
    other = run(*evaluate, "--index", sample_index, "--resume")
    assert other.exit_code == 2 and "engine" in other.stderr


def test_a_compiled_program_keeps_how_it_was_searched_and_names_no_collection(place, sample_index, tmp_path):
    program = ProgramConfig(program="rag", retriever=place)
    config = EvaluationConfig.model_validate(
        {"dataset": {"name": "sample"}, "programs": [program], "metrics": [{"name": "length"}]}
    )
    parts = Resources(config, tmp_path / "judgments.sqlite")
    assert parts.retriever_spec(program) == "bm25"
    assert f"milvus:{parts.addresses[0]}/sample" == place
    rag = build_program("rag", BM25Retriever(sample_index), None, Options())
    save_compiled(rag, tmp_path / "mine")
    assert load_program(tmp_path / "mine", retriever=place).retriever.place == place
    save_compiled(rag, tmp_path / "theirs", retriever=place)
    with pytest.raises(InputError, match="Name a --retriever yourself"):
        load_program(tmp_path / "theirs", index=sample_index)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["build", "x.jsonl"], "Missing option '--out'"),
        (["build", "--out", "milvus:http://h/x", "--dense", "m"], "Missing argument 'SOURCE…'"),
        (["build", "x.jsonl", "--out", "x", "--metadata", "year"], "--metadata is of Milvus"),
        (["build", "x.jsonl", "--out", "http://h/x"], "'http://h/x' names no collection of Milvus"),
        (
            ["search", "milvus:http://h/x", "q", "--retriever", "dense"],
            "an address of Milvus can end with ?search=dense",
        ),
        (["serve", "--retriever", "milvus:http://h/x"], "has its own index"),
        (["serve", "--retriever", "gold"], "gold gives passages that a dataset labels"),
    ],
)
def test_what_does_not_fit_together_is_refused(run, arguments, problem):
    refused = run("index", *arguments)
    assert refused.exit_code == 2 and problem in refused.stderr
