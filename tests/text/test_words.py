import pytest

from typedrag.text.words import content_words, ends_in_question_mark, split_words


@pytest.mark.parametrize(
    "text",
    [
        "Why does bread rise?",
        'Why does bread rise?"',
        "'Why does bread rise?'",
        "(Why does bread rise?)",
        "[“Why does bread rise?”]",
        "**Why does bread rise?**",
        "`Why does bread rise?`",
        "Why does bread rise?!",
        "Why does bread rise?? 🍞️",
        "Why does bread rise‽",
        "«Pourquoi le pain lève-t-il ? »",
        "„Warum geht Brot auf?“",
        "»Warum geht Brot auf?«",
        "「なぜパンは膨らむのですか？」",
        "『なぜ？』　",
        "（为什么？）",
        "＂为什么？＂",
        "«لماذا يرتفع الخبز؟»",
        "لماذا يرتفع الخبز؟\u200f",
        "Γιατί φουσκώνει το ψωμί\u037e",
        "«Γιατί φουσκώνει το ψωμί;»",
        "Τι είναι το Kubernetes;",
        "Ինչո՞ւ է հացը բարձրանում",
        "Ինչո՞ւ է հացը բարձրանում։",
        "«Ինչո՞ւ է հացը բարձրանում»։",
        "ዳቦ ለምን ይነሳል፧",
        "Why does bread rise?\u00a0\u2003\t\n",
        "Why does bread rise?\u200b\ufeff\u200d\u2060",
    ],
)
def test_a_question_mark_of_any_script_ends_a_question_whatever_closes_it(text):
    assert ends_in_question_mark(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '"',
        "Bread rises.",
        'She asked "Why does bread rise?" and left.',
        "Why does bread rise? Yeast makes gas",
        "I came; I saw;",
        "¿",
        "Ինչո՞ւ։ Հացը բարձրանում է։",
        "ทำไมขนมปังจึงฟู",
    ],
)
def test_what_does_not_end_in_a_question_mark(text):
    assert not ends_in_question_mark(text)


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
    assert split_words(text) == words


def test_words_are_the_same_composed_or_not() -> None:
    assert content_words("caf\u00e9s") == content_words("cafe\u0301s")
    assert not content_words("cafe\u0301") & content_words("cafe society")
    assert len(content_words("हिन्दी भाषा")) == 2
