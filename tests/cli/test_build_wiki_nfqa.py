import json
from functools import partial

import pytest

from tests.builders.test_wiki_nfqa import Writer
from tests.commands import invoke
from tests.datasets.files import write_jsonl
from tests.programs.artifact.test_compiled import ABOUT, compiled
from tests.scripted import signatures as s
from typedrag.datasets import load_dataset
from typedrag.lms import lm as lms
from typedrag.lms.adapter import SchemaAdapter
from typedrag.lms.specs import split_address
from typedrag.programs import Options
from typedrag.programs.compiled import save_compiled


@pytest.fixture
def opened(monkeypatch):
    """The LMs that the command opens, by spec, with the addresses they were opened at."""
    writers, addresses = {}, {}

    def open_lm(spec=None, *, api_base=None, **_):
        spec, own = split_address(spec or "none")
        addresses[spec] = own or api_base
        name = spec.rpartition(":")[2]
        return writers.setdefault(name, Writer(name, {s.ClassifyQuestion: {"question_type": "debate"}})).lm

    monkeypatch.setattr(lms, "open_lm", open_lm)
    monkeypatch.setattr(lms, "choose_adapter", lambda _: SchemaAdapter())
    return writers, addresses


@pytest.fixture
def questions(tmp_path):
    rows = [{"question": f"Why is thing {n} odd?", "answer": f"truth {n}"} for n in range(3)]
    return write_jsonl(tmp_path / "mine.jsonl", *rows, {"question": "Who made thing 9?", "answer": "truth 9"})


run = partial(invoke, "datasets", "build", "wiki-nfqa")


def test_a_set_is_built_shown_and_built_again_for_nothing(tmp_path, questions, opened):
    writers, addresses = opened
    out = tmp_path / "made.jsonl"
    names = ("--lm", "vllm:ada@http://one/v1", "--lm", "vllm:bob", "--lm", "openai/cyd", "--superior", "vllm:sue")
    build = ("--questions", questions, "--out", out, *names, "--annotator", "vllm:ann", "--api-base", "http://two/v1")
    made = run(*build, "--json")
    assert made.exit_code == 0, made.output
    said = json.loads(made.stdout)
    assert said["rows"] == {"mine/reason": 3}
    assert said["left out"] == {"questions: worded like no non-factoid question": 1}
    assert "left out: 1 (questions: worded" in made.stderr
    assert addresses["vllm:ada"] == "http://one/v1" and addresses["vllm:bob"] == "http://two/v1"
    assert {name: len(w.engine.prompts) for name, w in writers.items()} == dict.fromkeys(writers, 3)
    dataset = load_dataset("wiki-nfqa", out)
    assert {len(e.references) for e in dataset.examples} == {11}
    shown = invoke("datasets", "show", "wiki-nfqa", "--path", str(out), "--json")
    assert json.loads(shown.stdout)["subsets"] == {"mine": 3}
    again = run(*build)
    assert (again.exit_code, again.stdout.strip()) == (0, str(out))
    assert sum(len(w.engine.prompts) for w in writers.values()) == 15


def test_the_classifier_may_be_any_make_or_that_of_a_compiled_program(tmp_path, questions, opened):
    writers, _ = opened
    common = ("--questions", questions, "--out", tmp_path / "made.jsonl", "--no-patterns", "--json")
    by_lm = run(*common, "--type-classifier", "lm")
    assert json.loads(by_lm.stdout)["rows"] == {"mine/debate": 4}, by_lm.output
    save_compiled(compiled("typed_rag", Options(type_classifier="lm")), tmp_path / "program", ABOUT)
    before = len(writers["none"].engine.prompts)
    by_program = run(*common, "--program", tmp_path / "program")
    assert json.loads(by_program.stdout)["rows"] == {"mine/debate": 4}, by_program.output
    assert len(writers["none"].engine.prompts) == before + 4  # its demonstrations make it another classifier


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--type-classifier", "king"), "king"),
        (("--type-classifier", "lm", "--program", "x"), "Give --type-classifier or --program"),
        (("--program", "./rag"), "is a compiled rag, which has no type classifier"),
        (("--questions", "nowhere"), "neither a dataset nor a file"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(tmp_path, questions, opened, monkeypatch, arguments, problem):
    save_compiled(compiled("rag", Options()), tmp_path / "rag", ABOUT)
    monkeypatch.chdir(tmp_path)
    made = run("--questions", questions, "--out", tmp_path / "made.jsonl", *arguments)
    assert made.exit_code == 2 and problem in made.stderr
    assert not (tmp_path / "made.jsonl").exists()
