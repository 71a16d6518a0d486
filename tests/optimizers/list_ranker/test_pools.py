"""Pools out of graded passages and of judged runs."""

from dataclasses import replace
from itertools import permutations

import dspy
import pytest

from tests.datasets.files import write_jsonl
from tests.experiments.runs import question, run
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.errors import InputError
from typedrag.core.records import Passage, Reference, Step
from typedrag.datasets.richrag import load_richrag, read_candidates
from typedrag.experiments.results import MetricResult
from typedrag.optimizers.list_ranker.measures import utility_table
from typedrag.optimizers.list_ranker.pools import (
    find_scale,
    golden_aspects,
    has_sub_answers,
    pools_from_candidates,
    pools_from_labels,
    pools_from_runs,
    pools_from_sub_answers,
    predicted_aspects,
)
from typedrag.optimizers.list_ranker.preferences import gold_answers
from typedrag.programs import Options
from typedrag.programs.richrag import SubAspectExplorer
from typedrag.runs.work import Stages

TEXTS = {
    "i1": "Old yeast makes little gas.",
    "i2": "Too much flour makes bread heavy.",
    "i3": "Cats sleep all day.",
    "i4": "Cold dough rises slowly.",
    "i5": "cold  dough rises SLOWLY.",
}
EXAMPLE = dspy.Example(
    id="q1",
    question="Why is bread dense?",
    references=(
        Reference("Old yeast makes little gas.", 4),
        Reference("Cold dough rises  slowly.", 3),
        Reference("Bread is an old food.", 2),
        Reference("Who cares?", 1),
    ),
    passage_ids=("x1", "x4"),
)


class Fixed:
    """Finds what is written down for a query, by default all passages in the order of their ids."""

    def __init__(self, found=None):
        self.found = found

    def search(self, queries, k):
        return [[Passage(i, TEXTS[i]) for i in (TEXTS if self.found is None else self.found[q])][:k] for q in queries]


def pools(example=EXAMPLE, **options):
    return list(pools_from_labels([example], Fixed(), find_scale([EXAMPLE]), **options))


def test_passages_have_the_labels_of_references_with_the_same_words():
    [pool] = pools(depth=3)
    assert pool.relevant_from == 2
    labels = {p.id: p.label for p in pool.passages}
    assert list(labels)[:4] == ["i1", "i2", "i3", "i4"]  # i4 from further down, since it has a label; i5 says the same
    assert labels["i1"] == 3 and labels["i2"] is None and labels["i4"] == 2
    assert {p.text: p.label for p in pool.passages[4:]} == {"Bread is an old food.": 1, "Who cares?": 0}
    assert {p.id for p in pool.passages[4:]} == {"q1-0", "q1-1"} and pool.passages[4].score == 0.0


def test_what_is_to_be_covered_are_the_relevant_passages():
    [pool] = pools(depth=3)
    covers = {p.text: p.coverage for p in pool.passages}
    assert covers["Old yeast makes little gas."] == [1.0, 0.0]
    assert covers["Cold dough rises slowly."] == [0.0, 0.6667]  # its label is 2 of 3
    assert covers["Cats sleep all day."] == covers["Who cares?"] == [0.0, 0.0]


def test_those_that_were_not_found_come_in_an_order_that_says_nothing_of_their_labels():
    orders = [EXAMPLE.copy(references=order) for order in permutations(EXAMPLE.references)]
    assert len({pools(example)[0].passages[-1].text for example in orders}) == 1


def test_references_that_are_no_graded_passages_are_refused():
    for references, ids in (((), ()), ((Reference("good", 3),), ("a",)), (EXAMPLE.references, ())):
        with pytest.raises(InputError, match="no graded passages"):
            find_scale([dspy.Example(references=references, passage_ids=ids)])


SUMMARY = dspy.Example(
    id="w1",
    question="Generate a summary about bread",
    references=(Reference("Old yeast makes gas. Cold dough rises slowly.", 1),),
    aspects=("yeast", "dough"),
    sub_answers=("Old yeast makes gas.", "Cold dough rises slowly."),
)
FOUND = {"Generate a summary about bread yeast": ("i1", "i3"), "Generate a summary about bread dough": ("i4", "i1")}


