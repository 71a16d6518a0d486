import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from typedrag.sub_questions.evidence import NEARLY, locate_fragment

TEXT = (
    "In autumn the days grow shorter, and trees stop making *chlorophyll* — the green pigment. "
    "What’s left are “carotenoids”, which were there all along; red ones are made anew by some trees."
)
words = st.lists(
    st.builds(str.__add__, st.text("abcäß", min_size=1, max_size=4), st.sampled_from(["", "’s", "–c", ".", "*"])),
    min_size=1,
    max_size=30,
)


@given(words, st.data())
def test_what_was_cut_out_of_a_text_is_found_where_it_was_or_before(said: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(said) - 1))
    last = data.draw(st.integers(first, len(said) - 1))
    found = locate_fragment(" ".join(said), "\n ".join(said[first : last + 1]).upper())
    assert found is not None and found.similarity == 100 and found.words == len(said)
    assert found.first <= first + 1 and 0 < found.position <= (first + 1) / len(said)


@settings(max_examples=50)
@given(words, words)
def test_a_location_is_always_in_the_text(said: list[str], fragment: list[str]) -> None:
    found = locate_fragment(" ".join(said), " ".join(fragment))
    if found:
        assert 1 <= found.first <= found.last <= found.words == len(said)
        assert NEARLY <= found.similarity <= 100


@pytest.mark.parametrize(
    ("fragment", "first", "last"),
    [
        ("the days grow shorter", 3, 6),
        ('"The days grow shorter..."', 3, 6),
        ("making chlorophyll - the green pigment", 10, 15),
        ("what's left are 'carotenoids'", 16, 19),
        ("What’s left are “carotenoids”, which were there all along", 16, 24),
        ("the days were growing shorter, and trees stop making chlorophyll", 3, 11),
        ("which were there all along: the red ones are made anew by some trees", 20, 32),
    ],
)
def test_what_judges_quote_is_found(fragment: str, first: int, last: int) -> None:
    found = locate_fragment(TEXT, fragment)
    assert found is not None
    assert found.first == first and abs(found.last - last) <= 1


@pytest.mark.parametrize(
    "fragment",
    [
        "",
        "...",
        "No.",
        "hlorophy",
        "the leaves fall because it is cold",
        "the pigment is green since trees make chlorophyll",
        f"{TEXT} And then a second text follows that says as much again about something else altogether, "
        "which no reader of the first could have known, namely how birds find their way to Africa.",
    ],
)
def test_what_is_not_there_is_not_found(fragment: str) -> None:
    assert locate_fragment(TEXT, fragment) is None


def test_a_repeated_fragment_is_where_it_comes_first() -> None:
    found = locate_fragment("the artist makes art and art makes the artist", "art")
    assert found is not None and (found.first, found.last, found.position) == (4, 4, 4 / 9)


def test_fragments_that_people_marked_are_found_in_their_answers_and_not_in_others(shared_data: Path) -> None:
    lines = (shared_data / "sub_questions" / "coverage.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    covered = [row for row in rows if row["covered"]]
    assert all(locate_fragment(row["answer"], row["fragment"]) for row in covered)
    answers = {row["answer"] for row in rows}
    assert not any(
        locate_fragment(answer, row["fragment"], nearly=65) for row in covered for answer in answers - {row["answer"]}
    )
