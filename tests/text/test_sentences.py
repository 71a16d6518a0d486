import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.text.sentences import sentences


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("No end", ["No end"]),
        ("One\n\nTwo. Three.\n", ["One", "Two.", "Three."]),
        ("1. Knead. 2. Bake it (long!).", ["1. Knead.", "2. Bake it (long!)."]),
        ("One.\n- Two? Three！ Four", ["One.", "- Two?", "Three！", "Four"]),
        ("彼は「行く。」と言った。猫は寝る？", ["彼は「行く。」", "と言った。", "猫は寝る？"]),
        ("الخميرة تنتج الغاز. هل يرتفع العجين؟ نعم.", ["الخميرة تنتج الغاز.", "هل يرتفع العجين؟", "نعم."]),
        ("Խմորիչը գազ է տալիս։ Խմորը բարձրանում է։", ["Խմորիչը գազ է տալիս։", "Խմորը բարձրանում է։"]),
        ("It costs 3.50 euros. It lasts.", ["It costs 3.50 euros.", "It lasts."]),
    ],
)
def test_sentences_in_any_script(text: str, found: list[str]) -> None:
    assert sentences(text) == found


@given(st.text(max_size=200))
def test_they_hold_all_of_a_text_in_order(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())
