"""`--retriever` of ask and evaluate, and PreQRAG by name."""

import shutil

import pytest

from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from tests.retrieval.encoders import save_encoder
from typedrag.experiments import read_run
from typedrag.retrieval import Encoder, embed_index

STUB = "vllm:stub"


@pytest.fixture(scope="module")
def index(sample_index, tmp_path_factory):
    out = shutil.copytree(sample_index, tmp_path_factory.mktemp("both") / "sample")
    encoder = Encoder(save_encoder(tmp_path_factory.mktemp("encoder")))
    embed_index(out, encoder)
    return out


def evaluate(run, out, *arguments):
    done = run(
        "evaluate", "--no-tracking", "--dataset", "sample", "--limit", 6, "--metric", "length", "--lm", STUB,
        "--out", out, *arguments,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return read_run(out)


def test_preqrag_runs_by_name_on_both_parts_where_there_are_two(run, tmp_path, index, sample_index):
    both = evaluate(run, tmp_path / "both", "--program", "preqrag", "--index", index)
    assert both.settings["retriever"] == "hybrid" and both.settings["encoder"]["dimensions"] == 16
    alone = evaluate(run, tmp_path / "alone", "--program", "preqrag", "--index", sample_index)
    assert "retriever" not in alone.settings and alone.settings["index"] == both.settings["index"]
    for made, lacks in ((both, ()), (alone, ("dense (it is not searched)",))):
        assert len(made.questions) == 6
        assert all(q.answer and q.answer.program == "preqrag" for q in made.questions)
        assert {d for q in made.questions for d in q.answer.dropped if "not searched" in d} == set(lacks)


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [("best", 2, "'best' is no retriever. Write one of: bm25, dense, hybrid"), ("dense", 3, "has no dense part")],
)
def test_what_cannot_be_searched_is_a_line_and_an_exit_code(run, sample_index, spec, code, message):
    asked = run("ask", "Why?", "--index", sample_index, "--lm", STUB, "--retriever", spec)
    measured = run(
        "evaluate", "--no-tracking", "--program", "rag", "--retriever", spec, "--dataset", "sample", "--limit", 1,
        "--metric", "length", "--lm", STUB, "--index", sample_index, "--out", "x",
    )  # fmt: skip
    for done in (asked, measured):
        assert done.exit_code == code and message in done.stderr
    nobody = run("evaluate", "--retriever", "dense", "--dataset", "sample", "--metric", "length", "--out", "y")
    assert nobody.exit_code == 2 and "--retriever are of a --program" in nobody.stderr