def test_what_known_sub_aspects_find_is_pooled_with_what_is_to_be_covered():
    assert has_sub_answers([SUMMARY]) and not has_sub_answers([SUMMARY, EXAMPLE])
    [pool] = pools_from_sub_answers([SUMMARY], Fixed(FOUND), golden_aspects([SUMMARY]))
    assert pool.sub_aspects == ["yeast", "dough"]
    assert {p.id: p.sub_aspects for p in pool.passages} == {"i1": [0, 1], "i4": [1], "i3": [0]}
    assert gold_answers(pool) == (SUMMARY.references[0].text, list(SUMMARY.sub_answers))
    covers = {p.id: p.coverage for p in pool.passages}
    assert covers == {"i1": [0.8333, 0], "i4": [0, 1], "i3": [0, 0]}  # the first: (2 / 3 + 1) / 2
    bare = [p.model_copy(update={"coverage": None}) for p in pool.passages]
    computed = utility_table(pool.model_copy(update={"passages": bare}))
    assert utility_table(pool).tolist() == [pytest.approx(row, abs=1e-4) for row in computed.tolist()]
    [few] = pools_from_sub_answers([SUMMARY], Fixed(FOUND), golden_aspects([SUMMARY]), depth=1, limit=1)
    assert [p.id for p in few.passages] == ["i1"]
    nothing = Fixed(dict.fromkeys(FOUND, ()))
    assert list(pools_from_sub_answers([SUMMARY], nothing, golden_aspects([SUMMARY]))) == []


def test_a_passage_is_relevant_by_its_id_or_by_its_rouge_with_the_answer():
    found = Fixed({SUMMARY.question: ("i1", "i3", "i4")})
    answer = "Old yeast brings much gas quickly."  # i1 has 3 of its 6 words and 1 of its 5 pairs
    example = SUMMARY.copy(references=(Reference(answer, 1),), passage_ids=("i4",))
    [pool] = pools_from_sub_answers([example], found, {}, limit=None)
    assert pool.sub_aspects == [] and all(p.sub_aspects == [] for p in pool.passages)
    assert {p.id: p.label for p in pool.passages} == {"i1": 0, "i3": 0, "i4": 1}
    near = example.copy(references=(Reference("Old yeast makes little gas or none.", 1),))
    assert next(pools_from_sub_answers([near], found, {})).passages[0].label == 1


def test_a_pool_may_come_in_the_order_of_rank_fusion():
    found = {"Generate a summary about bread yeast": ("i1", "i3"), "Generate a summary about bread dough": ("i4", "i3")}
    golden = golden_aspects([SUMMARY])
    turns, fused = (next(pools_from_sub_answers([SUMMARY], Fixed(found), golden, fuse=f)) for f in (False, True))
    assert [p.id for p in turns.passages] == ["i1", "i4", "i3"]
    assert [p.id for p in fused.passages] == ["i3", "i1", "i4"]
    assert {p.id: p.sub_aspects for p in fused.passages} == {"i1": [0], "i4": [1], "i3": [0, 1]}


def test_predicted_sub_aspects_are_searched_for_as_the_program_does():
    examples = [SUMMARY, SUMMARY.copy(id="w2", question="What is bread?"), SUMMARY.copy(id="w3", question="Bread?")]

    def named(prompt: str):
        return "torn" if "What is bread?" in prompt else {"sub_aspects": ["yeast", "Yeast", "crust"]}

    with scripted({s.ExploreSubAspects: named}):
        aspects = predicted_aspects(examples, SubAspectExplorer(Options(retries=0)), Stages(1))
    assert aspects == {"w1": ["yeast", "crust"], "w2": [], "w3": ["yeast", "crust"]}
    found = {f"{SUMMARY.question} yeast": ("i1",), f"{SUMMARY.question} crust": ("i4",)}
    [pool] = pools_from_sub_answers(examples[:1], Fixed(found), aspects)
    assert pool.sub_aspects == ["yeast", "crust"] and pool.sub_answers == list(SUMMARY.sub_answers)
    with pytest.raises(InputError, match="question 'q1' has no sub-aspects"):
        golden_aspects([SUMMARY, EXAMPLE])


PASSAGES = tuple(Passage(i, text) for i, text in list(TEXTS.items())[:3])


def judged(number: int, passages, sub_questions, queries=()):
    found = question(number, text="Why is bread dense?")
    details = {"sub_questions": [{"text": t, "type": kind, "retrieved": r} for t, kind, r in sub_questions]}
    steps = tuple(Step("query", q, passage_ids=ids) for q, ids in queries)
    answer = replace(found.answer, passages=passages, steps=(Step("retrieve", steps=steps),))
    return replace(found, answer=answer, metrics={"coverage": MetricResult(0.5, details=details)})


