"""Embeddings by an API, of a real server that speaks OpenAI's protocol."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.datasets.files import write_jsonl
from tests.retrieval.embeddings_server import embeddings_server
from typedrag.cli.main import cli
from typedrag.core.errors import RetrievalError
from typedrag.core.records import Passage
from typedrag.retrieval import DenseRetriever, open_encoder

NAME, SECRET = "api:text-embedding-ada-002", "sk-of-the-embeddings"
TEXTS = {"bread": "Bread dough with yeast.", "cat": "A cat and a dog.", "moon": "The moon and the sun."}


@pytest.fixture
def server(monkeypatch):
    with embeddings_server() as served:
        monkeypatch.setenv("TYPEDRAG_ENCODER_API_BASE", served.api_base)
        monkeypatch.setenv("TYPEDRAG_ENCODER_API_KEY", SECRET)
        yield served


def build(folder: Path) -> Path:
    rows = write_jsonl(folder / "rows.jsonl", *({"id": i, "text": t} for i, t in TEXTS.items()))
    index = folder / "index"
    done = CliRunner().invoke(cli, ["index", "build", str(rows), "--out", str(index), "--no-bm25", "--dense", NAME])
    assert done.exit_code == 0, done.output
    return index


def test_an_index_is_built_and_searched_by_an_api(server, tmp_path, monkeypatch):
    index = build(tmp_path)
    manifest = json.loads((index / "gen-1" / "dense" / "manifest.json").read_text())
    assert (manifest["encoder"]["model"], manifest["encoder"]["normalised"]) == (NAME, True)
    assert SECRET not in json.dumps(manifest) and server.api_base not in json.dumps(manifest)
    monkeypatch.setenv("TYPEDRAG_ENCODER", NAME)
    retriever = DenseRetriever(index)
    cats, breads = retriever.search(["Is a cat a dog?", "yeast in bread"], 2)
    assert [p.id for p in (cats[0], breads[0])] == ["cat", "bread"]
    assert cats[0].score == pytest.approx(1, abs=0.01) and cats[1].score < 0.1
    assert {r["model"] for r in server.asked} == {"text-embedding-ada-002"}
    assert set(server.keys) == {f"Bearer {SECRET}"}
    done = CliRunner().invoke(cli, ["index", "search", str(index), "cat", "--retriever", "dense", "-k", "1"])
    assert "A cat and a dog." in done.output


def test_many_texts_are_sent_a_hundred_at_a_time_and_rows_have_length_one(server):
    passages = [Passage(str(n), "bread " * (n % 7)) for n in range(250)]
    rows = open_encoder(NAME, passage_prompt="passage: ").encode_passages(passages)
    assert rows.shape == (250, 18) and rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert [len(r["input"]) for r in server.asked] == [100, 100, 50]
    assert all(text.startswith("passage: ") for r in server.asked for text in r["input"])


def test_an_index_sends_no_question_to_an_api_that_the_user_did_not_name(server, tmp_path):
    index, before = build(tmp_path), len(server.asked)
    with pytest.raises(RetrievalError, match=r"your questions would be sent there.*set TYPEDRAG_ENCODER"):
        DenseRetriever(index)
    assert len(server.asked) == before


def test_a_refusal_is_told_with_its_mend_and_without_the_key(monkeypatch):
    refusal = (401, f"Incorrect API key provided: {SECRET}")
    with embeddings_server(refusal=refusal) as served:
        monkeypatch.setenv("TYPEDRAG_ENCODER_API_BASE", served.api_base)
        monkeypatch.setenv("TYPEDRAG_ENCODER_API_KEY", SECRET)
        with pytest.raises(RetrievalError) as refused:
            open_encoder(NAME).encode_queries(["Why?"])
    said = str(refused.value)
    assert said.startswith(f"{NAME} gives no embeddings: ") and "Incorrect API key" in said
    assert said.endswith("Check its name, its key and TYPEDRAG_ENCODER_API_BASE")
    assert SECRET not in said and "\n" not in said
