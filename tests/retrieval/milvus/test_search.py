"""Retrievers over a real Milvus, beside those over a folder with the same passages."""

from __future__ import annotations

import copy
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from typedrag.datasets import load_dataset
from typedrag.errors import InputError, RetrievalError
from typedrag.retrieval import HybridRetriever, open_retriever
from typedrag.retrieval.milvus.retrievers import MilvusBM25, MilvusDense
from typedrag.retrieval.opening import bm25_of_index


@pytest.fixture(scope="module")
def questions() -> list[str]:
    return [example.question for example in load_dataset("sample").examples]


def test_bm25_agrees_with_lucene_on_most_questions(sample, sample_retriever, questions):
    ours = open_retriever(f"{sample}?search=bm25")
    assert isinstance(ours, MilvusBM25)
    pairs = list(zip(ours.search(questions, 5), sample_retriever.search(questions, 5), strict=True))
    first = [mine[0].id == lucene[0].id for mine, lucene in pairs]
    shared = [len({p.id for p in mine} & {p.id for p in lucene}) / 5 for mine, lucene in pairs]
    assert sum(first) / len(first) >= 0.9
    assert sum(shared) / len(shared) >= 0.9
    assert all(mine[0].score >= mine[-1].score > 0 for mine, _ in pairs)
    by_id = {p.id: (p.title, p.text) for p in sample_retriever.passages()}
    assert all((p.title, p.text) == by_id[p.id] for mine, _ in pairs for p in mine)
    assert by_id == {p.id: (p.title, p.text) for p in ours.passages()}


def test_words_are_found_by_their_stems_and_stop_words_by_none(sample):
    ours = open_retriever(f"{sample}?search=bm25")
    vaccinated, vaccine, the, nothing = ours.search(["vaccinated", "vaccination", "the of", ""], 5)
    assert vaccinated == vaccine != []
    assert the == nothing == []


def test_dense_finds_what_faiss_finds(sample, dense, questions):
    ours = open_retriever(f"{sample}?search=dense")
    assert isinstance(ours, MilvusDense)
    for mine, exact in zip(ours.search(questions, 10), dense.search(questions, 10), strict=True):
        assert [p.id for p in mine] == [p.id for p in exact]
        assert [p.score for p in mine] == pytest.approx([p.score for p in exact], abs=1e-4)


def test_hybrid_is_the_fusion_of_both(sample, questions):
    auto, weighted = open_retriever(sample), open_retriever(f"{sample}?search=hybrid:0.7")
    assert isinstance(auto, HybridRetriever) and auto.weight is None
    assert isinstance(weighted, HybridRetriever) and weighted.weight == 0.7
    parts = zip(auto.sparse.search(questions, 100), auto.dense.search(questions, 100), strict=True)
    assert auto.search(questions, 3) == [auto.fuse(*both)[:3] for both in parts]
    assert auto.search(questions, 3) != weighted.search(questions, 3)


def test_threads_get_what_one_gets_and_copies_share_the_connection(sample, questions):
    ours = open_retriever(f"{sample}?search=bm25")
    with ThreadPoolExecutor(8) as pool:
        threaded = list(pool.map(lambda question: ours.search([question], 5)[0], questions))
    assert threaded == ours.search(questions, 5)
    assert copy.deepcopy(ours) is ours
    assert ours.search([], 5) == [] and ours.search(["bread"], 0) == [[]]
    half = ours.search(["bread \ud83d"], 1)
    assert half == ours.search(["bread"], 1) != [[]]
    assert len(ours.search(["water"], 16_384)[0]) < 144
    with pytest.raises(InputError, match="16,385 passages are wanted"):
        ours.search(["bread"], 16_385)


def test_the_identity_is_that_of_the_passages_engine_and_filter(sample, sample_retriever):
    sparse, dense = (open_retriever(f"{sample}?search={kind}").identity for kind in ("bm25", "dense"))
    assert sparse == {**sample_retriever.identity, "engine": "milvus"}
    assert dense["retriever"] == "dense" and dense["index"] == sparse["index"]
    hybrid = open_retriever(f"{sample}?filter=id != 'x'").identity
    assert hybrid == {**dense, "retriever": "hybrid", "filter": "id != 'x'"}
    assert "localhost" not in json.dumps(hybrid)


