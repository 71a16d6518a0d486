from collections import Counter
from pathlib import Path

import pytest

from tests.builders.native import COMPOUND, MUSIQUE, build_rows, publish
from tests.datasets.files import write_jsonl
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.builders.builder import part_by_hash
from typedrag.builders.revelator import RouterTest
from typedrag.core.errors import InputError
from typedrag.core.question_types import Route
from typedrag.datasets import load_dataset
from typedrag.files.text_files import write_json_lines


@pytest.fixture
def files(tmp_path):
    return publish(tmp_path)


def rows_of(built, role, **wanted):
    return [r for r in built.rows if r["role"] == role and all(r[k] == v for k, v in wanted.items())]


def test_each_source_teaches_the_roles_that_the_paper_draws_from_it(files, tmp_path):
    sources = {
        "straightforward": files["commonsense"],
        "single_step": (files["nq"], files["dpr"]),
        "musique": files["musique"],
        "two_wiki": files["two_wiki"],
        "compound": files["compound"],
    }
    built = build_rows(**sources)
    assert Counter((r["role"], r["origin"]) for r in built.rows) == {
        ("router", "straightforward"): 1,
        ("router", "single-step"): 2,
        ("router", "musique"): 4,  # the question and its three steps
        ("router", "compound"): 1,  # of the train subset alone
        ("decomposer", "compound"): 1,
        ("refiner", "single-step"): 2,
        ("refiner", "musique"): 3,
        ("refiner", "2wikimultihopqa"): 2,
        ("relevance", "single-step"): 2,
        ("relevance", "musique"): 9,
        ("relevance", "2wikimultihopqa"): 4,
        ("ending", "musique"): 3,
        ("ending", "2wikimultihopqa"): 2,
    }
    write_json_lines(tmp_path / "made.jsonl", built.rows)
    dataset = load_dataset("revelator", tmp_path / "made.jsonl")
    assert len(dataset.examples) == len(built.rows)


def test_steps_teach_what_is_next_and_when_it_ends(files):
    built = build_rows(musique=files["musique"])
    refined = sorted(rows_of(built, "refiner"), key=lambda r: len(r["solved"]))
    assert [r["query"] for r in refined] == [
        "Who designed the Forth Bridge?",
        "Where was John Fowler born?",
        "Which river flows through Sheffield?",
    ]
    assert refined[1]["solved"] == [{"question": "Who designed the Forth Bridge?", "answer": "John Fowler"}]
    ended = sorted(rows_of(built, "ending"), key=lambda r: len(r["solved"]))
    assert [(len(r["solved"]), r["ending"]) for r in ended] == [(1, False), (2, False), (3, True)]
    assert {r["route"] for r in rows_of(built, "router", question=MUSIQUE["question"])} == {"complex"}
    assert len({r["part"] for r in (*refined, *ended)}) == 1  # one question is in one part


def test_compound_questions_about_one_entity_are_in_one_part(tmp_path):
    rows = [
        {**COMPOUND, "id": f"{e}-{n}", "entity": f"Bridge {e}", "question": f"When and how was bridge {e} built, {n}?"}
        for e in range(20)
        for n in range(3)
    ]
    file = write_jsonl(tmp_path / "compound.jsonl", *rows)
    built = build_rows(compound=file, validation_share=0.3, test_share=0.3)
    parts = [{r["part"] for r in built.rows if f"bridge {e} " in r["question"]} for e in range(20)]
    assert all(len(found) == 1 for found in parts) and len(set.union(*parts)) == 3
    assert all("entity" not in row for row in built.rows)


def test_relevance_is_labelled_by_the_source(files):
    built = build_rows(musique=files["musique"], noise=1)
    about = rows_of(built, "relevance", question="Where was John Fowler born?")
    assert {(r["passage"]["title"] == "John Fowler", r["relevant"]) for r in about} == {(True, True), (False, False)}
    assert len(about) == 2


def test_questions_typed_into_a_search_engine_are_refined_to_themselves(files):
    built = build_rows(single_step=(files["nq"],))
    [row] = rows_of(built, "refiner")
    assert (row["question"], row["solved"], row["query"]) == ("where is leeds", [], "where is leeds?")


def test_what_is_tested_on_is_not_learnt(files, tmp_path):
    tested = write_jsonl(tmp_path / "tested.jsonl", {"question": "Where is Leeds?"})
    built = build_rows(single_step=(files["nq"],), straightforward=files["commonsense"], exclude=(tested,))
    assert [r["origin"] for r in built.rows] == ["straightforward"]
    assert built.left_out == {"the question is tested on": 2}


