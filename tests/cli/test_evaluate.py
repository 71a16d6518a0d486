import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import yaml

from tests.commands import invoke
from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from tests.lm_server import lm_server
from typedrag.datasets import load_dataset
from typedrag.experiments import read_run

STUB = "vllm:stub"


@pytest.fixture
def evaluate(server, tmp_path, sample_index, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    monkeypatch.setenv("TYPEDRAG_INDEX", str(sample_index))
    monkeypatch.chdir(tmp_path)

    return partial(invoke, "evaluate", "--no-tracking")


BASIC = ["--program", "direct_lm", "--dataset", "sample", "--limit", 6, "--lm", STUB, "--scorer", STUB]


def test_a_run_is_made_by_flags_and_its_numbers_shown(evaluate, tmp_path):
    done = evaluate(*BASIC, "--metric", "tiny,length", "--out", "runs/a")
    assert done.exit_code == 0, done.stderr
    rows = {line.strip().split("  ")[0]: line.split()[-1] for line in done.stdout.splitlines() if line.strip()}
    assert (rows["questions"], rows["tiny"]) == ("6", "1.000")
    assert "fallbacks" not in done.stdout and "by type" not in done.stdout
    assert "length: not measurable" in done.stdout
    assert "a: 6 questions (12 LM calls, 1,320 tokens): runs/a" in done.stderr
    assert read_run(tmp_path / "runs" / "a").planned == 6


def test_options_of_programs_and_metrics_are_taken(evaluate, server, tmp_path):
    done = evaluate(
        "--program", "typed_rag", "--as-published", "-o", "top_k=3", "-o", "reason.combine=pool", "--dataset", "sample",
        "--limit", 6, "--metric", "tiny,retrieval", "--metric-option", "tiny.bonus=0.5", "--lm", STUB, "--scorer", STUB,
        "--max-tokens", 99, "--temperature", 0.25, "--seed", 4, "--split", "all", "--out", "a",
        "--reranker", "none", "-o", "type_classifier=linear",  # in the place of those of the hub
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    settings = read_run(tmp_path / "a").settings
    assert settings["options"]["top_k"] == 3
    assert settings["options"]["reason"] == {"combine": "pool", "search": "sub-query"}
    assert settings["options"]["debate"]["combine"] == "aggregate"
    assert settings["metric tiny"]["options"] == {"bonus": 0.5}
    assert settings["lm settings"] == {"temperature": 0.25, "max_tokens": 99}
    assert settings["seed"] == 4
    assert len(settings["index"]) == 64
    assert "1.500" in next(line for line in done.stdout.splitlines() if line.startswith("  tiny "))


def test_types_and_all_measures_are_shown_on_demand(evaluate, monkeypatch):
    sample = ("--program", "direct_lm", "--dataset", "sample", "--split", "all", "--lm", STUB, "--scorer", STUB)
    shown = [*sample, "--metric", "tiny", "--out", "a", "--by", "type"]
    done = evaluate(*shown, "--all-measures")
    assert done.exit_code == 0, done.stderr
    assert all(row in done.stdout for row in ("tiny/good", "fallbacks", "tiny: scored")) and "reason" not in done.stdout
    assert "a: no type has 5 questions or more" in done.stderr
    monkeypatch.setattr("typedrag.cli.evaluate.FEWEST", 4)
    overall, _, by_type = evaluate(*shown, "--resume").stdout.partition("a, by type")
    assert "tiny" in overall and "tiny/good" not in overall
    assert "reason" in by_type and "debate" in by_type


def test_one_file_makes_a_whole_table(evaluate, server, tmp_path):
    config = {
        "programs": [
            {"name": "direct", "program": "direct_lm"},
            {"name": "rag", "program": "rag"},
            {"name": "typed", "program": "typed_rag", "options": {"top_k": 2}},
        ],
        "dataset": {"name": "sample", "limit": 24},
        "lm": {"spec": STUB},
        "scorer": {"spec": STUB},
        "metrics": ["tiny", "retrieval"],
    }
    Path("table.yaml").write_text(yaml.safe_dump(config))
    done = evaluate("--config", "table.yaml", "--out", "table", "--limit", 6)
    assert done.exit_code == 0, done.output
    assert {f.name for f in Path("table").iterdir() if f.is_dir()} == {"direct", "rag", "typed"}
    assert Path("table/replies.sqlite").is_file()
    header = done.stdout.partition("all questions")[2].split()
    assert header[:3] == ["direct", "rag", "typed"]
    assert read_run(tmp_path / "table" / "rag").planned == 6

    again = evaluate("--config", "table.yaml", "--out", "other", "--limit", 6, "--only", "rag", "--only", "direct")
    assert again.exit_code == 0
    assert {f.name for f in Path("other").iterdir() if f.is_dir()} == {"direct", "rag"}
    refused = evaluate("--config", "table.yaml", "--out", "third", "--only", "rags")
    assert refused.exit_code == 2
    assert "Runs: direct, rag, typed" in refused.stderr


def test_answers_made_elsewhere_are_measured_like_our_own(evaluate, server, tmp_path):
    questions = [e.question for e in load_dataset("sample").examples]
    lines = [
        {"question": questions[0], "answer": "Because of the yeast.", "passages": ["Yeast makes gas."]},
        {"question": questions[1].upper(), "answer": "No."},
        {"question": questions[2], "answer": None},
        {"question": "Another?", "answer": "Yes."},
    ]
    Path("engine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    given = ["--answers", "engine.jsonl", "--dataset", "sample", "--split", "all", "--scorer", STUB]
    done = evaluate(*given, "--metric", "tiny,length,retrieval,steps", "--system", "engine", "--out", "runs", "--json")
    assert done.exit_code == 0, done.output
    assert (
        f"engine.jsonl answers 3 of {len(questions)} questions of split 'all'; the others are left out" in done.stderr
    )
    summary = json.loads(done.stdout)["overall"]
    assert (summary["questions"], summary["failed"], summary["metrics"]["tiny"]["n"]) == (3, 1, 2)
    assert [summary["metrics"][m]["not_measurable"] for m in ("retrieval", "steps")] == [1, 2]
    assert summary["cost"] == {}
    assert len(server.calls) == 2  # the judge's alone
    run = read_run(tmp_path / "runs" / "engine")
    assert (run.name, run.settings["program"], "lm" in run.settings) == ("engine", "engine", False)
    problems = {r.problem for q in run.questions for r in q.metrics.values() if not r.measurable}
    assert "the answer was made elsewhere, and does not tell how it was searched for" in problems

    ours = evaluate("--program", "rag", *given[2:], "--lm", STUB, "--metric", "tiny,length", "--out", "runs/rag")
    assert ours.exit_code == 0, ours.output
    compared = invoke("compare", "runs/rag", "runs/engine")
    assert compared.exit_code == 0, compared.output
    assert invoke("report", "runs/rag", "runs/engine", "--out", "page.html").exit_code == 0
    again = evaluate("--answers", "runs/rag", *given[2:], "--metric", "length", "--out", "last-year")
    assert again.exit_code == 0, again.output
    assert read_run(Path("last-year")).planned == len(questions)


def test_a_system_whose_name_has_a_hyphen_gets_another_metric(evaluate):
    line = {"question": load_dataset("sample").examples[0].question, "answer": "Because of the yeast."}
    Path("my-system.jsonl").write_text(json.dumps(line))
    given = ["--answers", "my-system.jsonl", "--dataset", "sample", "--split", "all", "--out", "a"]
    assert evaluate(*given, "--metric", "length").exit_code == 0
    done = evaluate(*given, "--metric", "length", "--metric", "defects", "--resume")
    assert done.exit_code == 0, done.output
    [question] = read_run(Path("a")).questions
    assert set(question.metrics) == {"length", "defects"}


def test_answers_of_our_own_ask_keep_their_steps(evaluate):
    Path("q.txt").write_text(load_dataset("sample").examples[0].question)
    asked = invoke("ask", "--file", "q.txt", "--lm", STUB, "--out", "answers.jsonl")
    assert asked.exit_code == 0, asked.output
    given = ["--answers", "answers.jsonl", "--dataset", "sample", "--split", "all"]
    done = evaluate(*given, "--metric", "retrieval,steps", "--out", "a", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["overall"]["metrics"]["steps"]["n"] == 1


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"question": "Why?", "answer": "So."}', '{"question": "why", "answer": "No."}'],
         "engine.jsonl, line 2 cannot be used: it answers the same question as engine.jsonl, line 1"),
        (['{"answer": "So."}'], "line 1 cannot be used: it has neither the question nor its id"),
        (['{"question": "Why?"}'], 'line 1 cannot be used: it has no answer ("answer": null says'),
        (['{"question": "Why?", "answer": 7}'], "line 1 cannot be used: answer: Input should be a valid string"),
        (['{"question": "Why?", "Answer": "So."}'], "Call it 'answer'"),
        (['{"question": "Why?", "answer": "So.", "citations": ["p"]}'], "it cites 'p', which is the id of none"),
        (["so"], "line 1 cannot be used: it is not JSON"),
        ([], "engine.jsonl holds no answer. Write one a line"),
        (['{"question": "Why?", "answer": "So."}'], "engine.jsonl answers no question of split 'all' of dataset"),
    ],
)  # fmt: skip
def test_bad_answers_are_named_by_their_line(evaluate, lines, said):
    Path("engine.jsonl").write_text("\n".join(lines))
    done = evaluate("--answers", "engine.jsonl", "--dataset", "sample", "--metric", "length", "--out", "a")
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("a").exists()


