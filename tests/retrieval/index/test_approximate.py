"""Approximate indexes over generated embeddings, and dense parts that have one."""

import numpy as np
import pytest

from tests.retrieval.encoders import WORDS
from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.retrieval import DenseRetriever, Encoder, append_index, build_index, embed_index, read_dense_manifest
from typedrag.retrieval.index.dense_part import APPROXIMATE, faiss_factory, write_approximate
from typedrag.retrieval.search.dense import ApproximateSearch

DIMENSIONS = 32


@pytest.fixture(scope="module")
def embeddings():
    """4,000 of length 1, in 50 groups."""
    generator = np.random.default_rng(1)
    centres = generator.standard_normal((50, DIMENSIONS))
    rows = centres[generator.integers(0, 50, 4000)] + 0.7 * generator.standard_normal((4000, DIMENSIONS))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("factory", ["IVF16,PQ16x4", "IVF16,SQ8", "HNSW16"])
def test_most_of_the_best_are_found_with_their_exact_scores(embeddings, factory, tmp_path):
    write_approximate(tmp_path, embeddings, factory)
    search = ApproximateSearch(tmp_path, embeddings)
    queries = embeddings[::100] + 0.05
    exact = queries @ embeddings.T
    scores, rows = search.search(queries, 10)
    best = np.argsort(-exact, axis=1)[:, :10]
    recall = np.mean([len(set(mine) & set(theirs)) / 10 for mine, theirs in zip(rows, best, strict=True)])
    assert recall > 0.8
    for of_query, found, all_scores in zip(scores, rows, exact, strict=True):
        assert of_query == pytest.approx(all_scores[found], abs=1e-5)
        assert list(of_query) == sorted(of_query, reverse=True)
    assert [len(found) for found in search.search(queries, 4000)[1]] <= [4000] * len(queries)


def test_auto_chooses_by_the_number_of_passages():
    assert faiss_factory("auto", 99_999, 384) == ""
    assert faiss_factory("auto", 21_000_000, 768) == "IVF18328,PQ96"
    assert faiss_factory("auto", 1_000_000, 100) == "IVF4000,SQ8"


@pytest.fixture(scope="module")
def tiny(tiny_model) -> Encoder:
    return Encoder(tiny_model)


def passages(count: int, start: int = 0) -> list[Passage]:
    return [
        Passage(f"p{n}", " ".join(WORDS[(n * step + n % 5) % len(WORDS)] for step in range(1, 4 + n % 17)))
        for n in range(start, start + count)
    ]


def test_a_dense_part_keeps_it_through_additions(tiny, tmp_path):
    build_index(passages(400), tmp_path / "exact", sources=["test"], encoder=tiny)
    build_index(passages(400), tmp_path / "near", sources=["test"], encoder=tiny, approximate="IVF8,SQ8")
    one, other = DenseRetriever(tmp_path / "exact"), DenseRetriever(tmp_path / "near")
    assert other.identity == {**one.identity, "approximate": "IVF8,SQ8"}

    def scores(retriever: DenseRetriever) -> list[list[float]]:
        return [[p.score for p in ranking] for ranking in retriever.search(WORDS, 5)]

    assert all(mine == pytest.approx(theirs, abs=1e-5) for mine, theirs in zip(scores(other), scores(one), strict=True))
    append_index(passages(50, 400), tmp_path / "near", sources=["more"])
    grown = DenseRetriever(tmp_path / "near")
    assert (grown.manifest.passages, grown.manifest.approximate) == (450, "IVF8,SQ8")
    assert "p440" in {p.id for p in grown.search([passages(1, 440)[0].text], 20)[0]}
    embed_index(tmp_path / "exact", tiny, approximate="HNSW8")
    assert read_dense_manifest(tmp_path / "exact").approximate == "HNSW8"
    (tmp_path / "near" / "gen-2" / "dense" / APPROXIMATE).unlink()
    with pytest.raises(RetrievalError, match="cannot be opened"):
        DenseRetriever(tmp_path / "near")


def test_what_faiss_does_not_make_is_refused_before_anything_is_embedded(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "encode_passages", lambda passages: pytest.fail("it embeds"))
    for spec in ("IVF8", "PQ7", "nothing"):
        with pytest.raises(InputError, match=f"FAISS makes no index of '{spec}'"):
            build_index(passages(40), tmp_path / "index", sources=["test"], encoder=tiny, approximate=spec)


def test_too_few_passages_to_train_it_are_named(tiny, tmp_path):
    with pytest.raises(InputError, match="FAISS cannot index 40 embeddings as IVF4096,Flat"):
        build_index(passages(40), tmp_path / "index", sources=["test"], encoder=tiny, approximate="IVF4096,Flat")
