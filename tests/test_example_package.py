"""The example package, really installed, and packages that are broken."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from typedrag.errors import InputError
from typedrag.metrics import metric_class, metric_names
from typedrag.retrieval import check_reranker

ROOT = Path(__file__).parents[1]
USE = """
import dspy
from dspy.utils import DummyLM
from typedrag.datasets import load_dataset, source_named
from typedrag.metrics import build_metric, metric_names
from typedrag.optimizers.compile.targets import modules_of, targets_for
from typedrag.programs import build_program, program_names
from typedrag.records import Passage
from typedrag.retrieval import open_reranker
from typedrag.signatures.roles import role_of

assert "two_sentences" in program_names() and "brevity" in metric_names()
assert source_named("kitchen").licence == "Apache-2.0"

class Two:
    def search(self, queries, k):
        return [[Passage("long", "Bread rises since yeast makes gas in the dough."), Passage("short", "Yeast.")]]

program = build_program("two_sentences", Two(), open_reranker("shortest"))
example = load_dataset("kitchen").split("all")[0]
replies = [{"citations": "[1, 2]", "answered": "true", "answer": "Yeast makes gas. The dough holds it."}] * 9
with dspy.context(lm=DummyLM(replies)):
    prediction = program(question=example.question)
assert [p.id for p in prediction.passages] == ["short", "long"]
assert build_metric("brevity")(example, prediction).score == 1.0

assert modules_of(program) == {
    "answer": ("answer.predict",), "answer-without-passages": ("answer_without_passages",)
}
[target] = targets_for("answer", program)
student = target.student(program)
[predictor] = student.predictors()
predictor.signature = predictor.signature.with_instructions("Be brief.")
made = target.put_back(program, student)
assert made.answer.predict.signature.instructions == "Be brief."
assert modules_of(made) == modules_of(program) and role_of(made.answer.predict.signature) == "answerer"
print("fine")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the package is installed."""
    folder = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(ROOT / "examples/typedrag-example", folder / "source")  # building writes beside it
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(folder / "site"), str(source)], check=True, timeout=120)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "site"), str(ROOT)])}


def test_a_package_is_used_like_ours(installed, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", USE], env=installed, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "fine", done.stderr


def test_the_command_line_lists_it(installed, tmp_path):
    listing = [sys.executable, "-m", "typedrag", "datasets", "list"]
    done = subprocess.run(listing, env=installed, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "kitchen" in done.stdout, done.stderr


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


def test_no_package_takes_a_name_of_ours(tmp_path, monkeypatch):
    declare(tmp_path, monkeypatch, "metrics", "rouge = os:sep")
    with pytest.raises(InputError, match=r"'stranger' declares 'rouge'.*typedrag has that name already"):
        metric_names()


def test_no_package_takes_a_reranker_of_ours(tmp_path, monkeypatch):
    declare(tmp_path, monkeypatch, "rerankers", "list = os:sep")
    with pytest.raises(InputError, match="typedrag has that name already"):
        check_reranker("unknown")
