import pytest

from typedrag.core.call_context import use_context
from typedrag.core.errors import InputError, RetrievalError
from typedrag.retrieval import BM25Retriever, open_retriever


@pytest.fixture(scope="module")
def gold(sample_index):
    return open_retriever("gold", sample_index)


def test_the_labelled_passages_are_found_in_their_order_whatever_the_query(gold, sample_index):
    held = {p.id: p for p in BM25Retriever(sample_index).passages()}
    ids = ("bread-3", "bread-1")
    with use_context(labels={"passage_ids": ids}):
        found = gold.search(["bread", "nothing of it"], 5)
        assert gold.search(["bread"], 1) == [found[0][:1]]
        assert gold.search([], 5) == []
    assert [[p.id for p in each] for each in found] == [[*ids]] * 2
    assert [(p.text, p.title) for p in found[0]] == [(held[i].text, held[i].title) for i in ids]


@pytest.mark.parametrize("labels", [{}, {"passage_ids": ()}])
def test_a_question_without_labels_is_refused(gold, labels):
    with use_context(labels=labels), pytest.raises(InputError, match="the question has no labelled passages"):
        gold.search(["bread"], 5)


def test_labels_of_another_index_are_a_fault(gold):
    with (
        use_context(labels={"passage_ids": ("bread-1", "nosuch")}),
        pytest.raises(RetrievalError, match="passage 'nosuch'"),
    ):
        gold.search(["bread"], 5)
