import copy

import pytest

from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.datasets import sample_questions
from typedrag.retrieval import (
    BM25Retriever,
    DenseRetriever,
    Encoder,
    HybridRetriever,
    build_index,
    check_retriever,
    open_retriever,
    reciprocal_rank_fusion,
    retriever_parts,
    weighted_fusion,
)

QUESTIONS = [q.question for q in sample_questions()]


@pytest.fixture(scope="module")
def sparse(both_parts):
    return BM25Retriever(both_parts)


@pytest.fixture(scope="module")
def hybrid(sparse, dense):
    return HybridRetriever(sparse, dense)


def ids(found: list[Passage]) -> list[str]:
    return [p.id for p in found]


def test_ranks_are_fused(hybrid, sparse, dense):
    found = hybrid.search(QUESTIONS, 10)
    for fused, of_words, of_meaning in zip(
        found, sparse.search(QUESTIONS, 100), dense.search(QUESTIONS, 100), strict=True
    ):
        assert fused == reciprocal_rank_fusion([of_words, of_meaning])[:10]
    assert hybrid.search(QUESTIONS[:2], 3) == [each[:3] for each in found[:2]]
    assert hybrid.search(["bread"], 0) == [[]] and hybrid.search([], 5) == []


def test_scores_are_fused_by_the_weight_of_the_dense_part(sparse, dense):
    weighted = HybridRetriever(sparse, dense, weight=0.7)
    [found] = weighted.search(QUESTIONS[:1], 10)
    lists = [sparse.search(QUESTIONS[:1], 100)[0], dense.search(QUESTIONS[:1], 100)[0]]
    assert [p.score for p in found] == pytest.approx([p.score for p in weighted_fusion(lists, [0.3, 0.7])[:10]])
    alone = {0.0: sparse, 1.0: dense}
    for weight, part in alone.items():
        [fused] = HybridRetriever(sparse, dense, weight=weight).search(QUESTIONS[:1], 5)
        assert ids(fused) == ids(part.search(QUESTIONS[:1], 5)[0])


def test_each_retriever_says_what_its_results_depend_on(hybrid, sparse, dense):
    fingerprint = sparse.manifest.fingerprint
    assert sparse.identity == {"index": fingerprint, "normal_form": "NFKC"}
    assert dense.identity["retriever"] == "dense" and dense.identity["encoder"]["dimensions"] == 384
    assert hybrid.identity == {**dense.identity, **sparse.identity, "retriever": "hybrid"}
    assert HybridRetriever(sparse, dense, weight=0.5).identity["retriever"] == "hybrid:0.5"
    assert hybrid.place == sparse.place == dense.place == str(sparse.index)
    assert list(hybrid.passages()) == list(sparse.passages())
    assert (
        retriever_parts(hybrid) == (sparse, dense)
        and retriever_parts(dense) == (None, dense)
        and retriever_parts(sparse) == (sparse, None)
    )
    assert copy.deepcopy([hybrid])[0] is hybrid


def test_parts_that_hold_other_passages_are_refused(tmp_path, tiny_model):
    held = [Passage("1", "bread dough"), Passage("2", "cat dog")]
    build_index(held, tmp_path / "idx", sources=["test"], encoder=Encoder(tiny_model))
    assert len(open_retriever("hybrid", tmp_path / "idx").search(["bread"], 5)[0]) == 2
    build_index(held[:1], tmp_path / "other", sources=["test"])
    with pytest.raises(
        RetrievalError, match=r"holds other passages than BM25's\. Bring it up to date: .*--dense MODEL"
    ):
        HybridRetriever(BM25Retriever(tmp_path / "other"), DenseRetriever(tmp_path / "idx"))


def test_a_spec_names_a_retriever(both_parts, sample_index, tmp_path):
    opened = {spec: open_retriever(spec, both_parts) for spec in ("bm25", "dense", "hybrid", "hybrid:0.25", "auto")}
    assert isinstance(opened["bm25"], BM25Retriever) and isinstance(opened["dense"], DenseRetriever)
    assert [opened[s].identity["retriever"] for s in ("hybrid", "hybrid:0.25", "auto")] == [
        "hybrid",
        "hybrid:0.25",
        "hybrid",
    ]
    assert isinstance(open_retriever("auto", sample_index), BM25Retriever)
    with pytest.raises(RetrievalError, match="has no dense part"):
        open_retriever("hybrid", sample_index)
    with pytest.raises(RetrievalError, match="is no index"):
        open_retriever("auto", tmp_path)


@pytest.mark.parametrize("spec", ["", "BM25", "dense:x", "bm25:0.5", "hybrid:", "hybrid:much", "hybrid:1.5", "best"])
def test_other_specs_are_refused(spec):
    with pytest.raises(InputError, match=r"is no retriever|cannot have a weight"):
        check_retriever(spec)
