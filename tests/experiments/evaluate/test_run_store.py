from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.errors import InputError
from typedrag.experiments.evaluate.results import MetricResult
from typedrag.experiments.evaluate.run_store import FILE, PlannedQuestion, RunStore, read_run
from typedrag.lms.spending import Spending
from typedrag.question_types import QuestionType
from typedrag.records import Answer, Passage, Step, Usage

QUESTIONS = [PlannedQuestion(f"q{n}", f"Why {n}? ß😀", QuestionType.REASON, "sub") for n in range(4)]
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
RESULT = MetricResult(0.5, "because", {"mrr": 0.5}, {"rank": [1, "ß"]}, usage=Usage(2, 20, 4))
SPENT = Spending(Usage(2, 20, 4), dollars=0.25, unpriced=1)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "runs" / "one"


def test_what_is_put_in_comes_out(folder):
    notes = {"name": "the run", "git commit": "abc"}
    with RunStore(folder, QUESTIONS, SETTINGS, notes=notes) as store:
        store.add_answer("q2", ANSWER, "", SPENT)
        store.add_result("q2", "tiny", RESULT, SPENT)
        store.add_answer("q0", None, "could not", Spending(Usage(1, 1, 1)))
        store.note("mlflow run", "xyz")
        before = store.read()
    run = read_run(folder)
    assert run == before
    assert (run.name, run.path, run.planned) == ("the run", folder, 4)
    assert run.settings == {**SETTINGS, **notes, "mlflow run": "xyz"}
    assert [(q.id, q.question_type, q.subset) for q in run.questions] == [
        ("q0", QuestionType.REASON, "sub"),
        ("q2", QuestionType.REASON, "sub"),
    ]
    first, second = run.questions
    assert (first.answer, first.error, dict(first.metrics)) == (None, "could not", {})
    assert second.answer == ANSWER
    assert second.metrics == {"tiny": RESULT}
    assert run.spent == Spending(Usage(5, 41, 9), dollars=0.5, unpriced=2)
    assert run.values("tiny/mrr") == {"q2": 0.5}


@pytest.mark.parametrize("durable", [True, False])
def test_an_open_run_can_get_more_questions(folder, durable):
    with RunStore(folder, QUESTIONS[:1], SETTINGS, durable=durable) as store:
        store.add_answer("q0", ANSWER, "", SPENT)
        store.grow(QUESTIONS[:3])
        store.grow(QUESTIONS[:3])
        store.add_answer("q2", ANSWER, "", SPENT)
        assert store.read().planned == 3
    assert [q.id for q in read_run(folder).questions] == ["q0", "q2"]


def test_a_closed_store_is_a_single_file_that_can_be_read_where_nothing_can_be_written(folder, tmp_path):
    with RunStore(folder, QUESTIONS, SETTINGS) as store:
        store.add_answer("q2", ANSWER, "", SPENT)
    assert {f.name for f in folder.iterdir() if f.stat().st_size} == {FILE}
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(folder / FILE, copy)
    copy.chmod(0o500)
    assert read_run(copy).questions == read_run(folder).questions


def test_a_run_is_read_while_it_is_made(folder):
    with RunStore(folder, QUESTIONS, SETTINGS) as store:
        for count, question in enumerate(QUESTIONS):
            assert len(read_run(folder).questions) == count
            store.add_answer(question.id, ANSWER, "", SPENT)


def test_nothing_is_added_twice(folder):
    with RunStore(folder, QUESTIONS, SETTINGS) as store:
        store.add_answer("q1", ANSWER, "", SPENT)
        store.add_result("q1", "tiny", RESULT, SPENT)
        with pytest.raises(sqlite3.IntegrityError):
            store.add_answer("q1", ANSWER, "", SPENT)
        with pytest.raises(sqlite3.IntegrityError):
            store.add_result("q1", "tiny", RESULT, SPENT)
        store.add_answer("q2", ANSWER, "", SPENT)  # the store goes on
        assert len(store.read().questions) == 2


