import pytest

from tests.builders.native import MUSIQUE, TWO_WIKI, publish
from tests.datasets.files import write_json, write_jsonl
from typedrag.core.errors import InputError
from typedrag.datasets.reasoning_chains import musique_chains, relation_question, two_wiki_chains


def test_musique_steps_have_earlier_answers_in_the_place_of_numbers(tmp_path):
    [chain] = musique_chains(publish(tmp_path)["musique"])
    assert chain.question == MUSIQUE["question"]
    assert [(s.query, s.answer) for s in chain.steps] == [
        ("Who designed the Forth Bridge?", "John Fowler"),
        ("Where was John Fowler born?", "Sheffield"),
        ("Which river flows through Sheffield", "Sheaf"),
    ]
    assert [[p.title for p in s.relevant] for s in chain.steps] == [["Forth Bridge"], ["John Fowler"], ["Sheffield"]]
    assert [p.title for p in chain.noise] == ["Tay Bridge", "Leeds", "Steel"]


def test_two_wiki_evidences_are_steps(tmp_path):
    [chain] = two_wiki_chains(publish(tmp_path)["two_wiki"])
    assert [(s.query, s.answer) for s in chain.steps] == [
        ("Who is the spouse of Queen Hyojeong?", "Heonjong of Joseon"),
        ("Who is the father of Heonjong of Joseon?", "Crown Prince Hyomyeong"),
    ]
    assert chain.steps[0].relevant[0].text == "She was the wife of Heonjong of Joseon. She died in 1904."
    assert [p.title for p in chain.noise] == ["Jeongjo"]


def test_a_row_without_evidences_has_no_chain(tmp_path):
    assert list(two_wiki_chains(write_json(tmp_path / "test.json", [{**TWO_WIKI, "evidences": []}]))) == []


@pytest.mark.parametrize(
    ("read", "row", "said"),
    [
        (musique_chains, {**MUSIQUE, "question_decomposition": []}, "question_decomposition"),
        (musique_chains, {**MUSIQUE, "question": " "}, "question: "),
        (two_wiki_chains, {**TWO_WIKI, "evidences": [["a", "b"]]}, "evidences.0"),
        (two_wiki_chains, {**TWO_WIKI, "supporting_facts": [1]}, "supporting_facts.0"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_its_place(tmp_path, read, row, said):
    with pytest.raises(InputError) as caught:
        list(read(write_jsonl(tmp_path / "rows.jsonl", row)))
    assert "line 1" in str(caught.value) and said in str(caught.value)


def test_relations_are_asked_for_as_people_would():
    assert relation_question("Old Glory", "date of birth") == "When was Old Glory born?"
    assert relation_question("Old Glory", "Place of death") == "Where did Old Glory die?"
    assert relation_question("Old Glory", "patron saint") == "What is the patron saint of Old Glory?"
    assert relation_question("Old {Glory}", "saint {0} of {}") == "What is the saint {0} of {} of Old {Glory}?"
