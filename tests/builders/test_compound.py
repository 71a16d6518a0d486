import json
import re
import tracemalloc

import pytest

from tests.builders.native import publish
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.builders.compound import Compound
from typedrag.core.records import Passage
from typedrag.datasets import load_dataset
from typedrag.datasets.open_domain import SingleHop, read_single_hop
from typedrag.files.text_files import write_json_lines
from typedrag.runs.work import Stages

SETTINGS = Compound(retries=0, per_entity=3)


def joined(prompt: str) -> dict:
    """The questions of the prompt, joined by an and."""
    questions = json.loads(prompt.split("[[ ## questions ## ]]\n")[1].split("\n\n")[0])
    parts = [q.rstrip("?") for q in questions]
    return {"joinable": True, "question": ", and ".join(parts) + "?"}


def test_questions_of_one_entity_are_joined_with_their_answers(tmp_path):
    singles = list(read_single_hop(publish(tmp_path)["squad"]))
    with scripted({s.JoinQuestions: joined}):
        built = SETTINGS.join(singles, Stages())
    assert built.rows and built.left_out["entities with too few questions"] == 1  # steel has one question
    for row in built.rows:
        assert row["entity"] == "Forth Bridge" and 2 <= len(row["sub_queries"]) <= 3
        assert row["answers"] == [" && ".join(row["sub_answers"])]
        assert all(q.rstrip("?") in row["question"] for q in row["sub_queries"])
        assert len(row["passage_ids"]) == 1
    write_json_lines(tmp_path / "made.jsonl", built.rows)
    assert len(load_dataset("compound", tmp_path / "made.jsonl").examples) == len(built.rows)


def test_the_same_seed_gives_the_same_questions_and_another_entity_changes_none(tmp_path):
    singles = list(read_single_hop(publish(tmp_path)["squad"]))
    more = [SingleHop(f"What is part {n} of the Tay Bridge?", f"part {n}", "Tay Bridge") for n in range(3)]
    with scripted({s.JoinQuestions: joined}):
        first = SETTINGS.join(singles, Stages()).rows
        again = SETTINGS.join([*more, *singles], Stages()).rows
    assert [row for row in again if row["entity"] == "Forth Bridge"] == first


def test_no_entity_is_in_two_subsets():
    singles = [SingleHop(f"What is part {n} of thing {e}?", f"p{n}", f"thing {e}") for e in range(60) for n in range(4)]
    with scripted({s.JoinQuestions: joined}):
        rows = Compound(retries=0, per_entity=2, test_share=0.3).join(singles, Stages()).rows
    subsets = {row["entity"]: set() for row in rows}
    for row in rows:
        subsets[row["entity"]].add(row["subset"])
    assert all(len(found) == 1 for found in subsets.values())
    assert {subset for found in subsets.values() for subset in found} == {"train", "validation", "test"}


def part_asked(prompt: str) -> dict:
    """A question on the passage of the prompt; it is of no use for `Thing 0` to `Thing 9`."""
    entity, number, answer = re.search(r"(Thing \d+) has as part (\d) (\w+)", prompt).groups()
    question = f"What is part {number} of {entity}?" if len(entity) > len("Thing 9") else "Which part is that?"
    return {"asked": {"question": question, "answer": answer}}


@pytest.mark.parametrize("limit", [1, 4, 7])
def test_an_lm_writes_on_no_more_entities_than_the_limit_takes(limit):
    passages = [
        Passage(f"{e}-{n}", f"Thing {e} has as part {n} word{n}.", f"Thing {e}") for e in range(30) for n in range(4)
    ]
    settings, done = SETTINGS.model_copy(update={"limit": limit}), []
    with scripted({s.AskAboutEntity: part_asked, s.JoinQuestions: joined}) as engine:
        singles, report = settings.write_single_hop(lambda: passages, Stages(listener=lambda p: done.append(p.done)))
        calls = len(engine.prompts)
        built = settings.join(singles, Stages())
    useless = report.left_out["single questions: the entity does not stand in the question"]
    assert 4 <= len(singles) == calls - useless <= 4 * limit
    assert done[-1] == calls and done == sorted(done)
    assert report.left_out["entities that the limit has no need of"] == 30 - calls // 4
    assert len(engine.prompts) - calls == limit and len(built.rows) == limit


