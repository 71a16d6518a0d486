import json
import os
import subprocess
import sys

from tests.experiments.runs import write_run
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer, Passage, Step, Usage
from typedrag.experiments.results import MetricResult, QuestionResult, Run, read_run

SETTINGS = {"program": "rag", "options": {"top_k": 5, "reason": {"combine": "pool"}}, "metric tiny": {"options": {}}}
ANSWER = Answer(
    "Why 1?",
    "So. ß😀",
    QuestionType.REASON,
    "rag",
    (Passage("p", "text", "title", 1.5),),
    ("p",),
    (Step("answer", "in", "out", ("p",), ("dropped",), 0.5, Usage(1, 2, 3), (Step("inner"),)),),
    "fell back",
    1.25,
    Usage(1, 2, 3),
)


def run(folder, *questions: QuestionResult) -> Run:
    return Run("the run", folder, {"name": "the run", **SETTINGS}, questions, len(questions))


def test_a_run_that_was_written_is_read(tmp_path):
    metrics = {
        "tiny": MetricResult(0.5, "because", {"mrr": 0.5}, {"rank": [1, "ß"]}),
        "linkage": MetricResult(None, problem="unreadable"),
        "rouge": MetricResult(None, problem="no references", measurable=False),
    }
    made = run(
        tmp_path / "run",
        QuestionResult("q0", "Why 0?", None, "", None, "could not"),
        QuestionResult("q2", "Why 2? ß😀", QuestionType.REASON, "sub", ANSWER, "", metrics),
    )
    read = read_run(write_run(made, tmp_path / "run"))
    assert read == made
    assert read.values("tiny/mrr") == {"q0": 0.0, "q2": 0.5}  # a failed answer is a wrong one
    assert read.values("tiny/mrr", answered=True) == {"q2": 0.5}


def test_reading_needs_neither_dspy_nor_mlflow(tmp_path):
    write_run(run(tmp_path / "run"), tmp_path / "run")
    code = (
        "import sys; from pathlib import Path\n"
        "from typedrag.experiments import read_run\n"
        f"read_run(Path({str(tmp_path / 'run')!r}))\n"
        "print(sorted({'dspy', 'mlflow', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert json.loads(done.stdout) == [], done.stderr
