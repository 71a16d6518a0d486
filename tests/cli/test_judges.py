"""`typedrag research judges`."""

import json
from functools import partial

import pytest

from tests.commands import invoke
from tests.experiments import labels
from tests.experiments import runs as made
from typedrag.core.records import Answer
from typedrag.experiments.results import QuestionResult, Run

STUB = ["--scorer", "vllm:stub", "--threads", "2"]


@pytest.fixture(autouse=True)
def _stub(server, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)


judges = partial(invoke, "research", "judges")


def write_run(folder, answers):
    questions = tuple(
        QuestionResult(i, f"Why {i}?", None, "", text and Answer(f"Why {i}?", text), "" if text else "no reply")
        for i, text in answers.items()
    )
    return made.write_run(Run(folder.name, folder, {}, questions, len(questions)), folder)


@pytest.fixture
def runs(tmp_path):
    return [
        write_run(tmp_path / "rag", {"1": "Yeast makes gas.", "2": "It rains.", "3": "Both say so."}),
        write_run(tmp_path / "lm", {"1": "It likes to.", "2": None, "3": "Both say so."}),
    ]


def test_runs_are_compared_and_what_is_known_is_not_asked_again(runs):
    done = judges("pairwise", *runs, *STUB)
    assert done.exit_code == 0, done.output
    written = json.loads((runs[0].parent / "pairwise.json").read_text())
    assert written["runs"] == ["rag", "lm"]
    assert [a["id"] for a in written["answers"]] == ["1", "3"]
    assert written["left_out"] == {"no answer": 1}
    assert "rag" in done.stdout and "won" in done.stdout
    assert "no answer" in done.stderr and "2 LM calls" in done.stderr
    again = judges("pairwise", *runs, *STUB, "--json")
    assert "0 LM calls" in again.stderr
    assert json.loads(again.stdout)["answers"] == written["answers"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = labels.write_labels(tmp_path_factory.mktemp("labels"))
    labels.write_antique(folder / "linkage" / "antique.json", questions=1, answers=2)
    return folder


def test_judges_are_checked_by_labels(data, tmp_path):
    page, store = tmp_path / "judges.md", tmp_path / "replies.sqlite"
    arguments = [
        *("check", "--path", f"nf-cats={data / 'nf_cats'}", *STUB),
        *("--limit", "2", "--out", page, "--replies", store),
    ]
    done = judges(*arguments)
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    written = page.read_text()
    assert f"typedrag research judges check --scorer vllm:stub --threads 2 --replies {store}" in written
    assert "| LM | vllm:stub | 2 | 0 |" in written
    assert "antique: no labels are given" in done.stderr
    again = judges(*arguments, "--json")
    [check] = json.loads(again.stdout)["checks"]
    assert check["dataset"] == "nf-cats" and check["fingerprint"]
    assert check["costs"][0]["spent"]["usage"]["lm_calls"] == 0
    assert check["agreements"][-1]["measures"]["accuracy"]["n"] == 2


def test_without_an_lm_the_page_goes_to_stdout(data):
    done = judges("check", "--data", data, "--scorer", "none", "--path", f"nf-cats={data / 'nf_cats'}", "--limit", "2")
    assert done.exit_code == 0, done.output
    for title in ("Answers: antique", "Types of sub-questions", "Coverage: sub-question-coverage", "Question types"):
        assert f"## {title}" in done.stdout
    assert "| linear, all questions | none | 4 | 0 | 1.000" in done.stdout
    assert "wiki-nfqa: no labels are given" in done.stderr


@pytest.mark.parametrize("path", ["antique", "sample=x", "=x"])
def test_labels_that_are_not_named_rightly_are_refused(path):
    done = judges("check", "--path", path, "--scorer", "none")
    assert done.exit_code == 2
    assert "DATASET=PATH" in done.stderr and "nf-cats" in done.stderr


def test_a_folder_without_any_labels_is_refused(tmp_path):
    done = judges("check", "--data", tmp_path, "--scorer", "none", "--out", tmp_path / "page.md")
    assert done.exit_code == 2
    [said] = done.stderr.splitlines()
    assert f"--data {tmp_path} holds no labels" in said
    for folder in ("linkage", "wiki_nfqa", "webgpt", "sub_questions", "nf_cats"):
        assert f"{folder}/" in said
    assert not (tmp_path / "page.md").exists()
