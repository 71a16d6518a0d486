import pytest

from tests.builders.test_non_factoid import select
from typedrag.builders.wiki_nfqa import has_substring, read_patterns, types_by_pattern
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType as T
from typedrag.datasets import load_dataset
from typedrag.datasets.dataset import example


@pytest.mark.parametrize(
    ("question", "question_type"),
    [
        ("How to poach an egg?", T.INSTRUCTION),
        ("how can I delete my browsing history", T.INSTRUCTION),
        ("What is the process for registering a trademark?", T.INSTRUCTION),
        ("What is the best way to clean a wool carpet?", T.INSTRUCTION),
        ("Why does dough rise?", T.REASON),
        ("What is the reason for leap years?", T.REASON),
        ("For what reason is Plymouth Sound protected?", T.REASON),
        ("What causes tides?", T.REASON),
        ("How come the moon looks larger near the horizon?", T.REASON),
        ("How does a heat pump work?", T.EVIDENCE_BASED),
        ("What are the properties of steel?", T.EVIDENCE_BASED),
        ("What is the meaning of 'Blanche'?", T.EVIDENCE_BASED),
        ("How do you describe the taste of umami?", T.EVIDENCE_BASED),
        ("What’s a lupara?", T.EVIDENCE_BASED),
        ("Of what is autophobia the fear, and what does it mean?", T.EVIDENCE_BASED),
        ("How is a crow different from a raven?", T.COMPARISON),
        ("What are the advantages of wind power over coal?", T.COMPARISON),
        ("How does butter do against margarine?", T.COMPARISON),
        ("cats vs dogs as pets", T.COMPARISON),
        ("Would you recommend a folding bicycle?", T.EXPERIENCE),
        ("How do you like your new kettle?", T.EXPERIENCE),
        ("What do you think about night trains?", T.EXPERIENCE),
        ("Should I tell my sister?", T.EXPERIENCE),
        ("Does God exist?", T.DEBATE),
        ("Can a colony on Mars be successful?", T.DEBATE),
        ("Do you think athletes are paid too much?", T.DEBATE),
        ("Is chess really a sport?", T.DEBATE),
        ("Should voting be compulsory?", T.DEBATE),
    ],
)
def test_questions_of_each_type_have_a_pattern_of_it(question, question_type):
    assert question_type in types_by_pattern(question)


@pytest.mark.parametrize(
    "question",
    [
        "When was the telephone invented?",
        "Who wrote Carmen?",
        "how many bones are in a hand",
        "In which year did Iceland become a republic?",
        "Thanks, see you tomorrow!",
        "showers in Oslo",  # "how" within a word
        "whatever",
        "",
    ],
)
def test_others_have_none(question):
    assert types_by_pattern(question) == ()


def test_words_that_stand_one_after_the_other_are_not_found_apart():
    assert T.INSTRUCTION in types_by_pattern("how to read")
    assert types_by_pattern("how tall Tom has to become") == ()


THEIRS = """
for row in rows:
    if "how" in row["text"].lower():
        for how_pattern in ["how to", " against "]:
            if how_pattern in row["text"].lower():
                kept.append(row)
    elif "what" in row["text"].lower():
        for what_pattern in ["what is", " way"]:
            if what_pattern in row["text"].lower():
                kept.append(row)
    else:
        for pattern in ["why", "should "]:
            if pattern in row["text"].lower():
                kept.append(row)
"""


def test_the_authors_patterns_are_read_from_their_file_which_is_not_run(tmp_path):
    file = tmp_path / "filter.py"
    file.write_text(THEIRS)  # run, it would fail: there are no rows
    patterns = read_patterns(file)
    assert patterns == {"how": ("how to", " against "), "what": ("what is", " way"), "": ("why", "should ")}
    taken = [
        "How to bake?", "How does butter do against margarine?", "What is a lupara?", "Should I go?", "Why?",
        "Showers: how to mend one?",
    ]  # fmt: skip
    left = ["How tall is he?", "What causes tides?", "Show me why", "Who wrote Carmen?"]
    assert [q for q in (*taken, *left) if has_substring(q, patterns)] == taken
    asked = [example(id=str(n), question=q, answers=("x",)) for n, q in enumerate(["Why is it so?", "Does God exist?"])]
    kept, report = select({"mine": asked}, patterns_file=file)
    assert [e.question for e in kept] == ["Why is it so?"]
    assert report.left_out == {"questions: worded like no non-factoid question": 1}


@pytest.mark.parametrize(("text", "said"), [("import os\n", "lists no patterns"), ("{", "is no Python file")])
def test_a_file_without_patterns_is_refused_and_told_which_one_is_meant(tmp_path, text, said):
    (tmp_path / "other.py").write_text(text)
    with pytest.raises(InputError, match=said) as refused:
        read_patterns(tmp_path / "other.py")
    assert "filter_nf_dataset_and_remap_paras.py" in refused.value.hint


def test_on_what_people_have_labelled(shared_data):
    kept = [bool(types_by_pattern(e.question)) for e in load_dataset("wiki-nfqa", shared_data / "wiki_nfqa").examples]
    assert sum(kept) / len(kept) > 0.95  # all of them passed the authors' patterns
    labelled = load_dataset("nf-cats", shared_data / "nf_cats").examples

    def share(*types: T) -> float:
        found = [bool(types_by_pattern(e.question)) for e in labelled if e.question_type in types]
        return sum(found) / len(found)

    assert share(*T.non_factoid()) > 0.75
    assert share(T.FACTOID) < 0.15 and share(T.NOT_A_QUESTION) < 0.1
    assert min(share(t) for t in T.non_factoid()) > 0.6
