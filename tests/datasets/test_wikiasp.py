from collections import Counter

import pytest

from tests.datasets.files import refusal, write, write_jsonl
from typedrag.core.records import Reference
from typedrag.datasets import load_dataset


def row(exid: str, *aspects: str, **other) -> dict:
    targets = [[aspect, f"about its {aspect} ."] for aspect in aspects]
    return {"exid": exid, "inputs": ["a cited sentence"], "targets": targets, **other}


@pytest.fixture
def folder(tmp_path):
    write_jsonl(tmp_path / "Album" / "train.jsonl", row("train-0-1", "recording", "release", "tour", title="Blue"))
    write_jsonl(tmp_path / "Album" / "test.jsonl", row("test-0-1", "recording", "release", "tour"))
    write_jsonl(tmp_path / "Town" / "test.jsonl", row("test-1-7", "history", "economy", "sport"))
    return tmp_path


def test_an_article_is_a_question_with_sub_answers(folder):
    [example] = load_dataset("wikiasp", folder / "Album" / "train.jsonl").examples
    assert (example.id, example.subset) == ("train-0-1", "Album")
    assert example.question == "Generate a summary about Blue"
    assert example.aspects == ("recording", "release", "tour")
    assert example.sub_answers == ("about its recording .", "about its release .", "about its tour .")
    assert example.references == (Reference("about its recording . about its release . about its tour .", 1),)


def test_titles_come_from_the_row_or_a_file(folder):
    titles = write(folder / "titles.tsv", "exid\ttitle\ntest-0-1\tHejira\n")
    dataset = load_dataset("wikiasp", folder)
    assert [e.question for e in dataset.examples] == [
        "Generate a summary about Blue",
        "Generate a summary about Hejira",
    ]
    assert dataset.skipped == (f"{folder}/Town/test.jsonl, line 1: the title of article 'test-1-7' is not known",)
    titles.rename(folder / "Album" / "titles.tsv")
    assert len(load_dataset("wikiasp", folder / "Album").examples) == 2
    assert "holds no question of dataset 'wikiasp' (first left out: " in refusal("wikiasp", folder, subset="Town")


def test_articles_of_few_aspects_are_listed(folder):
    file = folder / "Album" / "train.jsonl"
    write_jsonl(file, row("a", "x", "y", title="A"), row("b", "x", title="B"))
    assert load_dataset("wikiasp", file).skipped == (f"{file}, line 2: article 'b' has fewer than 2 aspects",)


def test_as_many_of_each_domain_are_dealt_out_ten_to_one_to_one(tmp_path):
    for domain, count in (("Album", 30), ("Town", 40), ("Film", 5)):
        rows = [row(f"{domain}-{n}", "x", "y", title=f"{domain} {n}") for n in range(count)]
        write_jsonl(tmp_path / domain / "train.jsonl", *rows[:-1])
        write_jsonl(tmp_path / domain / "test.jsonl", rows[-1])
    drawn = load_dataset("wikiasp", tmp_path, per_domain=24)
    counts = {part: Counter(e.subset for e in drawn.split(part)) for part in ("train", "validation", "test")}
    assert counts["train"] == {"Album": 20, "Town": 20, "Film": 3}
    assert counts["validation"] == counts["test"] == {"Album": 2, "Town": 2, "Film": 1}
    assert drawn.default_split == "test"
    assert {e.id for e in load_dataset("wikiasp", tmp_path, per_domain=12).examples} < {e.id for e in drawn.examples}
    assert len(load_dataset("wikiasp", tmp_path).split("test")) == 3
    assert "0 articles of a domain are none" in refusal("wikiasp", tmp_path, per_domain=0)


def test_rows_and_domains_that_do_not_fit_are_named(folder):
    file = write_jsonl(folder / "Album" / "train.jsonl", {"exid": "a", "targets": [["x"]], "title": "A"})
    assert refusal("wikiasp", file).startswith(f"{file}, line 1 cannot be used: targets.0.1: ")
    assert "no subset is called 'Poem'. Subsets: Album, Animal" in refusal("wikiasp", folder, subset="Poem")
    assert f"{folder}/Film does not exist" in refusal("wikiasp", folder, subset="Film")
    write(folder / "titles.tsv", "exid\ttitle\na\t\n")
    assert refusal("wikiasp", folder).startswith(f"{folder}/titles.tsv, line 2 cannot be used: title: ")


def test_without_a_copy_it_says_what_is_missing():
    assert "lack the titles that its questions are made of. Name a copy" in refusal("wikiasp")
