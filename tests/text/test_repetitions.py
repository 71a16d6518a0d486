import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.text.sentences import repeated_sentences, without_repetitions

SLEEP = "Sleep pressure builds up as adenosine gathers. The body clock releases melatonin in the evening."


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"Two clocks decide all this. {SLEEP} {SLEEP} {SLEEP[:60]}", f"Two clocks decide all this. {SLEEP}"),
        (f"{SLEEP}\n\n{SLEEP}\n", SLEEP),
        (
            "酵母产生气体使面团发起来。面筋留住气体。酵母产生气体使面团发起来。酵母产生气",
            "酵母产生气体使面团发起来。面筋留住气体。",
        ),
        ("खमीर आटे में गैस बनाता है। आटा फूलता है। खमीर आटे में गैस बनाता है।", "खमीर आटे में गैस बनाता है। आटा फूलता है।"),
        ("الخميرة تنتج الغاز في العجين. الخميرة تنتج الغاز في العجين.", "الخميرة تنتج الغاز في العجين."),
        (
            "1. Wash the lettuce very well.\n2. Wash the lettuce very well.\n3. Wash the",
            "1. Wash the lettuce very well.",
        ),
        ("酵母" * 30, "酵母"),
        ("It grows " + "and grows " * 20 + "and gro", "It grows and"),
    ],
)
def test_what_only_repeats_at_the_end_is_left_out(text: str, kept: str) -> None:
    assert without_repetitions(text) == kept
    assert without_repetitions(kept) == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Paint the walls. Let it dry. Paint again. Let it dry.",
        f"{SLEEP} {SLEEP} Then the sun comes up.",
        "The tower is 300 metres high. The tower is 324 metres high.",
        "In short: 1990 was a very good year. 1994 was a very good year.",
        "1. 3.5 tons of it are needed. 2. 4.5 tons of it are needed.",
        "| grows | yes | yes | yes | yes | yes | yes |",
        "Ha ha ha, said the cat, ha ha ha.",
        "| a | b | c | d |\n|---|---|---|---|---|---|---|---|",
        "It ends in spaces. \n",
    ],
)
def test_all_else_stays_as_it_is(text: str) -> None:
    assert without_repetitions(text) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"{SLEEP} {SLEEP} Then the sun comes up.", 2),
        ("Paint the walls. Let it dry. Paint again. Let it dry.", 0),
        ("Nuclear power is safer than wind power. Wind power is safer than nuclear power.", 0),
        ("猫は夜によく鳴く。犬は昼に鳴く。猫は夜によく鳴く。", 1),
    ],
)
def test_repeated_sentences_are_counted_wherever_they_stand(text: str, count: int) -> None:
    assert len(repeated_sentences(text)) == count


@given(st.text(alphabet="ab .\n1!", max_size=80))
def test_what_is_kept_is_the_beginning(text: str) -> None:
    kept = without_repetitions(text)
    assert text.startswith(kept) and bool(kept.strip()) == bool(text.strip())


def test_a_long_text_takes_no_long() -> None:
    assert without_repetitions("ab " * 20_000) == "ab"
