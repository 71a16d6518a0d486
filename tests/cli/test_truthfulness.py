"""Truthfulness goes wherever a metric goes: evaluating, comparing, reporting, sweeping, compiling, MLflow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from typedrag.cli.main import cli
from typedrag.experiments import as_scorer, read_run
from typedrag.metrics import build_metric

STUB = "vllm:stub"
ROWS = [{"id": f"q{n}", "question": f"Who made thing {n}?", "answers": ["Ann Lee"]} for n in range(40)]


@pytest.fixture
def typedrag(server, tmp_path, monkeypatch):
    server.reply = lambda call: {"answer": _answer(call)} if "answer" in call.wanted else _proposed(call)
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))

    def run(*arguments):
        done = CliRunner().invoke(cli, list(map(str, arguments)))
        assert done.exit_code == 0, done.output
        return done

    return run


def _answer(call) -> str:
    request = json.dumps(call.request)
    return "Ann Lee made it." if "TRUTH" in request or call.request.get("temperature") == 0.5 else "Bob Fox made it."


def _proposed(call):
    return {name: "Tell the TRUTH." if "instruction" in name else "" for name in call.wanted}


DATA = ["--dataset", "file", "--path", "rows.jsonl", "--lm", STUB]


def test_runs_are_evaluated_compared_and_reported_by_it(typedrag, tmp_path):
    for name, temperature in (("wrong", 0.25), ("right", 0.5)):
        typedrag(
            "evaluate", "--no-tracking", "--program", "direct_lm", *DATA, "--limit", 12, "--metric", "truthfulness",
            "--temperature", temperature, "--out", name,
        )  # fmt: skip
    [found] = {q.metrics["truthfulness"].measures["truthfulness"] for q in read_run(tmp_path / "wrong").questions}
    assert found == -1
    compared = json.loads(typedrag("compare", "wrong", "right", "--json").stdout)
    verdicts = {d["measure"]: d["verdict"] for d in compared["differences"] if d["stratum"] == "all"}
    assert verdicts["truthfulness/truthfulness"] == "better"
    assert verdicts["truthfulness/right"] == verdicts["truthfulness/wrong"] == ""  # one measure of a metric is tested
    assert verdicts["truthfulness/not_answered"] == ""
    typedrag("report", "wrong", "right", "--out", "report.html")
    assert "truthfulness/wrong" in Path("report.html").read_text()


def test_a_program_is_compiled_against_it(typedrag):
    done = typedrag(
        "compile", "--no-tracking", "--program", "direct_lm", *DATA, "--metric", "truthfulness",
        "--optimizer", "dspy:COPRO", "--optimizer-option", "breadth=2", "--optimizer-option", "depth=1", "--out", "out",
    )  # fmt: skip
    assert "verdict: better: +1.000" in done.stdout


def test_settings_are_swept_by_it(typedrag):
    config = {
        "program": {"program": "direct_lm"},
        "dataset": {"name": "file", "path": "rows.jsonl", "limit": 12},
        "lm": {"spec": STUB},
        "metrics": ["truthfulness"],
        "objectives": ["truthfulness/truthfulness", "truthfulness/wrong"],
        "knobs": {"lm.temperature": [0.25, 0.5]},
        "sampler": {"name": "grid"},
        "held_out": {"limit": 3},
        "tracking": {"enabled": False},
    }
    Path("sweep.yaml").write_text(yaml.safe_dump(config))
    best = json.loads(typedrag("sweep", "sweep.yaml", "--out", "sweep", "--json").stdout)
    assert best["values"] == {"truthfulness/truthfulness": 1, "truthfulness/wrong": 0}


def test_it_is_a_scorer_of_mlflow():
    scorer = as_scorer(build_metric("truthfulness"))
    row = {"inputs": {"question": "Who?"}, "expectations": {"expected_response": "Ann Lee"}}
    assert scorer(outputs="It was Ann Lee.", **row).value == 1
    wrong = scorer(outputs={"answer": "Bob Fox."}, **row)
    assert (wrong.value, wrong.metadata["wrong"]) == (0, "1.0") and "Ann Lee" in wrong.rationale
    assert scorer(outputs={"answer": "The collection does not say.", "answered": "nothing"}, **row).value == 0.5