def test_a_cap_stops_with_a_line_that_says_so_and_how_to_go_on(evaluate, server):
    arguments = [*BASIC, "--metric", "tiny", "--threads", 1, "--out", "a"]
    stopped = evaluate(*arguments, "--max-lm-calls", 5)
    assert stopped.exit_code == 1
    assert (
        "a: stopped after 3 of 6 questions: 5 LM calls are made of the 5 allowed. Continue with --resume"
        in stopped.stderr
    )
    assert "questions" in stopped.stdout
    refused = evaluate(*arguments)
    assert refused.exit_code == 2
    assert "Continue it with --resume" in refused.stderr
    done = evaluate(*arguments, "--resume", "--max-tokens-spent", 100_000)
    assert done.exit_code == 0
    assert len(server.calls) == 12


def test_an_lm_that_is_gone_is_said_with_how_to_go_on(evaluate, server):
    server.reply = lambda call: (401, "wrong key") if len(server.calls) > 5 else None
    done = evaluate(*BASIC, "--metric", "tiny", "--threads", 1, "--out", "a")
    assert done.exit_code == 3
    assert "what was done is kept: continue with --resume" in done.stderr
    assert "Traceback" not in done.stderr
    server.reply = lambda call: None
    assert evaluate(*BASIC, "--metric", "tiny", "--out", "a", "--resume").exit_code == 0