def test_a_corpus_may_be_larger_than_memory():
    def corpus():
        """20 MB, read as files are."""
        return (Passage(str(n), f"{n} " + "word " * 2000, f"Thing {n % 50}") for n in range(2000))

    settings = SETTINGS.model_copy(update={"entities": 3, "documents": 4})
    with scripted({s.AskAboutEntity: "torn"}) as engine:
        settings.write_single_hop(lambda: [*corpus()][:100], Stages())  # imports what takes memory once
        before = len(engine.prompts)
        tracemalloc.start()
        settings.write_single_hop(corpus, Stages())
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 5e6
    assert len(engine.prompts) - before == 12


PAIR = [
    SingleHop("When was the Forth Bridge opened?", "1890", "Forth Bridge"),
    SingleHop("Who built the Forth Bridge?", "William Arrol", "Forth Bridge"),
]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"joinable": False, "question": "When and who?"}, "cannot be joined"),
        ({"question": "When was the Forth Bridge opened?"}, "not all parts"),
        (
            {"question": "When was the Forth Bridge, built by William Arrol, opened?"},
            "an answer stands in the question",
        ),
        ("torn", "no reply could be read"),
    ],
)
def test_what_is_no_compound_question_is_left_out_and_counted(reply, reason):
    with scripted({s.JoinQuestions: {"joinable": True, **reply} if isinstance(reply, dict) else reply}):
        built = SETTINGS.join(PAIR, Stages())
    assert built.rows == []
    [said] = [why for why in built.left_out if why.startswith("compound")]
    assert reason in said


PASSAGES = [
    Passage("1", "Yeast makes gas in dough.", "Bread"),
    Passage("2", "Bread is baked at 220 degrees.", "Bread"),
    Passage("3", "Cats sleep.", "Cats"),
    Passage("4", "Nameless.", ""),
]


def asked(prompt: str) -> dict:
    if "Yeast" in prompt:
        return {"asked": {"question": "What makes gas in Bread dough?", "answer": "Yeast"}}
    return {"asked": {"question": "How hot is Bread baked?", "answer": "500 degrees"}}


def test_single_questions_are_written_on_passages_of_an_entity():
    with scripted({s.AskAboutEntity: asked}) as engine:
        singles, report = SETTINGS.write_single_hop(lambda: PASSAGES, Stages())
    assert len(engine.prompts) == 2
    assert [(x.question, x.answer, x.entity, x.relevant[0].id) for x in singles] == [
        ("What makes gas in Bread dough?", "Yeast", "Bread", "1")
    ]
    assert report.left_out == {
        "passages without a title": 1,
        "entities with one passage": 1,
        "single questions: the answer does not stand in the passage": 1,
    }


@pytest.mark.parametrize(
    ("title", "question", "named"),
    [
        ("Yao Ming", "How tall was Yao Ming's father?", True),
        ("Yao Ming", "How tall was Yao Ming’s father?", True),
        ("The Beatles", "What was the Beatles’ first album?", True),
        ("Moore's law", "What does Moore’s law say?", True),
        ("Paris (mythology)", "Whom did Paris love?", True),
        ("Paris (mythology)", "Whom did Hector love?", False),
        ("(What's the Story) Morning Glory?", "When did Morning Glory come out?", False),
        ("Yao Ming", "How tall was Yao Mingsheng?", False),
    ],
)
def test_an_entity_is_named_also_by_its_possessive_and_without_what_is_in_brackets_behind_it(title, question, named):
    passages = [Passage(str(n), f"The answer is forty-{n}.", title) for n in range(2)]
    with scripted({s.AskAboutEntity: {"asked": {"question": question, "answer": "forty-1"}}}):
        singles, report = SETTINGS.write_single_hop(lambda: passages, Stages())
    assert [single.question for single in singles] == [question] * named
    assert report.left_out["single questions: the entity does not stand in the question"] == (not named)
