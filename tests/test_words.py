from __future__ import annotations

import pytest

from typedrag.datasets import load_dataset
from typedrag.question_types import QuestionType
from typedrag.words import ends_in_question_mark


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


def test_few_remarks_of_nf_cats_end_in_one(shared_data):
    dataset = load_dataset("nf-cats", shared_data / "nf_cats")
    remarks = [e.question for e in dataset.examples if e.question_type is QuestionType.NOT_A_QUESTION]
    ends = [text for text in remarks if ends_in_question_mark(text)]
    assert len(remarks) == 3573 and len(ends) == 7 and all(text[-1] in '"]' for text in ends)