def test_failures_are_retried_if_that_is_wanted(evaluate, server):
    replies = count()
    server.reply = lambda call: (400, "no") if next(replies) == 0 else None
    assert evaluate(*BASIC, "--metric", "tiny", "--out", "a").exit_code == 0
    done = evaluate(*BASIC, "--metric", "tiny", "--out", "a", "--resume", "--retry-failed", "--json")
    assert "1 failed answers and judgments are made again" in done.stderr
    assert json.loads(done.stdout)["overall"]["failed"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dataset", "sample", "--metric", "tiny"], "Name --program, --answers or --config"),
        (["--config", "absent.yaml", "--answers", "x.jsonl", "--program", "rag"], "Leave out either"),
        (["--dataset", "sample", "--metric", "tiny", "--system", "bing"], "Name them: --answers FILE"),
        (["--program", "rag", "--metric", "tiny"], "dataset is missing"),
        (["--program", "rag", "--dataset", "sample"], "metrics is missing"),
        ([*BASIC, "--metric", "tinny"], "no metric is called 'tinny'"),
        ([*BASIC, "--metric", "tiny", "--metric-option", "length.x=1"], "--metric-option is given for length"),
        ([*BASIC, "--metric", "tiny", "--metric-option", "x"], "'x' sets nothing"),
        ([*BASIC, "--metric", "tiny", "-o", "a=1", "-o", "a.b=1"], "a is a value already"),
        ([*BASIC, "--metric", "tiny", "-o", "top_k=many"], "option top_k cannot be 'many'"),
        ([*BASIC, "--metric", "tiny", "--retry-failed"], "Add --resume"),
        (["--dataset", "sample", "--metric", "tiny", "-o", "top_k=1"], "Name one: --program"),
        (["--config", "absent.yaml"], "absent.yaml cannot be read"),
    ],
)
def test_bad_input_is_one_clear_line(evaluate, server, arguments, said):
    done = evaluate(*arguments, "--out", "a")
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert server.calls == []


