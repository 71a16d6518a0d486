import json
from functools import partial

import pytest

from tests.commands import invoke
from tests.datasets.files import write_jsonl
from tests.optimizers.list_ranker.topics import topic_pools
from typedrag.core.records import Passage
from typedrag.datasets.richrag import read_pools, write_pools
from typedrag.retrieval import build_index, read_passages

FAST = "--set epochs=3 --set learning_rate=1e-2 --set batch=8 --set at_once=4 --no-tracking".split()


ranker = partial(invoke, "research", "ranker")


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pools(tmp_path / "train.jsonl", topic_pools(64))
    write_pools(tmp_path / "test.jsonl", topic_pools(12, seed=1))


def test_train_and_evaluate(data):
    done = ranker("train", "--data", "train.jsonl", "--start", "scratch", "--out", "out", *FAST)
    assert done.exit_code == 0, done.output
    assert done.stdout == "list:out/ranker\n"
    shown = ranker("evaluate", "list:out/ranker", "--data", "test.jsonl", "--against", "none")
    assert shown.exit_code == 0, shown.output
    assert (
        "rankers on 12 pools" in shown.stdout and "nDCG@10" in shown.stdout and "list:out/ranker less" in shown.stdout
    )
    told = json.loads(
        ranker("evaluate", "list:out/ranker", "--data", "test.jsonl", "--against", "none", "--json").stdout
    )
    trained, order = told["scores"]
    assert trained["means"]["ndcg"]["value"] > order["means"]["ndcg"]["value"]
    assert ranker("train", "--data", "train.jsonl", "--start", "scratch", "--out", "out", *FAST).exit_code == 2
    again = ranker("train", "--data", "train.jsonl", "--start", "scratch", "--out", "out", "--resume", "--json", *FAST)
    assert json.loads(again.stdout)["steps"] == 24


def test_settings_come_from_a_file_too_and_unknown_ones_are_refused(data, tmp_path):
    (tmp_path / "c.yaml").write_text("data: train.jsonl\nstart: scratch\ntraining: {epochs: 1, batch: 32}\n", "utf-8")
    done = ranker("train", "--config", "c.yaml", "--out", "out", "--set", "at_once=8", "--no-tracking", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["steps"] == 2, done.output
    for flag, setting, problem in (
        ("--set", "epoch=2", "training.epoch is no setting. Did you mean 'epochs'?"),
        ("--ranker", "depth=2", "ranker.depth is no setting"),
        ("--pairs", "samples=0", "samples is refused"),
    ):
        refused = ranker("train", "--config", "c.yaml", "--out", "other", flag, setting)
        assert refused.exit_code == 2 and problem in refused.stderr, refused.output


def test_pools_of_a_dataset(tmp_path, shared_data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    passages = read_passages([shared_data / "corpora" / "antique.jsonl.gz"])
    some = [p for n, p in enumerate(passages) if n < 1500]
    build_index(some, tmp_path / "index", sources=["test"])
    arguments = (
        "pools --dataset antique --split validation --limit 12 --index index --top-k 10 --out pools.jsonl".split()
    )
    done = ranker(*arguments, "--path", shared_data / "linkage" / "antique.json.gz")
    assert done.exit_code == 0, done.output
    made = read_pools(tmp_path / "pools.jsonl")
    assert 8 <= len(made) <= 12 and f"{len(made)} pools" in done.stderr
    assert all(any((p.label or 0) >= pool.relevant_from == 2 for p in pool.passages) for pool in made)
    assert {p.label for pool in made for p in pool.passages} == {None, 0, 1, 2, 3}


def test_pools_of_the_sub_aspects_that_an_lm_names(tmp_path, monkeypatch, server):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    server.reply = lambda call: {"sub_aspects": ["charts", "cover"]} if "sub_aspects" in call.wanted else None
    texts = ("Blue was high in the charts.", "The cover of Blue is blue.", "Blue went on tour.")
    build_index([Passage(f"p{n}", text) for n, text in enumerate(texts)], tmp_path / "index", sources=["test"])
    row = {"question": "What is Blue?", "aspects": ["tour", "fans"], "sub_answers": ["It toured.", "It had fans."]}
    file = write_jsonl(tmp_path / "mine.jsonl", row, {**row, "question": "Who is Blue?"})
    arguments = [
        "pools", "--dataset", "file", "--path", file, "--split", "all", "--index", "index", "--lm", "vllm:stub",
    ]  # fmt: skip
    done = ranker(*arguments, "--aspects", "predicted", "--pool-limit", 0, "--out", "predicted.jsonl")
    assert done.exit_code == 0, done.output
    assert [pool.sub_aspects for pool in read_pools(tmp_path / "predicted.jsonl")] == [["charts", "cover"]] * 2
    (tmp_path / "predicted.jsonl").unlink()
    assert ranker(*arguments, "--aspects", "predicted", "--pool-limit", 0, "--out", "predicted.jsonl").exit_code == 0
    asked = len(server.calls)  # none is asked for again
    assert ranker(*arguments, "--aspects", "none", "--merge", "fusion", "--out", "none.jsonl").exit_code == 0
    assert {len(pool.sub_aspects) for pool in read_pools(tmp_path / "none.jsonl")} == {0}
    assert asked == len(server.calls) == 2
    refused = ranker(*arguments, "--aspects", "predicted", "--program", "rag", "--out", "x.jsonl")
    assert refused.exit_code == 2 and "program 'rag' has no sub-aspect explorer" in refused.stderr
    bare = write_jsonl(tmp_path / "bare.jsonl", {"question": "What is Blue?"})
    refused = ranker(*arguments, "--path", bare, "--merge", "fusion", "--out", "x.jsonl")
    assert refused.exit_code == 2 and "Leave out --aspects and --merge" in refused.stderr


def test_what_is_wrong_is_a_line(data):
    assert "either --dataset or --run" in ranker("pools", "--out", "x.jsonl").stderr
    done = ranker("evaluate", "list:nowhere", "--data", "test.jsonl")
    assert done.exit_code == 3 and "holds no list ranker" in done.stderr
    assert ranker("evaluate", "none", "--data", "nowhere.jsonl").exit_code == 2
