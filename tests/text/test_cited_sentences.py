import pytest

from typedrag.core.records import Passage
from typedrag.text.sentences import cited_sentences, used_passages

PASSAGES = [
    Passage("yeast", "Old yeast makes little gas.", "Baking"),
    Passage("flour", "Rye flour holds no gluten net.", "Flour"),
    Passage("酵母", "酵母产生气体，使面团发起来。"),
]


def marked(answer: str, *passages: Passage) -> list[tuple[str, str]]:
    return [(answer[s.start : s.end], s.passage_id) for s in cited_sentences(answer, passages, "Why is bread dense?")]


@pytest.mark.parametrize(
    ("answer", "sentences"),
    [
        (
            "Old yeast makes little gas. Rye flour has no gluten.",
            ["Old yeast makes little gas.", "Rye flour has no gluten."],
        ),
        (
            "1. Old yeast: little gas.\n2. Rye flour: no gluten.",
            ["1. Old yeast: little gas.", "2. Rye flour: no gluten."],
        ),
        ("It is so: old yeast makes little gas", ["It is so: old yeast makes little gas"]),
    ],
)
def test_each_sentence_is_marked_where_it_stands(answer, sentences):
    assert [sentence for sentence, _ in marked(answer, *PASSAGES[: len(sentences)])] == sentences


def test_a_sentence_that_comes_again_is_marked_where_it_comes_again():
    answer = "Old yeast makes little gas. It does. Old yeast makes little gas."
    assert [(s.start, s.end) for s in cited_sentences(answer, PASSAGES[:1], "Why?")] == [(0, 27), (37, 64)]


def test_a_sentence_may_be_from_two_passages():
    answer = "Old yeast makes little gas where rye flour holds no gluten net."
    assert marked(answer, *PASSAGES[:2]) == [(answer, "yeast"), (answer, "flour")]


def test_what_no_sentence_is_seen_to_use_supports_the_whole():
    assert marked("Dough is cold. Ovens are too.", PASSAGES[0]) == [("Dough is cold. Ovens are too.", "yeast")]
    assert cited_sentences("Dough is cold.", [], "Why?") == []


def test_a_passage_whose_words_another_explains_is_not_used():
    passages = [Passage("all", "Old yeast makes little gas."), Passage("part", "Old yeast is stale.")]
    assert used_passages("Old yeast makes little gas.", passages, "Why?") == {"all"}