def test_a_column_that_is_not_read_is_refused_before_any_call_and_can_be_mapped(evaluate, server, tmp_path):
    Path("ev.csv").write_text("question,answer\nWhy does bread rise?,Yeast makes gas\nHow so?,By gas\n")
    Path("other.csv").write_text("question,gold\nWhy does bread rise?,Yeast makes gas\n")
    flags = ["--program", "direct_lm", "--dataset", "file", "--metric", "f1", "--lm", STUB]
    refused = evaluate(*flags, "--path", "ev.csv", "--out", "a")
    assert refused.exit_code == 2 and server.calls == []
    assert "its field 'answer' would not be read (its fields: 'question', 'answer'; those" in refused.stderr
    without = evaluate(*flags, "--path", "other.csv", "--out", "a")
    assert without.exit_code == 2 and [c for c in server.calls if "answer" in c.wanted] == []
    assert "'f1' can be measured on none of the 1 questions" in without.stderr
    mapped = evaluate(*flags, "--path", "ev.csv", "--field", "answers=answer", "--out", "a", "--json")
    assert mapped.exit_code == 0, mapped.stderr
    assert json.loads(mapped.stdout)["overall"]["metrics"]["f1"]["n"] == 2
    Path("e.yaml").write_text(yaml.safe_dump({"dataset": {"fields": {"answers": "gold"}}}))
    by_file = evaluate(*flags, "--path", "other.csv", "--config", "e.yaml", "--out", "b")
    assert by_file.exit_code == 0, by_file.stderr


STOPS = int(os.environ.get("TYPEDRAG_TEST_STOPS", "1"))
"""How often a stop is tried, each time at another moment: 100 beside other work, before a release."""


@pytest.mark.parametrize("moment", range(1, STOPS + 1))
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_keeps_what_was_done(tmp_path, number, status, moment):
    with lm_server(seconds=0.3) as server:
        command = [sys.executable, "-m", "tests.experiments.tiny", "evaluate", *map(str, BASIC), "--metric", "tiny"]
        command += ["--threads", "2", "--out", str(tmp_path / "a"), "--no-tracking"]
        environment = {**os.environ, "TYPEDRAG_API_BASE": server.api_base}
        root = Path(__file__).parents[2]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=root)
        deadline = time.monotonic() + 60
        while len(server.done) < 2 + moment % 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.037 * moment % 0.3)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == status, stderr
    assert "what was done is kept: continue with --resume" in stderr
    assert "Traceback" not in stderr
    kept = read_run(tmp_path / "a").questions
    assert 0 < len(kept) < 6
    assert len(server.done) == len(kept) + sum(len(q.metrics) for q in kept)  # what was under way ended and was kept
