"""The executor `ray`, on a real Ray of several processes."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.commands import invoke
from tests.experiments.executors.jobs import SPENT, Deadly, SlowWorker
from tests.lm_server import lm_server
from tests.ray_cluster import needs_ray, ray_cluster, wait_for
from typedrag.core.errors import CallFailed, InputError, RetrievalError, Unavailable
from typedrag.experiments import read_config, read_run, run_evaluation
from typedrag.experiments.ray_pool import RayPool, connect
from typedrag.lms.cost import PRICES, CostTracker, track_cost

pytestmark = needs_ray

QUESTIONS, CPUS, RECOVERY = 24, 4, 10.0
TYPEDRAG = [sys.executable, "-m", "typedrag"]


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster(CPUS) as started:
        yield started


@pytest.fixture
def values(tmp_path):
    """The values of an evaluation by an LM at a server."""
    rows = ({"id": f"q{n}", "question": f"Why is it so for the {n}. time?"} for n in range(QUESTIONS))
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def values_for(server, executor: str = "local", **changes: Any) -> dict[str, Any]:
        lm = {"spec": "vllm:stub", "api_base": server.api_base}
        return {
            "programs": [{"program": "direct_lm"}],
            "dataset": {"name": "file", "path": str(tmp_path / "questions.jsonl")},
            "metrics": ["relevance"],
            "lm": lm,
            "scorer": lm,
            "threads": 8,
            "calls_in_flight": 8,
            "executor": executor,
            "tracking": {"enabled": False},
            **changes,
        }

    return values_for


def evaluate(values: dict[str, Any], out: Path, **ways: Any):
    [evaluated] = run_evaluation(read_config(None, values), out, **ways)
    return evaluated


def timeless(text: str) -> str:
    """Without the seconds that things took."""
    return re.sub(r'("\w*seconds\w*": )[-+.e\d]+', r"\1 0", text)


def asked_again(server) -> int:
    """Calls that had been made before."""
    return sum(
        times - 1 for times in Counter(json.dumps(call.request, sort_keys=True) for call in server.calls).values()
    )


# the same as in one process


def test_one_worker_makes_the_same_run_as_this_process(cluster, server, values, tmp_path, sample_index):
    programs = [{"program": "rag", "name": "rag"}]
    config = {"programs": programs, "metrics": ["relevance", "defects"], "index": str(sample_index)}
    for name, ways in {"local": {}, "ray": {"executor": cluster.executor, "workers": 1}}.items():
        evaluate(values(server, **config, **ways), tmp_path / name)
    folders = [tmp_path / name / "rag" for name in ("local", "ray")]
    local, ray = (timeless((folder / "results.json").read_text()) for folder in folders)
    assert ray == local
    local, ray = (timeless(json.dumps(list(map(asdict, read_run(f).questions)), sort_keys=True)) for f in folders)
    assert ray == local


def test_a_ray_of_its_own_answers_a_file_alike_and_nothing_else_is_on_stdout(server, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    file = tmp_path / "questions.txt"
    file.write_text("".join(f"Why {n}?\n" for n in range(QUESTIONS)))
    lm = ["--lm", "vllm:stub", "--api-base", server.api_base, "--no-cache", "--program", "direct_lm"]
    local = invoke("ask", "--file", str(file), *lm)
    server.seconds = 0.3
    ask = [*TYPEDRAG, "ask", "--file", str(file), *lm, "--executor", "ray", "--workers", "1"]
    with subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
        wait_for(lambda: len(server.done) > QUESTIONS + 2)
        processes = psutil.Process(asking.pid).children(recursive=True)
        next(p for p in processes if p.name().startswith("ray::Worker")).kill()
        stdout, stderr = asking.communicate(timeout=240)
    answers, expected = ([json.loads(line) for line in timeless(text).splitlines()] for text in (stdout, local.stdout))
    spent = [[answer.pop("spent")["lm_calls"] for answer in each] for each in (answers, expected)]
    assert answers == expected
    assert 0 <= sum(spent[0]) - sum(spent[1]) <= 4  # replies that the lost worker had were paid for twice
    assert "a worker of Ray was lost" in stderr
    assert asking.returncode == 0
    assert not any(p.is_running() for p in processes)


# what is lost


def test_a_killed_worker_s_questions_are_answered_by_others_within_seconds_and_none_twice(cluster, values, tmp_path):
    killed: list[float] = []
    kept: list[float] = []

    def on_progress(progress):
        kept.append(time.monotonic())
        if progress.done >= QUESTIONS - 8 and not killed:  # so that little is left but what is under way
            cluster.workers()[0].kill()
            killed.append(time.monotonic())

    with lm_server(seconds=0.5) as server:
        config = values(server, cluster.executor, workers=CPUS)
        run = evaluate(config, tmp_path / "run", on_progress=on_progress).run
        assert len(run.questions) == QUESTIONS
        assert not [q for q in run.questions if q.error or q.metrics["relevance"].problem]
        assert kept[-1] - killed[0] < RECOVERY
        assert asked_again(server) <= 8 / CPUS  # those that the worker had in flight
        assert server.most_at_once <= 8 + 8 / CPUS  # the server does not see at once that the killed one went away
        assert run.spent.usage.lm_calls == 2 * QUESTIONS


def test_a_killed_run_goes_on_where_it_was(cluster, values, tmp_path):
    with lm_server(seconds=0.3) as server:
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps(values(server, cluster.executor, workers=2)))
        command = [*TYPEDRAG, "evaluate", "--config", str(config), "--out", str(tmp_path / "run")]
        killed = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for(lambda: server.done and sum(bool(q.metrics) for q in read_run(tmp_path / "run").questions) > 3)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        wait_for(lambda: not cluster.workers())  # they end with it
        held = read_run(tmp_path / "run")
        assert 3 < len([q for q in held.questions if q.metrics]) < QUESTIONS
        subprocess.run([*command, "--resume"], check=True, capture_output=True, timeout=240)
        run = read_run(tmp_path / "run")
        assert len([q for q in run.questions if q.metrics["relevance"].score is not None]) == QUESTIONS
        answers = {q.id: q.answer for q in run.questions}
        assert all(answers[q.id] == q.answer for q in held.questions)
        assert asked_again(server) <= 8  # those in flight


def test_what_a_lost_worker_has_spent_counts_and_what_kills_every_worker_has_failed(cluster, tmp_path):
    with (
        connect(cluster.executor, 1, threads=1, calls=1) as workers,
        closing(RayPool(Deadly(), workers, threads=1, calls=1)) as pool,
        track_cost(CostTracker()) as account,
    ):
        assert pool.call("die_once", tmp_path / "died") == "alive"
        assert account.spent == SPENT + SPENT
        with pytest.raises(CallFailed, match="2 workers have died over it"):
            pool.call("die", attempts=2)


def test_a_worker_that_starts_slowly_again_is_waited_for(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("typedrag.experiments.ray_pool.Worker", SlowWorker)
    with (
        connect(cluster.executor, 1, threads=1, calls=1) as workers,
        closing(RayPool(Deadly(), workers, threads=1, calls=1)) as pool,
    ):
        assert pool.call("die_once", tmp_path / "died") == "alive"


# limits over all workers


def test_a_pause_that_one_worker_is_asked_for_is_kept_by_all(cluster, values, tmp_path):
    began: list[float] = []

    def reply(call):
        began.append(time.monotonic())
        return (429, "slow down") if len(began) == 8 else None

    with lm_server(seconds=0.2, reply=reply, retry_after="2") as server:
        config = values(server, cluster.executor, workers=2, metrics=["defects"], threads=4, calls_in_flight=4)
        run = evaluate(config, tmp_path / "run").run
        assert len([q for q in run.questions if q.answer]) == QUESTIONS
        refused = began[7]
        # the other three may have been on their way
        assert len([b for b in began[8:] if b < refused + 1.9]) <= 3
        assert began[-1] > refused + 2
        assert server.most_at_once <= 4


def test_workers_count_by_the_prices_of_where_the_run_was_begun(cluster, server, values, tmp_path, monkeypatch):
    (tmp_path / "prices.yaml").write_text("vllm:stub: {prompt: 10, completion: 100}")
    monkeypatch.setenv(PRICES, str(tmp_path / "prices.yaml"))
    evaluated = evaluate(values(server, cluster.executor, workers=1, metrics=["defects"]), tmp_path / "run")
    assert (evaluated.run.spent.cost, evaluated.run.spent.unpriced) == (pytest.approx(QUESTIONS * 0.002), 0)


# what is refused


def test_a_cluster_that_does_not_answer_is_named_at_once(values, server, tmp_path):
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"no Ray cluster answers at 127.0.0.1:9: .*ray start --head"):
        evaluate(values(server, "ray:127.0.0.1:9"), tmp_path / "run")
    assert time.monotonic() < began + 10
    assert not (tmp_path / "run").exists()


def test_more_workers_than_cpus_are_refused(cluster, values, server, tmp_path):
    with pytest.raises(Unavailable, match=f"the Ray cluster has {CPUS} CPUs for 5 workers. Name fewer --workers"):
        evaluate(values(server, cluster.executor, workers=5), tmp_path / "run")
    with pytest.raises(InputError, match="9 workers cannot share 8 questions and 8 LM calls at once"):
        evaluate(values(server, cluster.executor, workers=9), tmp_path / "run")
    assert not server.calls


def test_what_a_worker_cannot_use_ends_the_run_and_is_named(cluster, values, server, tmp_path, sample_index):
    """Here a folder that another cluster's machine would not have: the index is gone once the run has begun."""
    index = shutil.copytree(sample_index, tmp_path / "index")

    def on_progress(progress):
        shutil.rmtree(index, ignore_errors=True)

    config = values(server, cluster.executor, workers=1, programs=[{"program": "rag"}], index=str(index))
    with pytest.raises(RetrievalError, match="index"):
        evaluate(config, tmp_path / "run", on_progress=on_progress)
    assert not server.calls


def test_java_lives_on_after_a_cluster_was_left(cluster, sample_index):
    # each batch lets Java stop its threads, which it does by a fault that it handles itself
    code = f"""
from pathlib import Path
from typedrag import BM25Retriever
from typedrag.experiments.ray_pool import connect
retriever = BM25Retriever(Path({str(sample_index)!r}))
queries = ["why does bread rise", "how do vaccines work"] * 500
search = lambda times: [retriever.search(queries, 5) for _ in range(times)]
search(5)
with connect({cluster.executor!r}, 1, threads=1, calls=1):
    search(5)
search(20)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)
