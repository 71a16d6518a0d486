"""A command that is killed at any moment is continued: nothing is lost, and only what was in flight is paid for twice.

Set TYPEDRAG_KILLS for more moments than two.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from tests.lm_server import Call, LMServer, lm_server, words
from typedrag.experiments.results import read_run

KILLS = int(os.environ.get("TYPEDRAG_KILLS", "2"))
ROOT = Path(__file__).parents[2]
THREADS, SECONDS, QUESTIONS = 3, 0.03, 40
SETTINGS: dict[str, dict[str, Any]] = {
    "evaluate": {"programs": [{"program": "direct_lm"}], "metrics": ["tiny", "length"]},
    "compile": {
        "program": {"program": "direct_lm"},
        "metrics": ["length"],
        "optimizer": {"name": "dspy:COPRO", "options": {"breadth": 2, "depth": 1}},
    },
    "sweep": {
        "program": {"program": "direct_lm"},
        "knobs": {"lm.temperature": {"low": 0.0, "high": 1.0}, "lm.top_p": [0.5, 0.9, 1.0]},
        "objectives": ["length/score"],
        "sampler": {"name": "tpe", "startup": 4},
        "pruning": {"enabled": True, "first": 2},
        "stop": {"trials": 8},
        "metrics": ["length"],
        "heartbeat": 0.3,
    },
}


@pytest.mark.parametrize("command", ["ask", *SETTINGS])
def test_a_command_that_is_killed_is_continued(command, tmp_path):
    with lm_server(reply=_reply, seconds=SECONDS) as server:
        arguments = _arguments(command, server, tmp_path)
        whole, undisturbed = _run(arguments, tmp_path / "whole"), _calls(server)
        assert len(undisturbed) > KILLS
        del server.calls[:]
        for moment in sorted(random.Random(command).sample(range(1, len(undisturbed)), KILLS)):
            _kill_after(arguments, tmp_path / "killed", server, moment)
        killed, calls = _run(arguments, tmp_path / "killed"), _calls(server)
    assert _result(command, tmp_path / "killed", killed) == _result(command, tmp_path / "whole", whole)
    assert undisturbed - calls == Counter()
    again = calls - undisturbed
    assert again.keys() <= undisturbed.keys()
    assert again.total() <= KILLS * THREADS


def _arguments(command: str, server: LMServer, folder: Path) -> list[str]:
    """The command line, which begins a run or continues it; its metrics are known there."""
    rows = [{"id": f"q{n}", "question": f"Why does thing {n} happen?"} for n in range(QUESTIONS)]
    questions, file = folder / "questions.jsonl", folder / "config.yaml"
    questions.write_text("\n".join(map(json.dumps, rows)))
    start = [sys.executable, "-m", "tests.experiments.tiny", command]
    lm = {"spec": "vllm:stub", "api_base": server.api_base}
    if command == "ask":
        flags = ["--lm", lm["spec"], "--api-base", lm["api_base"], "--program", "direct_lm", "--no-cache"]
        return [*start, "--file", str(questions), *flags, "--threads", str(THREADS), "--out", "out", "--resume"]
    shared = {"lm": lm, "scorer": lm, "dataset": {"name": "file", "path": str(questions)}, "threads": THREADS}
    file.write_text(yaml.safe_dump({**shared, "tracking": {"enabled": False}, **SETTINGS[command]}))
    if command == "sweep":
        return [*start, str(file), "--out", "out"]
    return [*start, "--config", str(file), "--out", "out", "--resume"]


def _reply(call: Call) -> dict[str, Any] | None:
    """Answers whose length depends on the prompt and the settings, and instructions that are proposed."""
    if "answer" in call.wanted:
        longer = "LENGTH" in call.request["messages"][0]["content"]
        return {"answer": words(20 + 20 * longer + round(100 * call.request["temperature"]))}
    if any("instruction" in name for name in call.wanted):
        return {name: "Answer at LENGTH." if "instruction" in name else "" for name in call.wanted}
    return None


def _start(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TYPEDRAG_CACHE": str(folder / "cache")}
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def _run(arguments: list[str], folder: Path) -> str:
    """What it prints."""
    process = _start(arguments, folder)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def _kill_after(arguments: list[str], folder: Path, server: LMServer, calls: int) -> None:
    """Kill it when so many different calls have been begun, those of runs before it too."""
    process, deadline = _start(arguments, folder), time.monotonic() + 60
    while len(_calls(server)) < calls and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    _, err = process.communicate()
    assert process.returncode < 0, err
    time.sleep(2 * SECONDS)  # what was sent before still arrives


def _calls(server: LMServer) -> Counter[str]:
    return Counter(json.dumps(call.request, sort_keys=True) for call in list(server.calls))


def _result(command: str, folder: Path, out: str) -> Any:
    if command == "ask":
        rows = map(json.loads, (folder / "out").read_text().splitlines())
        return [(row["id"], row["answer"], row["usage"]) for row in rows]
    if command == "evaluate":
        questions = read_run(folder / "out").questions
        return [(q.id, q.answer and q.answer.answer, {n: m.measures for n, m in q.metrics.items()}) for q in questions]
    if command == "sweep":
        study = optuna.load_study(study_name=None, storage=f"sqlite:///{folder / 'out' / 'study.sqlite'}")
        trials = [t for t in study.trials if t.state.name != "FAIL"]
        return sorted((t.state.name, list(t.params.items()), t.values) for t in trials)
    return [line for line in out.splitlines() if line.startswith("verdict")]
