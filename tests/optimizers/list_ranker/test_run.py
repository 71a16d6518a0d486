"""A training in its folder."""

import json
import re
import subprocess
import sys
import time

import pytest

from tests.mlflow_stores import new_store
from tests.optimizers.list_ranker.topics import new_ranker, topic_pools
from typedrag.core.errors import InputError, RetrievalError
from typedrag.datasets.richrag import write_pools
from typedrag.experiments.config import LMConfig, TrackingConfig
from typedrag.optimizers.list_ranker.config import PreferenceSettings, RankerTrainConfig
from typedrag.optimizers.list_ranker.run import TrainingProgress, train_ranker
from typedrag.retrieval import open_reranker

SMALL = {"list_length": 3, "pooling": "passage"}
FAST = {"epochs": 2, "learning_rate": 1e-2, "batch": 4, "at_once": 4}


@pytest.fixture
def data(tmp_path):
    write_pools(tmp_path / "pools.jsonl", topic_pools(16))
    return tmp_path / "pools.jsonl"


def config(data, **changes) -> RankerTrainConfig:
    given = {"data": data, "start": "scratch", "training": FAST, "tracking": TrackingConfig(enabled=False)}
    return RankerTrainConfig.model_validate({**given, **changes})


def apart(pools):
    """The same about other questions."""
    return [pool.model_copy(update={"question": f"more {pool.question}"}) for pool in pools]


def covering(pool, share):
    """The same pool, of whose passages nothing is known but what they cover."""
    known = {"label": None, "coverage": [share]}
    return pool.model_copy(update={"passages": [p.model_copy(update=known) for p in pool.passages]})