def test_passages_are_filtered_by_their_metadata(milvus, build, tmp_path):
    rows = [
        {
            "id": f"p{year}",
            "text": f"Bread was baked in {year}.",
            "year": year,
            "tags": ["old" if year < 2010 else "new"],
        }
        for year in range(2000, 2020)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, {"id": "none", "text": "Bread."}]))
    spec = f"milvus:{milvus.url}/filtered"
    assert build([file], spec, metadata=["year", "tags"]).metadata == ("year", "tags")

    def ids(where: str) -> set[str]:
        [passages] = open_retriever(f"{spec}?filter={where}").search(["bread"], 100)
        return {p.id for p in passages}

    assert ids("year >= 2018") == {"p2018", "p2019"}
    assert ids("year < 2002 or year == 2015") == {"p2000", "p2001", "p2015"}
    assert ids("array_contains(tags, 'new') and year <= 2010") == {"p2010"}
    assert {p.id for p in open_retriever(f"{spec}?filter=year == 2003").passages()} == {"p2003"}
    with pytest.raises(InputError, match=r"Milvus cannot filter by 'year >>> 1'.* Filter by year, tags"):
        open_retriever(f"{spec}?filter=year >>> 1")
    with pytest.raises(InputError, match=r"no passage of milvus:\S+ passes the filter 'yaer > 1'"):
        open_retriever(f"{spec}?filter=yaer > 1")


def test_other_languages_are_stemmed_or_searched_by_pairs(milvus, build, tmp_path):
    texts = {"de": ("Die Häuser stehen am Fluss.", "Haus"), "ja": ("東京大学は日本の大学です。", "京大学"),
             "th": ("ขนมปังอบใหม่", "ขนมปัง")}  # fmt: skip
    for language, (text, query) in texts.items():
        file = tmp_path / f"{language}.jsonl"
        file.write_text(
            json.dumps({"id": "1", "title": "x", "text": text}) + "\n" + json.dumps({"id": "2", "text": "x"})
        )
        spec = f"milvus:{milvus.url}/in_{language}"
        assert build([file], spec, language=language).language == language
        [[passage]] = open_retriever(spec).search([query], 5)
        assert (passage.id, passage.title, passage.text) == ("1", "x", text)


def test_bm25_settings_are_those_of_the_index(sample):
    assert bm25_of_index(sample) == {"k1": 0.9, "b": 0.4}
    assert open_retriever(f"{sample}?search=bm25", bm25={"k1": 0.9}).search(["bread"], 1)
    with pytest.raises(InputError, match=r"built with k1 = 0.9, b = 0.4, and no search sets others"):
        open_retriever(f"{sample}?search=bm25", bm25={"k1": 1.2})
    with pytest.raises(InputError, match="both --index here and --retriever milvus"):
        open_retriever(sample, "here")


def test_a_connection_that_the_server_closed_is_made_again(sample, monkeypatch):
    """Milvus closes idle connections ("Too many pings"); its client's next attempt may meet the closed one."""
    import pymilvus

    client, attempts = pymilvus.MilvusClient, []

    def connect(*args, **options):
        attempts.append(args)
        if len(attempts) == 1:
            raise pymilvus.MilvusException(code=2, message="Fail connecting to server: Too many pings")
        return client(*args, **options)

    monkeypatch.setattr(pymilvus, "MilvusClient", connect)
    assert open_retriever(f"{sample}?search=bm25").search(["bread"], 1)[0]
    assert len(attempts) == 2


def test_what_is_missing_is_named(milvus, build, tmp_path, tiny_model, monkeypatch):
    with pytest.raises(RetrievalError, match=r"milvus:\S+/nowhere is no index\. Build it: typedrag index build"):
        open_retriever(f"milvus:{milvus.url}/nowhere")
    with pytest.raises(RetrievalError, match=r"Milvus at http://localhost:9 does not answer.* Is it running"):
        open_retriever("milvus:http://localhost:9/wiki")
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"id": "1", "text": "bread"}))
    build([file], f"milvus:{milvus.url}/sparse_only")
    with pytest.raises(RetrievalError, match="has no dense part"):
        open_retriever(f"milvus:{milvus.url}/sparse_only?search=hybrid")
    monkeypatch.setattr("typedrag.retrieval.milvus.collection.version", lambda package: "3.2.2")
    with pytest.raises(RetrievalError, match=r"needs milvus-lite 2, .* installed is 3.2.2"):
        open_retriever("milvus:wiki.db/wiki")
