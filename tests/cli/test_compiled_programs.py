"""`typedrag ask` and `typedrag evaluate` with compiled programs, on a stub of an LM server."""

import json

import pytest

from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from tests.programs.artifact.test_compiled import ABOUT, compiled, edit
from typedrag.programs import Options
from typedrag.programs.compiled import save_compiled

STUB = ["--lm", "vllm:stub"]
QUESTION = "How do vaccines protect the body against disease?"


@pytest.fixture
def folder(tmp_path):
    """A compiled rag that retrieves three passages."""
    save_compiled(compiled("rag", Options(top_k=3)), tmp_path / "c", ABOUT)
    return tmp_path / "c"


@pytest.fixture
def typedrag(folder, run, sample_index, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_INDEX", str(sample_index))
    return lambda *arguments: run(*arguments, *STUB)


def asked(done) -> dict:
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_compiled_program_is_asked_with_the_options_it_was_compiled_with(typedrag):
    answer = asked(typedrag("ask", QUESTION, "--program", "./c", "--json"))
    assert answer["program"] == "rag"
    assert len(answer["passages"]) == 3
    assert len(asked(typedrag("ask", QUESTION, "--program", "c", "--json", "-k", 2))["passages"]) == 2
    assert len(asked(typedrag("ask", QUESTION, "--program", "rag", "--json"))["passages"]) == 5


def test_a_file_of_answers_goes_on_with_the_same_compiled_program_alone(typedrag, server, tmp_path):
    (tmp_path / "q.txt").write_text(f"{QUESTION}\n")
    ask = ["ask", "--file", "q.txt", "--out", "a.jsonl"]
    server.reply = lambda call: (401, "no")
    assert typedrag(*ask, "--program", "./c").exit_code == 3
    server.reply = lambda call: None
    refused = typedrag(*ask, "--program", "rag", "-k", 3, "--resume")
    assert refused.exit_code == 2
    assert "a.jsonl.run belongs to a run with another compiled (" in refused.stderr
    assert typedrag(*ask, "--program", "./c", "--resume").exit_code == 0
    assert json.loads((tmp_path / "a.jsonl").read_text())["program"] == "rag"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--as-published"], "./c has the options that it was compiled with, not the published ones"),
        (["-o", "topk=3"], "there is no option 'topk'"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_a_line(typedrag, arguments, said):
    done = typedrag("ask", QUESTION, "--program", "./c", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


EVALUATE = ["evaluate", "--no-tracking", "--dataset", "sample", "--limit", 3, "--metric", "length"]


def test_a_run_goes_on_wherever_the_folder_lies_but_with_no_other_state(typedrag, folder, tmp_path):
    assert typedrag(*EVALUATE, "--program", "./c", "--out", "r").exit_code == 0
    folder.rename(tmp_path / "moved")
    edit(tmp_path / "moved", "program.json", about={"metric": "another"})
    assert typedrag(*EVALUATE, "--program", "./moved", "--out", "r", "--resume").exit_code == 0
    other = compiled("rag", Options(top_k=3))
    other.answer_without_passages.demos = [{"question": "Why?", "answer": "So."}]
    save_compiled(other, tmp_path / "moved")
    done = typedrag(*EVALUATE, "--program", "./moved", "--out", "r", "--resume")
    assert done.exit_code == 2
    assert "belongs to a run with another compiled" in done.stderr
    done = typedrag(*EVALUATE, "--program", "rag", "-o", "top_k=3", "--out", "r", "--resume")
    assert done.exit_code == 2
    assert "belongs to a run with another compiled" in done.stderr
