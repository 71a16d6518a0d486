import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import invoke
from tests.experiments.runs import question, run, write_run
from typedrag.core.records import Passage

HOSTILE = "\x1b[31mIt is the yeast."


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Runs over 12 questions; rag and typed_rag give the same answer to one of them, and typed_rag fails at another."""
    made = []
    for name in ("rag", "typed_rag"):
        questions = []
        for i in range(12):
            text = "Both say so." if i == 0 else f"{HOSTILE} ({len(name) * 100 + i})"
            one = question(i, {"mrr": 0.5 + i / 100}, answer=None if name == "typed_rag" and i == 1 else text)
            if one.answer:
                object.__setattr__(one.answer, "passages", (Passage("p1", "It makes gas.", "Yeast"),))
            questions.append(one)
        made.append(str(write_run(run(name, *questions), tmp_path / name)))
    return made


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_answers_are_graded_blind_and_the_grades_are_those_that_compare_reads(folders, tmp_path):
    file = tmp_path / "grades.jsonl"
    done = invoke("label", *folders, "--out", file, input="x" + "4321" * 6)
    assert done.exit_code == 0, done.output
    assert "rag" not in done.stdout.replace(str(tmp_path), "")  # nothing tells whose an answer is
    assert "\x1b[31m" not in done.stdout
    assert "22 of 22 answers graded" in done.stderr
    assert [line["grade"] for line in lines(file)].count(1) >= 6  # a failed answer has the worst grade, unread
    assert len(lines(file)) == 23 and {line["scale"] for line in lines(file)} == {"antique"}
    compared = invoke("compare", *folders, "--labels", file, "--measure", "linkage/mrr")
    assert compared.exit_code == 0, compared.output
    assert max(map(len, compared.stdout.splitlines())) <= 120
    assert "typed_rag against rag, by a person's grades" in compared.stdout
    [alone] = (line for line in compared.stdout.splitlines() if "grades alone" in line)
    assert alone.split()[2] == "12"
    [graded, _] = json.loads(
        invoke("compare", *folders, "--labels", file, "--measure", "linkage/mrr", "--json").stdout
    )["graded"]
    assert graded["graded"] == 12 and graded["judge"] == ""


def test_a_grade_is_taken_back_passages_are_shown_and_q_stops(folders, tmp_path):
    file = tmp_path / "grades.jsonl"
    done = invoke("label", *folders, "--out", file, "--scale", "right", input="rpwuuuq")
    assert "[1] Yeast\nIt makes gas." in done.stdout
    assert [line["grade"] for line in lines(file)] == [1, 0, None, None]
    assert lines(file)[0]["question"] == lines(file)[3]["question"]
    assert "0 of 22 answers graded" in done.stderr
    again = invoke("label", *folders, "--out", file, input="rq")  # the scale is that of the file
    assert "1 of 22 answers graded" in again.stderr and lines(file)[-1]["scale"] == "right"
    refused = invoke("label", *folders, "--out", file, "--scale", "antique")
    assert refused.exit_code == 2 and "Keep each scale in a file of its own" in refused.stderr


def test_without_a_terminal_nothing_is_graded(folders, tmp_path):
    command = [sys.executable, "-m", "typedrag", "label", *folders, "--out", str(tmp_path / "grades.jsonl")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True)
    assert done.returncode == 2 and "there is no terminal. Run it in one" in done.stderr


def test_grades_given_before_a_kill_are_kept(folders, tmp_path):
    """At a real terminal: keys are read one by one, and what was pressed before the kill counts."""
    file = tmp_path / "grades.jsonl"
    terminal, child = os.openpty()
    command = [sys.executable, "-m", "typedrag", "label", *folders, "--out", str(file)]
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, start_new_session=True)

    shown, end = "", time.monotonic() + 60
    try:
        for count, key in enumerate("4231q"):
            while shown.count("q  stop") <= count:
                assert time.monotonic() < end, shown
                if select.select([terminal], [], [], 0.2)[0]:
                    shown += os.read(terminal, 65536).decode(errors="replace")
            time.sleep(0.5)  # what is typed before the terminal is read key by key is dropped
            if key != "q":
                os.write(terminal, key.encode())
        assert "4 of 22 answers graded" in shown
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    finally:
        process.kill()
        os.close(child)
        os.close(terminal)
    assert [line["grade"] for line in lines(file)][-1] == 1
    graded = len(lines(file))
    assert "5 of 22 answers graded" in invoke("label", *folders, "--out", file, input="4q").stderr
    assert len(lines(file)) >= graded + 1
