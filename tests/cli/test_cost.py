"""`typedrag research cost`, over runs that were made."""

import json

import pytest

from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from typedrag.core.records import Usage
from typedrag.lms.cost import LEDGER, Spending
from typedrag.optimizers.compile.prompt_optimizers.limiter import Ledger

STUB = "vllm:stub"


@pytest.fixture
def runs(run, tmp_path):
    """An evaluation of four questions, and a file of two."""
    evaluated = run(
        "evaluate", "--no-tracking", "--program", "direct_lm", "--dataset", "sample", "--limit", 4, "--lm", STUB,
        "--scorer", STUB, "--metric", "tiny", "--out", "runs/direct",
    )  # fmt: skip
    assert evaluated.exit_code == 0, evaluated.output
    (tmp_path / "questions.txt").write_text("Why does bread rise?\nWhy does bread fall?\n")
    ask = ["ask", "--program", "direct_lm", "--lm", STUB, "--no-cache", "--file", "questions.txt"]
    asked = run(*ask, "--out", "runs/answers.jsonl")
    assert asked.exit_code == 0, asked.output
    return tmp_path / "runs"


def cells(line):
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_what_runs_have_spent_is_added_up(run, runs):
    done = run("research", "cost", "runs")
    assert done.exit_code == 0, done.output
    lines = [row for line in done.stdout.splitlines() if (row := cells(line)) and row[0][0].isalpha()]
    assert lines == [
        ["run", "questions", "LM calls", "prompt tokens", "completion tokens", "dollars", "unpriced calls"],
        ["runs/answers.jsonl", "2", "2", "200", "20", "—", "2"],
        ["runs/direct", "4", "8", "800", "80", "—", "8"],
        ["answers", "4", "400", "40", "—", "4"],
        ["judgments", "4", "400", "40", "—", "4"],
        ["all", "6", "10", "1,000", "100", "—", "10"],
    ]


def test_what_has_no_price_can_be_given_one_afterwards(run, runs):
    told = json.loads(run("research", "cost", "runs", "--price", "10,100", "--json").stdout)
    assert told["total"]["cost"] == pytest.approx(0.02)
    assert told["total"]["unpriced"] == 0
    assert told["runs"][1]["roles"]["judgments"]["cost"] == pytest.approx(0.008)
    assert "$0.02" in run("research", "cost", "runs", "--price", "10,100").stdout


def test_a_price_does_not_change_what_had_one(run, tmp_path):
    """Call by call: a teacher with a price, and a student of one's own without."""
    folder = tmp_path / "compiled" / "compile" / "program"
    folder.mkdir(parents=True)
    ledger = Ledger(folder / LEDGER)
    ledger.add(Spending(Usage(1, 1_000_000, 0), dollars=7.0))
    ledger.add(Spending(Usage(1, 1000, 1000), unpriced=1))
    [one] = json.loads(run("research", "cost", tmp_path / "compiled", "--json").stdout)["runs"]
    assert (one["questions"], one["cost"], one["unpriced"]) == (None, 7.0, 1)
    [one] = json.loads(run("research", "cost", tmp_path / "compiled", "--price", "1,1", "--json").stdout)["runs"]
    assert (one["cost"], one["unpriced"], list(one["roles"])) == (pytest.approx(7.002), 0, ["candidates"])


@pytest.mark.parametrize(
    "fields",
    [
        {"usage": None},
        {"usage": "as a spice"},
        {"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}},
        {"spent": 12.5},
        {"spent": {"dollars": 1.0}},
    ],
)
def test_a_field_of_the_same_name_in_another_file_is_no_spending(run, tmp_path, fields):
    (tmp_path / "other.jsonl").write_text(json.dumps({"question": "Why?", **fields}) + "\n")
    done = run("research", "cost", tmp_path)
    assert done.exit_code == 2, done.exception
    assert "holds no run that tells what was spent" in done.stderr
    spent = Spending(Usage(1, 1000, 1000), dollars=7.0).to_dict()
    (tmp_path / "answers.jsonl").write_text(json.dumps({"question": "Why?", "spent": spent}) + "\n")
    [one] = json.loads(run("research", "cost", tmp_path, "--json").stdout)["runs"]
    assert (one["questions"], one["cost"]) == (1, 7.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["questions"], "questions holds no run that tells what was spent"),
        (["nowhere"], "nowhere holds no run that tells what was spent"),
        (["questions/of.jsonl"], "questions/of.jsonl holds no run"),
        (["questions", "--price", "1"], "--price '1' is no price. Write --price PROMPT,COMPLETION"),
        (["questions", "--price", "-1,2"], "--price '-1,2' is no price"),
    ],
)
def test_bad_input_is_one_clear_line(run, tmp_path, arguments, said):
    (tmp_path / "questions").mkdir()
    (tmp_path / "questions" / "of.jsonl").write_text('{"question": "Why?"}\n')
    done = run("research", "cost", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {said}")
