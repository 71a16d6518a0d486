"""`typedrag index serve` as a process of its own, and commands that ask it."""

import signal
import sys

import pytest

from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from tests.serving.process import Process
from typedrag import load_program
from typedrag.core.errors import InputError
from typedrag.programs import Options, build_program
from typedrag.programs.compiled import Compiled, save_compiled
from typedrag.retrieval import BM25Retriever, open_retriever

STUB = "vllm:stub"


@pytest.fixture
def serving(sample_index, tmp_path):
    """Starts a server of the sample index."""
    started: list[Process] = []

    def start(*arguments: str) -> Process:
        command = [sys.executable, "-m", "typedrag", "index", "serve", "--index", str(sample_index), "--port", "0"]
        started.append(Process([*command, *arguments], {"TYPEDRAG_CACHE": str(tmp_path)}))
        return started[-1]

    yield start
    for process in started:
        process.client.close()
        process.process.kill()
        process.process.wait()


def test_several_processes_serve_one_index_and_end_in_order(serving, sample_retriever):
    process = serving("--workers", "2")
    there = open_retriever(process.url)
    assert there.search(["bread", "cats"], 5) == sample_retriever.search(["bread", "cats"], 5)
    process.process.send_signal(signal.SIGTERM)
    assert process.wait() in (0, -signal.SIGTERM, 143)


def test_commands_ask_it_and_keep_runs_by_the_index_not_by_its_address(serving, run, tmp_path, sample_index):
    url = serving().url
    asked = run("ask", "Why?", "--program", "rag", "--lm", STUB, "--retriever", url, "--index", sample_index)
    assert asked.exit_code == 2 and f"both --index {sample_index} and --retriever {url} are given" in asked.stderr
    evaluate = ("evaluate", "--no-tracking", "--dataset", "sample", "--limit", 2, "--metric", "length", "--lm", STUB,
                "--program", "rag", "--out", tmp_path / "run")  # fmt: skip
    done = run(*evaluate, "--retriever", url)
    assert done.exit_code == 0, done.output
    assert not [f for f in (tmp_path / "run").rglob("*") if f.is_file() and url.encode() in f.read_bytes()]
    again = run(*evaluate, "--index", sample_index, "--resume")
    assert again.exit_code == 0, again.output
    none = run("datasets", "build", "preqrag", "--retriever", url, "--lm", STUB, "--out", tmp_path / "made")
    assert none.exit_code == 2 and "does not hand out all passages" in none.stderr


def test_a_compiled_program_is_loaded_over_it_and_names_no_server(serving, tmp_path, sample_index):
    url = serving().url
    save_compiled(build_program("rag", BM25Retriever(sample_index), None, Options()), tmp_path / "mine")
    assert load_program(tmp_path / "mine", retriever=url).retriever.place == url
    with pytest.raises(InputError, match="both --index"):
        load_program(tmp_path / "mine", retriever=url, index=sample_index)
    save_compiled(build_program("rag", BM25Retriever(sample_index), None, Options()), tmp_path / "c", retriever=url)
    assert Compiled.read(tmp_path / "c").retriever == url
    with pytest.raises(InputError, match="Name a --retriever yourself"):
        load_program(tmp_path / "c", index=sample_index)


def test_a_server_says_itself_how_it_is_searched(serving, run):
    url = serving().url
    assert run("index", "search", url, "bread", "-k", 1, "--json").exit_code == 0
    refused = run("index", "search", url, "bread", "--retriever", "nonsense")
    assert refused.exit_code == 2
    assert "an address says itself how it is searched, and --retriever is given. Leave it out; " in refused.stderr


@pytest.mark.parametrize("limit", ["page=false", "feedback=f.sqlite", "lm_calls=2"])
def test_limits_of_answers_are_refused(run, limit):
    refused = run("index", "serve", "--limit", limit)  # as it was written before
    name = limit.partition("=")[0].replace("_", "-")
    assert refused.exit_code == 2
    assert f"--{name} is one of typedrag serve. Leave it out. Settings are: " in refused.stderr


def test_a_query_that_no_index_can_search_is_refused(serving):
    client = serving().client
    of_json = {"headers": {"Content-Type": "application/json"}}
    half = client.post("/v1/search", content=b'{"queries": ["\\ud800 bread"], "k": 2}', **of_json)
    assert (half.status_code, half.json()["error"]["code"]) == (422, "invalid_request")
    refused = client.post("/v1/search", json={"queries": ["bread", "w" * 65_537], "k": 2})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request")
    assert refused.json()["error"]["message"].startswith("queries.1: ")
    assert client.post("/v1/search", json={"queries": ["bread " * 10_000], "k": 2}).status_code == 200