def test_threads_share_it(folder):
    questions = [PlannedQuestion(str(n), "Why?", None) for n in range(60)]
    with RunStore(folder, questions, SETTINGS) as store:
        threads = [
            threading.Thread(target=lambda part: [store.add_answer(q.id, ANSWER, "", SPENT) for q in part], args=[part])
            for part in (questions[::3], questions[1::3], questions[2::3])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [q.id for q in read_run(folder).questions] == [q.id for q in questions]


def test_a_process_that_is_killed_while_it_writes_loses_nothing_that_was_added(folder):
    script = textwrap.dedent(f"""
        from pathlib import Path
        from tests.experiments.evaluate.test_run_store import ANSWER, SETTINGS, SPENT
        from typedrag.experiments.evaluate.run_store import PlannedQuestion, RunStore
        questions = [PlannedQuestion(str(n), "Why?", None) for n in range(100_000)]
        store = RunStore(Path({str(folder)!r}), questions, SETTINGS)
        for question in questions:
            store.add_answer(question.id, ANSWER, "", SPENT)
            print(question.id, flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    seen = [process.stdout.readline() for _ in range(200)]
    process.send_signal(signal.SIGKILL)
    seen += process.stdout.readlines()
    process.wait()
    assert len(read_run(folder).questions) - len([line for line in seen if line.endswith("\n")]) in (0, 1)


# continuing


def test_a_run_is_continued_where_it_stood(folder):
    with RunStore(folder, QUESTIONS, SETTINGS, notes={"git commit": "abc"}) as store:
        store.add_answer("q2", ANSWER, "", SPENT)
    with RunStore(folder, QUESTIONS, SETTINGS, notes={"git commit": "def"}, resume=True) as store:
        assert [q.id for q in store.read().questions] == ["q2"]
        assert store.read().settings["git commit"] == "abc"


def test_one_that_is_not_there_is_begun(folder):
    with RunStore(folder, QUESTIONS, SETTINGS, resume=True) as store:
        assert store.read().planned == 4


def test_a_run_is_only_continued_if_that_is_wanted(folder):
    RunStore(folder, QUESTIONS, SETTINGS).close()
    with pytest.raises(InputError, match=r"holds a run\. Continue it with --resume"):
        RunStore(folder, QUESTIONS, SETTINGS)


def test_a_run_of_a_program_whose_name_had_hyphens_is_continued(folder):
    RunStore(folder, QUESTIONS, {**SETTINGS, "program": "coverage-retrieval"}).close()
    RunStore(folder, QUESTIONS, {**SETTINGS, "program": "coverage_retrieval"}, resume=True).close()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({**SETTINGS, "program": "typed_rag"}, r'program \("rag", now "typed_rag"\)'),
        ({**SETTINGS, "options": {"top_k": 3, "reason": {"combine": "pool"}}}, r"options.top_k \(5, now 3\)"),
        (
            {**SETTINGS, "options": {"top_k": 3, "reason": {"combine": "aggregate"}}},
            r'top_k \(5, now 3\) and options.reason.combine \("pool", now "aggregate"\)',
        ),
        ({**SETTINGS, "metric tiny": {"options": {"bonus": 1}}}, r"metric tiny.options.bonus \(null, now 1\)"),
        ({n: v for n, v in SETTINGS.items() if n != "metric tiny"}, r"metric tiny \(.*, now null\)"),
        ({**SETTINGS, "seed": 1}, r"seed \(null, now 1\)"),
    ],
)
def test_other_settings_are_refused_by_name(folder, settings, named):
    RunStore(folder, QUESTIONS, SETTINGS).close()
    before = read_run(folder)
    with pytest.raises(InputError, match=f"belongs to a run with another .*{named}"):
        RunStore(folder, QUESTIONS, settings, resume=True)
    assert read_run(folder) == before
    RunStore(folder, QUESTIONS, SETTINGS, resume=True).close()  # and it is not left locked


def test_metrics_and_questions_may_be_added(folder):
    with RunStore(folder, QUESTIONS[:2], SETTINGS) as store:
        store.add_answer("q1", ANSWER, "", SPENT)
    with RunStore(folder, QUESTIONS, {**SETTINGS, "metric more": {"options": {}}}, resume=True) as store:
        run = store.read()
    assert run.planned == 4
    assert run.settings["metric more"] == {"options": {}}
    with pytest.raises(InputError, match="another metric more"):
        RunStore(folder, QUESTIONS, {**SETTINGS, "metric more": {"options": {"x": 1}}}, resume=True)


@pytest.mark.parametrize(
    ("questions", "problem"),
    [
        (QUESTIONS[:2], r"another limit \(4 questions, now 2\)"),
        (QUESTIONS[::-1], "other questions"),
        ([PlannedQuestion("x", "Why?", None), *QUESTIONS[1:]], "other questions"),
    ],
)
def test_other_questions_are_refused(folder, questions, problem):
    RunStore(folder, QUESTIONS, SETTINGS).close()
    with pytest.raises(InputError, match=problem):
        RunStore(folder, questions, SETTINGS, resume=True)


def test_failures_can_be_forgotten(folder):
    failed = MetricResult(None, problem="unreadable")
    nothing = MetricResult(None, problem="no references", measurable=False)
    with RunStore(folder, QUESTIONS, SETTINGS) as store:
        store.add_answer("q0", None, "could not", SPENT)
        store.add_answer("q1", ANSWER, "", SPENT)
        for metric, result in (("tiny", failed), ("linkage", nothing), ("rouge", RESULT)):
            store.add_result("q1", metric, result, SPENT)
        assert store.forget_failures() == 2
        assert store.read().spent.usage.lm_calls == 5 * SPENT.usage.lm_calls
        assert store.forget_failures() == 0
        [question] = store.read().questions
        assert question.id == "q1"
        assert set(question.metrics) == {"linkage", "rouge"}
        store.add_answer("q0", ANSWER, "", SPENT)


def test_two_processes_cannot_write_at_once(folder):
    script = (
        "from pathlib import Path\n"
        "from tests.experiments.evaluate.test_run_store import QUESTIONS, SETTINGS\n"
        "from typedrag.experiments.evaluate.run_store import RunStore\n"
        f"RunStore(Path({str(folder)!r}), QUESTIONS, SETTINGS, resume=True)\n"
    )
    with RunStore(folder, QUESTIONS, SETTINGS):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "another process is writing" in done.stderr
    RunStore(folder, QUESTIONS, SETTINGS, resume=True).close()


# what is no run


@pytest.mark.parametrize("content", [b"no database, but a text that is long enough to be read as one" * 20, b"x", b""])
def test_what_is_no_run_is_not_read(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(InputError, match="is no run"):
        read_run(tmp_path)


def test_what_is_no_run_is_not_written_to(tmp_path):
    (tmp_path / FILE).write_bytes(b"no database, but a text that is long enough to be read as one" * 20)
    with pytest.raises(InputError, match="is no run"):
        RunStore(tmp_path, QUESTIONS, SETTINGS, resume=True)


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(InputError, match="holds no run"):
        read_run(tmp_path)


def test_a_newer_format_is_refused(folder):
    RunStore(folder, QUESTIONS, SETTINGS).close()
    database = sqlite3.connect(folder / FILE)
    database.execute("PRAGMA user_version = 2")
    database.close()
    for attempt in (lambda: read_run(folder), lambda: RunStore(folder, QUESTIONS, SETTINGS, resume=True)):
        with pytest.raises(InputError, match="format 2; this typedrag reads 1"):
            attempt()


def test_secrets_are_taken_out_of_all_texts(folder):
    secret = "sk-123456"
    with RunStore(folder, QUESTIONS, SETTINGS, redact=lambda text: text.replace(secret, "?")) as store:
        store.add_answer("q0", None, f"wrong key {secret}", SPENT)
        store.add_answer("q1", Answer("Why?", "So.", fallback=f"refused {secret}"), "", SPENT)
        result = MetricResult(None, secret, details={"said": secret}, problem=f"{secret}!")
        store.add_result("q1", "tiny", result, SPENT)
        texts = [f.read_bytes() for f in folder.iterdir()]
    assert all(secret.encode() not in text for text in (*texts, (folder / FILE).read_bytes()))
    assert read_run(folder).questions[0].error == "wrong key ?"


@given(
    st.dictionaries(st.text(), st.floats(allow_nan=False)),
    st.recursive(st.none() | st.integers(-(2**60), 2**60) | st.text(), lambda inner: st.lists(inner), max_leaves=5),
)
def test_any_measures_and_details_come_back(tmp_path_factory, measures, details):
    result = MetricResult(0.25, measures=measures, details={"all": details})
    with RunStore(tmp_path_factory.mktemp("run"), QUESTIONS, SETTINGS) as store:
        store.add_answer("q1", ANSWER, "", SPENT)
        store.add_result("q1", "tiny", result, Spending())
        assert store.read().questions[0].metrics["tiny"] == result


def test_reading_needs_neither_dspy_nor_mlflow(folder):
    RunStore(folder, QUESTIONS, SETTINGS).close()
    code = (
        "import sys; from pathlib import Path\n"
        "from typedrag.experiments import read_run\n"
        f"read_run(Path({str(folder)!r}))\n"
        "print(sorted({'dspy', 'mlflow', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert json.loads(done.stdout) == [], done.stderr
