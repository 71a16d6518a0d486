from __future__ import annotations

import pytest

from typedrag.words import content_words, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Rachael's well-known 1651–1674", ["rachael", "s", "well", "known", "1651", "1674"]),
        ("हिन्दी की भाषा", ["हिन्दी", "की", "भाषा"]),  # vowel signs and the virama are part of the word
        ("اللُّغَةُ العربية", ["اللُّغَةُ", "العربية"]),
        ("ภาษาไทย", ["ภ", "า", "ษ", "า", "ไ", "ท", "ย"]),  # no spaces between words
        ("ที่", ["ที่"]),
        ("東京2024", ["東", "京", "2024"]),
    ],
)
def test_words_of_any_script(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_words_are_the_same_composed_or_not() -> None:
    assert content_words("caf\u00e9s") == content_words("cafe\u0301s")
    assert not content_words("cafe\u0301") & content_words("cafe society")
    assert len(content_words("हिन्दी भाषा")) == 2