SUB = [
    ("What does yeast do?", "core", [True, False]),
    ("What is bread?", "background", [True, True]),
    ("What does flour do?", "core", [False, True]),
]


def test_runs_with_judged_passages_become_pools_of_all_of_them():
    queries = [
        ("Why is bread dense? yeast", ("i1", "i3")),
        ("Why is bread dense? flour", ("i2",)),
        ("Why is bread dense?", ("i1",)),
    ]
    first = run("a", judged(0, PASSAGES[:2], SUB, queries))
    third = [(t, kind, [False]) for t, kind, _ in SUB]
    second = run("b", judged(0, PASSAGES[2:], third, [("Why is bread dense? yeast", ("i3",))]))
    [pool] = pools_from_runs([first, second])
    assert pool.sub_aspects == ["yeast", "flour"]
    assert {p.id: p.coverage for p in pool.passages} == {"i1": [1, 0], "i2": [0, 1], "i3": [0, 0]}
    assert {p.id: p.sub_aspects for p in pool.passages} == {"i1": [0], "i2": [1], "i3": [0]}


def test_runs_that_judged_by_other_sub_questions_do_not_mix():
    others = [(f"{t} (more)", kind, r) for t, kind, r in SUB]
    with pytest.raises(InputError, match="different sub-questions"):
        pools_from_runs([run("a", judged(0, PASSAGES[:2], SUB)), run("b", judged(0, PASSAGES[:2], others))])


def test_a_judgment_that_failed_leaves_out_one_answer_and_blanks_no_sub_aspect():
    first = judged(0, PASSAGES[:2], SUB, [("Why is bread dense? yeast", ("i1",))])
    first = replace(first, question=" Why is bread dense? ")  # as the dataset has it; programs ask without blanks
    failed = replace(judged(0, PASSAGES[2:], SUB), metrics={"coverage": MetricResult(None, problem="unreadable")})
    [pool] = pools_from_runs([run("a", first), run("b", failed)])
    assert [p.id for p in pool.passages] == ["i1", "i2"] and pool.sub_aspects == ["yeast"]


def test_runs_without_judged_passages_are_refused():
    unjudged = judged(0, PASSAGES[:2], [(t, kind, []) for t, kind, _ in SUB])
    for results in ((), (question(0, {"mrr": 0.5}),), (unjudged,)):
        with pytest.raises(InputError, match="no judged passages"):
            pools_from_runs([run("a", *results)])


def test_pools_are_the_candidates_that_richrag_s_authors_publish(tmp_path):
    """Rows in the layout of their files; the rows of a question that is asked twice are in the order of lines."""
    write_jsonl(
        tmp_path / "data_test.jsonl",
        {"question": "Why?", "answers": [{"answer": "old yeast"}], "subqs": ["Why? yeast"], "subas": ["old yeast"]},
        {"question": "Why?", "answer": "cold dough", "subqs": ["cold"], "subas": ["cold dough"]},
    )
    document = {"id": "7", "title": "Bread", "section": "Rising", "text": "It is old yeast."}
    write_jsonl(
        tmp_path / "candidates.jsonl",
        {
            "question": "Why?",
            "passages": [
                {"subqs": ["Why? flour"], "doc": {"title": "Flour", "text": "Heavy flour."}},
                {"subqs": ["Why? flour", "Why? yeast"], "doc": document},
                {"subqs": ["Why? flour"], "doc": {"title": "Salt", "section": "", "text": "Salt."}},
            ],
        },
        {"question": "Why?", "passages": [{"subqs": ["cold"], "doc": {"title": "Dough", "text": "cold dough"}}]},
    )
    examples = load_richrag(tmp_path / "data_test.jsonl").examples
    one, other = pools_from_candidates(examples, read_candidates(tmp_path / "candidates.jsonl"), limit=2)
    assert [p.passage.titled for p in one.passages] == ["Flour\nHeavy flour.", "Bread: Rising\nIt is old yeast."]
    assert [one.passage_aspects(p) for p in one.passages] == [("Why? flour",), ("Why? flour", "Why? yeast")]
    assert [p.coverage for p in one.passages] == [[0.0], [1.0]] and one.sub_answers == ["old yeast"]
    assert [p.text for p in other.passages] == ["cold dough"] and other.passages[0].label == 1
    with pytest.raises(InputError, match="no passages for 'Why"):
        list(pools_from_candidates(examples, []))