def test_weights_are_not_chosen_by_questions_that_are_trained_on(data, tmp_path):
    [pool, other] = topic_pools(2)
    asked_again = pool.model_copy(update={"id": "again", "question": f" {pool.question.upper()}?"})
    write_pools(tmp_path / "validation.jsonl", [*apart([other]), asked_again])
    wanted = config(data, validation=tmp_path / "validation.jsonl", start=str(tmp_path / "nothing"))
    said = f"1 of the 2 pools .* trained on, such as '{re.escape(asked_again.question)}'"
    with pytest.raises(InputError, match=said):
        train_ranker(wanted, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_training_is_a_reranker_and_a_run_of_mlflow(data, tmp_path, monkeypatch):
    import mlflow

    uri, validation = new_store(tmp_path / "store"), tmp_path / "held_out.jsonl"
    write_pools(validation, apart(topic_pools(4)))
    tracked = config(data, tracking=TrackingConfig(uri=uri), validation=validation)
    trained = train_ranker(tracked, tmp_path / "out")
    assert trained.folder == tmp_path / "out" / "ranker" and trained.examples == 16
    [pool] = topic_pools(1)
    passages = [p.passage for p in pool.passages]
    assert len(open_reranker(f"list:{trained.folder}").rerank(pool.question, passages, 3)) == 3
    [run] = mlflow.MlflowClient(uri).search_runs(["1"])
    assert run.info.status == "FINISHED" and run.data.params["training.epochs"] == "2.0"
    assert run.data.metrics["loss"] == pytest.approx(trained.outcome.losses[-1])
    assert "validation" in run.data.metrics
    again = train_ranker(tracked, tmp_path / "out", resume=True)
    assert again.outcome.losses == trained.outcome.losses
    assert len(mlflow.MlflowClient(uri).search_runs(["1"])) == 1
    told = json.loads((tmp_path / "out" / "outcome.json").read_text("utf-8"))
    assert told["steps"] == 8 and told["stopped"] is False


def test_a_killed_training_resumes_and_a_second_process_is_refused(data, tmp_path):
    long = {**FAST, "epochs": 40}
    settings = [word for name, value in long.items() for word in ("--set", f"{name}={value}")]
    training = f"-m typedrag research ranker train --data {data} --start scratch --no-tracking"
    command = [sys.executable, *training.split(), "--out", str(tmp_path / "out"), *settings]
    with subprocess.Popen(command) as process:
        while process.poll() is None and not list((tmp_path / "out").glob("checkpoints/*/trainer_state.json")):
            time.sleep(0.05)
        with pytest.raises(InputError, match="another process is writing"):
            train_ranker(config(data, training=long), tmp_path / "out", resume=True)
        process.kill()
    steps = []
    watching = TrainingProgress(step=lambda loss: steps.append(loss.step))
    resumed = train_ranker(config(data, training=long), tmp_path / "out", resume=True, watching=watching)
    assert 1 < steps[0] <= steps[-1] == len(resumed.outcome.losses) == 160
    steps.clear()
    assert train_ranker(config(data, training=long), tmp_path / "out", resume=True, watching=watching) == resumed
    assert not steps


def test_preferences_are_learned_from_what_a_generator_answers(data, tmp_path, server, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    server.reply = lambda call: {"citations": [1], "answer": first_words(call)} if "answer" in call.wanted else None
    write_pools(data, topic_pools(6))
    first = train_ranker(config(data), tmp_path / "sft")
    wanted = config(
        data,
        start=str(first.folder),
        stage="dpo",
        lm=LMConfig(spec="vllm:stub"),
        preferences=PreferenceSettings(samples=3, threshold=0.05),
        training={**FAST, "learning_rate": 1e-3},
    )
    notices = []
    trained = train_ranker(wanted, tmp_path / "dpo", watching=TrainingProgress(notice=notices.append))
    assert trained.examples > 0 and notices == [f"{trained.examples} pairs of lists from 6 pools"]
    assert trained.outcome.losses[0] == pytest.approx(0.693, abs=0.2)
    calls = len(server.calls)
    assert calls == trained.spent.usage.lm_calls > 6
    again = train_ranker(wanted, tmp_path / "dpo", resume=True)
    assert len(server.calls) == calls and again.examples == trained.examples
    assert again.spent.usage == trained.spent.usage  # what an earlier session paid
    new_ranker(seed=1).save(first.folder)
    with pytest.raises(InputError, match="another start's digest"):
        train_ranker(wanted, tmp_path / "dpo", resume=True)


def test_pairs_at_random_need_no_threshold(data, tmp_path):
    quick = {**FAST, "epochs": 0.25}
    first = train_ranker(config(data, ranker=SMALL, training=quick), tmp_path / "sft")
    given = {"start": str(first.folder), "stage": "dpo", "reward": "ncom", "training": quick}
    with pytest.raises(InputError, match="no two lists of a pool differ by"):
        train_ranker(config(data, **given, preferences={"threshold": 5}), tmp_path / "us3")
    drawn = train_ranker(config(data, **given, preferences={"threshold": 5, "pairs": "random"}), tmp_path / "random")
    assert drawn.examples > 0


def first_words(call) -> str:
    passages = json.loads(call.request["messages"][-1]["content"].split("]]\n")[1].split("\n\n[[")[0])
    return passages[0]["text"]


def test_what_cannot_be_trained_is_refused(data, tmp_path):
    with pytest.raises(RetrievalError, match=r"start '.*nothing' cannot be loaded"):
        train_ranker(config(data, start=str(tmp_path / "nothing")), tmp_path / "a")
    with pytest.raises(InputError, match="learned by a list ranker"):
        train_ranker(config(data, stage="dpo"), tmp_path / "b")
    with pytest.raises(InputError, match="has 1 layers, not 9"):
        train_ranker(config(data, training={**FAST, "frozen_layers": 9}), tmp_path / "c")


def test_pools_of_which_no_passage_covers_anything_are_left_out_and_counted(data, tmp_path):
    nothing = [covering(pool, 0.0) for pool in topic_pools(4)]
    write_pools(data, nothing)
    with pytest.raises(InputError, match="all silver lists are empty"):
        train_ranker(config(data), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    write_pools(data, [*nothing[:3], *topic_pools(4)[3:]])
    notices = []
    once = config(data, training={**FAST, "epochs": 1})
    trained = train_ranker(once, tmp_path / "out", watching=TrainingProgress(notice=notices.append))
    assert trained.examples == 1 and all(loss > 0 for loss in trained.outcome.losses)
    assert notices == ["3 of 4 pools are left out: none of their passages covers anything"]


def test_pools_that_a_generator_s_answers_cannot_be_compared_with_are_refused_before_it_is_asked(
    data, tmp_path, server, monkeypatch
):
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    first = train_ranker(config(data, training={**FAST, "epochs": 0.25}), tmp_path / "sft")
    write_pools(data, [covering(pool, 1.0) for pool in topic_pools(4)])
    wanted = config(data, start=str(first.folder), stage="dpo", lm=LMConfig(spec="vllm:stub"))
    with pytest.raises(InputError, match="has no answer to compare with"):
        train_ranker(wanted, tmp_path / "dpo")
    assert not server.calls
