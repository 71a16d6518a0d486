import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from typedrag.core.records import Passage
from typedrag.datasets import sample_questions
from typedrag.retrieval import BM25Retriever, build_index

HELD = [
    Passage("cats", "Cats chase mice. Cats sleep. Cats purr.", "On cats"),
    Passage("dogs", "Dogs bark at the cats next door, and at the postman, and at the moon.", "On dogs"),
    Passage("birds", "Birds sing in the morning.", ""),
    Passage("fish", "Fish swim 😀 in naïve circles.\nThey do\tnot sing.", "A title\nof two\tlines"),
]


@pytest.fixture(scope="module")
def small_index(tmp_path_factory):
    out = tmp_path_factory.mktemp("bm25") / "small"
    build_index(HELD, out, sources=["test"])
    return out


@pytest.fixture(scope="module")
def retriever(small_index):
    return BM25Retriever(small_index)


@pytest.fixture
def eager_threads():
    """Threads take turns so often that what they must not share is noticed."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def ids(found: list[Passage]) -> list[str]:
    return [p.id for p in found]


def test_the_best_passages_come_first(retriever):
    [found] = retriever.search(["cats"], 10)
    assert ids(found) == ["cats", "dogs"]
    assert found[0].score > found[1].score > 0


def test_a_relative_path_is_one_from_the_folder_that_python_is_in(retriever, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Java has started elsewhere
    build_index(HELD, Path("here"), sources=["test"])
    assert [p.id for p in BM25Retriever("here").search(["cats"], 1)[0]] == ["cats"]


def test_words_are_stemmed_and_titles_are_searched(retriever):
    assert ids(retriever.search(["swimming"], 1)[0]) == ["fish"]
    assert ids(retriever.search(["line"], 1)[0]) == ["fish"]


@pytest.mark.parametrize("query", ["", "   ", "zzzz", "???", "\n"])
def test_a_query_without_known_words_finds_nothing(retriever, query):
    assert retriever.search([query], 5) == [[]]
    assert retriever.search([query, "cats"], 5)[0] == []


def test_searches_from_many_threads_equal_those_of_one(sample_retriever, eager_threads):
    questions = [q.question for q in sample_questions()]

    def search(number: int) -> list[list[Passage]]:
        start = number % 24
        return sample_retriever.search(questions[start : start + 1 + number % 3], 5)

    serial = [search(number) for number in range(24)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(search, range(240))) == serial * 10


def test_a_query_of_thousands_of_words_is_searched(retriever):
    chooser = random.Random(0)
    words = ["".join(chooser.choices("abcdefghij", k=8)) for _ in range(5_000)]
    assert len(set(words)) > 4_900
    query = " ".join([*words, "mice"])
    assert ids(retriever.search([query], 5)[0]) == ["cats"]
    assert ids(retriever.search([query, "birds"], 5)[0]) == ["cats"]


@pytest.mark.parametrize(
    "query",
    ['"cats AND', "+cats -dogs", "cats~2 ^5", "contents:(cats", "NOT cats", "[cats TO", "cats\\", "/cats/", "{cats}!"],
)
def test_operators_and_quotes_have_no_meaning(retriever, query):
    assert "cats" in ids(retriever.search([query], 5)[0])
    assert "dogs" in ids(retriever.search([query], 5)[0])


def test_the_sample_questions_find_their_passages(sample_retriever):
    recalls = {}
    questions = sample_questions()
    found = sample_retriever.search([q.question for q in questions], 5)
    for question, passages in zip(questions, found, strict=True):
        wanted = set(question.passage_ids)
        recalls[question.id] = len(wanted & set(ids(passages))) / min(5, len(wanted))
    assert len(recalls) == 24
    listing = "\n".join(f"{recall:.2f}  {name}" for name, recall in sorted(recalls.items(), key=lambda item: item[1]))
    assert sum(recalls.values()) / len(recalls) >= 0.9, f"recall@5 of each question:\n{listing}"


def test_a_batch_keeps_the_order_of_the_queries_also_where_one_occurs_twice(retriever):
    found = retriever.search(["dogs", "cats", "dogs", "birds", "cats"], 1)
    assert [ids(each) for each in found] == [["dogs"], ["cats"], ["dogs"], ["birds"], ["cats"]]


def test_k1_and_b_change_the_scores(small_index, retriever):
    [plain] = retriever.search(["cats"], 1)
    # without k1, how often a word occurs counts for nothing; without b, nor does length
    flat = {p.id: p.score for p in BM25Retriever(small_index, k1=0).search(["cats"], 2)[0]}
    assert flat["cats"] == pytest.approx(flat["dogs"], rel=1e-4)
    [long] = BM25Retriever(small_index, k1=2.0, b=0.0).search(["cats"], 1)
    assert len({plain[0].score, flat["cats"], long[0].score}) == 3
    assert retriever.search(["cats"], 1) == [plain]  # other searchers leave this one's alone
