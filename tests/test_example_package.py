"""The example package, really installed, and packages that are broken."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from typedrag.core.errors import InputError, RetrievalError
from typedrag.metrics import metric_class, metric_names
from typedrag.programs.loading import ProgramSource
from typedrag.retrieval import check_reranker, check_retriever, open_retriever
from typedrag.retrieval.opening import bm25_of_index

ROOT = Path(__file__).parents[1]
USE = """
from pathlib import Path
import dspy
from dspy.utils import DummyLM
from typedrag.cli.main import cli
from typedrag.datasets import load_dataset, source_named
from typedrag.metrics import build_metric, metric_names
from typedrag.optimizers.compile.targets import find_target
from tests.optimizers.tiny import Engine, request_for
from typedrag.optimizers.compile.optimize import compile_module
from typedrag.optimizers.compile.prompt_optimizers import build_optimizer
from typedrag.optimizers.compile.targets import list_modules
from typedrag.programs import build_program, program_names
from typedrag.core.records import Passage
from typedrag.retrieval import check_retriever, open_reranker, open_retriever
from typedrag.retrieval.opening import brings_index
from typedrag.signatures.roles import signature_role

assert "two_sentences" in program_names() and "brevity" in metric_names()
assert source_named("kitchen").licence == "Apache-2.0"

class Two:
    def search(self, queries, k):
        return [[Passage("long", "Bread rises since yeast makes gas in the dough."), Passage("short", "Yeast.")]]

program = build_program("two_sentences", Two(), open_reranker("shortest"))
example = load_dataset("kitchen").split("all")[0]

Path("notes.txt").write_text("Bread needs yeast.\\n\\nCakes do not need it.\\n")
assert brings_index("lines:notes.txt") and check_retriever("lines:notes.txt") is None
[[passage]] = open_retriever("lines:notes.txt").search(["Does bread rise?"], 5)
assert (passage.id, passage.text) == ("1", "Bread needs yeast.")
replies = [{"citations": "[1, 2]", "answered": "true", "answer": "Yeast makes gas. The dough holds it."}] * 9
with dspy.context(lm=DummyLM(replies)):
    prediction = program(question=example.question)
assert [p.id for p in prediction.passages] == ["short", "long"]
assert build_metric("brevity")(example, prediction).score == 1.0

assert list_modules(program) == {
    "answer": ("answer.predict",), "answer-without-passages": ("answer_without_passages",)
}
target = find_target("answer")
student = target.student(program)
[predictor] = student.predictors()
predictor.signature = predictor.signature.with_instructions("Be brief.")
made = target.merge_into(program, student)
assert made.answer.predict.signature.instructions == "Be brief."
assert list_modules(made) == list_modules(program) and signature_role(made.answer.predict.signature) == "answerer"
optimizer = build_optimizer("styles", {"styles": ["Be kind.", "Be BETTER."]})
outcome = compile_module(request_for(Path("compile"), Engine()), optimizer)
assert outcome.best.answerers["cat"].signature.instructions.endswith("Be BETTER.")
assert outcome.best_candidate.score > outcome.base_candidate.score
cli(["datasets", "list"], standalone_mode=False)
print("fine")
"""


def test_a_package_is_used_like_ours_and_listed(tmp_path):
    source = shutil.copytree(ROOT / "examples/typedrag-example", tmp_path / "source")  # building writes beside it
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(source)], check=True, timeout=120)
    installed = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", USE], env=installed, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.endswith("fine\n") and "kitchen" in done.stdout, done.stderr


def declare(folder: Path, monkeypatch: pytest.MonkeyPatch, group: str, point: str) -> None:
    """Put a package's metadata, with one entry point, where Python looks."""
    info = folder / "stranger-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[typedrag.{group}]\n{point}\n")
    monkeypatch.syspath_prepend(folder)


def test_a_broken_package_is_named_and_harms_no_other(tmp_path, monkeypatch):
    declare(tmp_path, monkeypatch, "metrics", "broken = no_such_module:Broken")
    assert "broken" in metric_names() and metric_class("rouge")
    with pytest.raises(InputError, match=r"'stranger' declares 'broken'.*No module named 'no_such_module'"):
        metric_class("broken")
    with pytest.raises(InputError, match="no metric is called 'other'"):
        metric_class("other")


@pytest.mark.parametrize(
    ("group", "name", "look_up"),
    [
        ("metrics", "rouge", metric_names),
        ("rerankers", "list", lambda: check_reranker("unknown")),
        ("retrievers", "pyserini", lambda: check_retriever("unknown:a")),
    ],
)
def test_no_package_takes_a_name_of_ours(tmp_path, monkeypatch, group, name, look_up):
    declare(tmp_path, monkeypatch, group, f"{name} = os:sep")
    with pytest.raises(InputError, match="has that name already"):
        look_up()


class Shelf:
    """A retriever that takes settings of BM25."""

    def __init__(self, rest: str, *, k1: float = 0.9) -> None:
        self.rest, self.bm25 = rest, {"k1": k1, "b": 0.4}


class Plain:
    def __init__(self, rest: str) -> None: ...


def test_a_retriever_of_a_package_is_opened_with_what_its_spec_says(tmp_path, monkeypatch):
    declare(tmp_path, monkeypatch, "retrievers", f"shelf = {__name__}:Shelf\nplain = {__name__}:Plain")
    shelf = open_retriever("shelf:a:b?c=d", None, {"k1": 2.0})
    assert shelf.rest == "a:b?c=d" and shelf.bm25["k1"] == 2.0
    assert bm25_of_index("shelf:a") == {"k1": 0.9, "b": 0.4}
    with pytest.raises(InputError, match="shelf takes no settings of BM25"):
        open_retriever("shelf:a", None, {"b": 0.1})
    with pytest.raises(RetrievalError, match="plain:a has no settings of BM25"):
        bm25_of_index("plain:a")
    with pytest.raises(InputError, match="both --index index and --retriever shelf:a are given"):
        open_retriever("shelf:a", "index")
    with pytest.raises(InputError, match=r"'book:a' is no retriever.*shelf\[:…\]"):
        check_retriever("book:a")
    with pytest.raises(InputError, match="was compiled with retriever"):
        ProgramSource("rag", SimpleNamespace(retriever="shelf:a")).retriever  # noqa: B018
