import json

import pytest

from tests.commands import invoke as run
from typedrag.datasets import SPLITS, Row, load_dataset, sources, typed_rag

NF_CATS = "annotated_by,category,question\nauthors,REASON,Why is it so?\nmturk,DEBATE,Is it good?\n"


@pytest.fixture
def train(tmp_path):
    file = tmp_path / "train.csv"
    file.write_text(NF_CATS + "mturk,DEBATE,Is it good?\n")
    return file


def test_list_names_every_dataset_with_licence_and_home():
    rows = [json.loads(line) for line in run("datasets", "list", "--json").stdout.splitlines()]
    assert [row["name"] for row in rows] == [s.name for s in sources()]
    assert all(set(row) == {"name", "about", "licence", "home"} for row in rows)
    table = run("datasets", "list")
    assert (table.exit_code, table.stderr) == (0, "")
    for row in rows:
        assert all(value in table.stdout for value in row.values())


def test_show_counts_and_gives_the_first_question(train):
    facts = json.loads(run("datasets", "show", "nf-cats", "--path", train, "--json").stdout)
    dataset = load_dataset("nf-cats", train)
    assert facts["fingerprint"] == dataset.fingerprint
    assert facts["splits"] == {name: len(dataset.split(name)) for name in SPLITS}
    assert (facts["questions"], facts["subsets"]) == (2, {"train": 2})
    assert facts["question_types"] == {"debate": 1, "reason": 1}
    assert facts["skipped"] == [f"{train}, line 4: it repeats {train}, line 3"]
    assert (facts["licence"], facts["home"], facts["source"]) == (
        "MIT",
        "https://github.com/Lurunchik/NF-CATS",
        str(train),
    )
    assert facts["first"]["question"] == "Why is it so?"
    shown = run("datasets", "show", "nf-cats", "--path", train)
    for said in (
        "questions       2\n",
        "subsets         train 2\n",
        "debate 1, reason 1",
        "skipped         1\n",
        "line 4",
    ):
        assert said in shown.stdout
    assert shown.stderr == ""


def test_show_maps_fields(tmp_path):
    file = tmp_path / "mine.tsv"
    file.write_text("qid\tquery\tkind\n7\tWhy?\ta\n8\tHow?\tb\n")
    mapping = ("--field", "id=qid", "--field", "question=query", "--field", "subset=kind")
    facts = json.loads(run("datasets", "show", "file", "--path", file, *mapping, "--subset", "b", "--json").stdout)
    assert facts["first"] == {"id": "8", "question": "How?", "subset": "b"}


def test_check_says_what_is_wrong_and_what_can_be_measured(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("question,gold,passage_ids\nWhy?,a,p1\nHow?,b,\nWho?\n")
    facts = run("datasets", "check", file, "--field", "answers=gold", "--json")
    assert facts.exit_code == 1
    facts = json.loads(facts.stdout)
    assert (facts["questions"], facts["fields"]) == (2, {"question": 2, "id": 2, "answers": 2, "passage_ids": 1})
    assert [fault.partition(". ")[0] for fault in facts["faults"]] == [
        f"{file}, line 4 cannot be used: it has 1 columns, the header 3"
    ]
    assert facts["measurable"] | {"rouge": 2, "truthfulness": 2, "retrieval": 1} == facts["measurable"]
    assert facts["not_measurable"]["com-rouge"] == "the question has no sub-answers"
    assert {"coverage", "linkage", "question-type"} <= set(facts["not_measurable"])
    file.write_text("question,answers\nWhy?,a\n")
    done = run("datasets", "check", file)
    assert done.exit_code == 0
    assert done.stdout.startswith("1 usable questions, 0 faults\n")
    assert run("datasets", "check", tmp_path / "none.csv").exit_code == 2


def test_schema_is_that_of_a_row():
    assert json.loads(run("datasets", "schema").stdout) == Row.model_json_schema()


def test_fetch_says_where_it_is_kept(tmp_path, monkeypatch):
    import datasets

    for name in typed_rag.NF_CATS_FILES:
        (tmp_path / f"{name}.csv").write_text(NF_CATS)
    monkeypatch.setattr(typed_rag, "NF_CATS_HOME", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    done = run("datasets", "fetch", "nf-cats", "--subset", "train,valid")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'cache'}\n")
    assert "4 questions, 0 rows left out" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["show", "nfqa"],
            "no dataset is called 'nfqa'. Did you mean 'wiki-nfqa'? Datasets: 2wiki",
        ),
        (["show", "file"], "dataset 'file' is read from a file. Name it: --path"),
        (["show", "file", "--field", "question"], "'question' maps no field"),
        (["show", "antique", "--subset", "nq"], "dataset 'antique' has no option 'subset'"),
        (["show", "nf-cats", "--path", "{train}", "--subset", "dev"], "no subset is called 'dev'"),
        (["show", "wiki-nfqa", "--path", "{train}"], "does not say by its name which subset it is"),
        (["show", "webgpt", "--path", "{train}"], "train.csv, line 1 cannot be used: it is not JSON"),
        (["show", "squad", "--path", "missing"], "missing does not exist"),
        (["fetch", "sample"], "dataset 'sample' is not fetched from anywhere"),
        (["fetch", "wikiasp"], "lack the titles that its questions are made of"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(train, arguments, message):
    done = run("datasets", *(argument.format(train=train) for argument in arguments))
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert done.stdout == ""


def test_a_home_that_cannot_be_reached_is_another_exit_code(tmp_path, monkeypatch):
    monkeypatch.setattr(typed_rag, "NF_CATS_HOME", str(tmp_path / "nowhere"))
    done = run("datasets", "fetch", "nf-cats")
    assert done.exit_code == 3
    assert done.stderr.splitlines()[-1].endswith("Check the connection, or name a copy: --path")