def test_the_limit_is_the_rows_of_a_kind_that_are_trained_on(tmp_path):
    rows = [{"question": f"where is town {n}", "answer": ["here"]} for n in range(100)]
    file = write_jsonl(tmp_path / "nq.jsonl", *rows)
    settings = {"single_step": (file,), "limit": 10, "validation_share": 0.2, "test_share": 0.3}
    built = build_rows(**settings)
    assert Counter((r["role"], r["part"]) for r in built.rows) == {
        (role, part): n for role in ("router", "refiner") for part, n in (("train", 10), ("validation", 4), ("test", 6))
    }
    assert built.left_out == {"more than the 10 wanted of their kind": 160}
    assert build_rows(**settings).rows == built.rows


def test_a_route_has_one_limit_whatever_its_questions_come_from(tmp_path):
    single = write_jsonl(tmp_path / "nq.jsonl", *({"question": f"where is town {n}"} for n in range(30)))
    chains = [
        {**MUSIQUE, "id": str(n), "question": f"Which river flows by bridge {n}?", "question_decomposition": [
            {**hop, "question": f"{hop['question']} of {n}?"} for hop in MUSIQUE["question_decomposition"]
        ]}
        for n in range(30)
    ]  # fmt: skip
    musique = write_jsonl(tmp_path / "musique.jsonl", *chains)
    built = build_rows(single_step=(single,), musique=musique, limit=20, validation_share=0, test_share=0)
    routed = rows_of(built, "router", route="single-step")
    assert len(routed) == 20 and {r["origin"] for r in routed} == {"single-step", "musique"}
    assert len(rows_of(built, "refiner", origin="single-step")) == 20


def test_rows_that_cannot_be_written_or_contradict_are_left_out(tmp_path):
    same = {"question": "where is leeds", "answer": ["x"]}
    single = write_jsonl(tmp_path / "nq.jsonl", same, same, {"question": "who? or what is it", "answer": ["x"]})
    stem = write_jsonl(tmp_path / "easy.jsonl", {"question": {"stem": "where is leeds"}})
    built = build_rows(straightforward=stem, single_step=(single,))
    assert built.left_out == {
        "it came before with another label": 2,
        "it came before": 1,
        "refiner: it cannot be written so": 1,
    }


def test_without_a_file_or_a_share_for_training_there_is_nothing_to_learn_from():
    with pytest.raises(InputError, match="nothing to learn from"):
        build_rows()
    with pytest.raises(InputError, match="Lower the shares for validation and test"):
        build_rows(validation_share=0.5, test_share=0.5)


def test_an_lm_may_label_relevance(files):
    built = build_rows(musique=files["musique"])

    def judged(prompt):
        return "torn" if "Tay Bridge" in prompt else {"relevant": "John Fowler designed" in prompt}

    with scripted({s.JudgeRelevance: judged}):
        labelled = build_rows(musique=files["musique"], label_relevance=True)
    assert {r["passage"]["title"] for r in rows_of(labelled, "relevance", relevant=True)} == {"Forth Bridge"}
    torn = sum(r["passage"]["title"] == "Tay Bridge" for r in rows_of(built, "relevance"))
    assert labelled.left_out["relevance: no label could be read"] == torn > 0
    assert rows_of(labelled, "refiner") == rows_of(built, "refiner")


FILE = Path(__file__)


def asked(route: str, count: int) -> list[str]:
    return [f"What is {route} {n}?" for n in range(count)]


def test_each_route_has_as_many_questions_and_each_of_its_origins_an_equal_share():
    questions = {
        Route.SINGLE_STEP: {name: asked(name, 50) for name in ("squad", "nq", "triviaqa")},
        Route.COMPLEX: {"musique": asked("musique", 50), "hotpotqa": asked("hotpotqa", 2)},
    }

    def draw(seed=0):
        test = RouterTest(
            straightforward=(FILE,), single_step=("x",), complex=("x",), compound=FILE, each=10, seed=seed
        )
        return test.draw(questions)

    built = draw()
    assert Counter((r["route"], r["origin"]) for r in built.rows) == {
        ("single-step", "squad"): 4, ("single-step", "nq"): 3, ("single-step", "triviaqa"): 3,
        ("complex", "musique"): 5, ("complex", "hotpotqa"): 2,
    }  # fmt: skip
    assert {(r["role"], r["part"]) for r in built.rows} == {("router", "test")}
    assert draw() == built != draw(seed=1)


def test_parts_have_their_shares():
    parts = [part_by_hash(f"question {n}", 0, validation=0.2, test=0.1) for n in range(2000)]
    assert abs(parts.count("validation") / 2000 - 0.2) < 0.03 and abs(parts.count("test") / 2000 - 0.1) < 0.03
    assert part_by_hash("x", 0, validation=0, test=0) == "train"
