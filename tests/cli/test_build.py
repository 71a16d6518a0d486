import json
import re
from functools import partial

import dspy
import pytest

from tests.builders.native import publish
from tests.builders.test_preqrag import REPLIES
from tests.commands import invoke
from tests.datasets.files import write, write_json, write_questions
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.datasets import load_dataset
from typedrag.datasets.sample import PASSAGES
from typedrag.lms import lm

run = partial(invoke, "datasets", "build")


@pytest.fixture
def files(tmp_path):
    return publish(tmp_path)


@pytest.fixture
def opened(monkeypatch):
    """The LM that the commands open replies by a script."""

    def open_scripted(replies):
        with scripted(replies) as engine:
            held, adapter = dspy.settings.lm, dspy.settings.adapter
        monkeypatch.setattr(lm, "open_lm", lambda *_, **__: held)
        monkeypatch.setattr(lm, "choose_adapter", lambda _: adapter)
        return engine

    return open_scripted


def joined(prompt):
    questions = json.loads(prompt.split("[[ ## questions ## ]]\n")[1].split("\n\n")[0])
    return {"joinable": True, "question": ", and ".join(q[:-1] for q in questions) + "?"}


def asked(prompt):
    name, word = re.search(r"(part \d+) of Bread is (\w+)", prompt).groups()
    return {"asked": {"question": f"What is {name} of Bread?", "answer": word}}


def test_compound_questions_of_a_squad_file(files, tmp_path, opened):
    joining = opened({s.JoinQuestions: joined, s.AskAboutEntity: asked})
    out = tmp_path / "made.jsonl"
    made = run("compound", "--questions", files["squad"], "--out", out, "--limit", 3, "--json")
    assert made.exit_code == 0, made.stderr
    said = json.loads(made.stdout)
    assert sum(said["rows"].values()) == len(load_dataset("compound", out).examples) == 3
    assert said["left out"] == {"entities with too few questions": 1}
    assert "left out: 1 (entities with too few questions)" in made.stderr
    calls = len(joining.prompts)
    again = run("compound", "--questions", files["squad"], "--out", out, "--limit", 3)
    assert (again.stdout.strip(), again.exit_code) == (str(out), 0)
    assert len(joining.prompts) == calls  # what was written is kept beside the file


def test_the_revelators_training_set_needs_no_lm(files, tmp_path):
    out = tmp_path / "revelator.jsonl"
    made = run("revelator", "--musique", files["musique"], "--single-step", files["nq"], "--out", out)
    assert (made.exit_code, made.stdout.strip()) == (0, str(out))
    assert "rows" in made.stderr and "refiner/" in made.stderr
    assert len(load_dataset("revelator", out, subset="ending").examples) == 3


_PARTS = ("train", "dev", "dev", "dev", "dev")


def test_the_routers_test_is_drawn_from_what_is_tested_on_and_measures_routers(files, tmp_path):
    out = tmp_path / "router-test.jsonl"
    places = {
        name: write_questions(name, tmp_path / name, [(f"Where is {name} {n}?", part) for n, part in enumerate(_PARTS)])
        for name in ("squad", "musique")
    }
    made = run(
        "router-test", "--straightforward", files["commonsense"], "--single-step", f"squad={places['squad']}",
        "--complex", f"musique={places['musique']}", "--compound", files["compound"], "--each", 3,
        "--out", out, "--json",
    )  # fmt: skip
    assert made.exit_code == 0, made.stderr
    counts = json.loads(made.stdout)["rows"]
    assert counts == {
        "complex/musique": 3,
        "compound/compound": 1,
        "single-step/squad": 3,
        "straightforward/straightforward": 1,
    }
    given = ["research", "revelator", "evaluate", out, "--role", "router", "-o", "hanrag.router=rule", "--json"]
    score = json.loads(invoke(*given).stdout)
    assert (score["role"], score["n"], score["failed"]) == ("router", 8, 0)


@pytest.mark.parametrize("given", [(), ("--questions", "squad", "--passages", "squad")])
def test_questions_or_passages(files, tmp_path, given):
    arguments = [files.get(a, a) for a in given]
    made = run("compound", *arguments, "--out", tmp_path / "made.jsonl")
    assert made.exit_code == 2 and "--questions or --passages" in made.stderr


def test_the_long_answers_of_wikipassageqa_are_divided(tmp_path, opened):
    write(tmp_path / "train.tsv", "QID\tQuestion\tDocumentID\tRelevantPassages\n1\tWhy do they play?\t9\t0,1\n")
    write_json(tmp_path / "document_passages.json", {"9": {"0": "They like it.", "1": "They learn by it."}})
    parts = [{"sub_aspect": "pleasure", "begins": 1}, {"sub_aspect": "use", "begins": 2}]
    opened({s.DivideAnswer: {"parts": parts}})
    made = run("aspects", "--path", tmp_path, "--out", tmp_path / "made.jsonl", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["questions"] == {"train": 1}
    [example] = load_dataset("file", tmp_path / "made.jsonl").examples
    assert (example.aspects, example.sub_answers) == (("pleasure", "use"), ("They like it.", "They learn by it."))
    assert example.passage_ids == ("9_0", "9_1")


def test_synthetic_questions_on_the_passages_of_an_index_or_of_files(tmp_path, opened, sample_index):
    opened(REPLIES)
    made = {}
    for name, where in (("index", ("--index", sample_index)), ("files", ("--passages", PASSAGES))):
        out = tmp_path / f"{name}.jsonl"
        done = run("preqrag", *where, "--single", 3, "--multi", 2, "--only", "turn=first-turn", "--out", out, "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["rows"] == {"multi-document": 2, "single-document": 3}
        made[name] = [json.loads(line) for line in out.read_text().splitlines()]
        assert {row["categories"]["turn"] for row in made[name]} == {"first-turn"}
        assert len(load_dataset("file", out, subset="multi-document").examples) == 2
    assert made["index"] == made["files"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--only", "first-turn"), "chooses nothing"),
        (("--only", "turn=third"), "is no category of 'turn'"),
        (("--index", "x", "--passages", "."), "Give --index or --passages"),
        (("--passages", ".", "--retriever", "dense"), "are searched by BM25, not by 'dense'"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(tmp_path, opened, sample_index, monkeypatch, arguments, problem):
    monkeypatch.setenv("TYPEDRAG_INDEX", str(sample_index))
    opened(REPLIES)
    done = run("preqrag", *arguments, "--out", tmp_path / "made.jsonl")
    assert done.exit_code == 2 and problem in done.stderr
