import gzip
import json

from tests.datasets.files import refusal, write_json
from typedrag.core.records import Reference
from typedrag.datasets import load_dataset

QUESTIONS = {
    "how so?": [
        {"doc_id": "7_1", "passage": "Poor.", "label": 2},
        {"doc_id": "7_0", "passage": "Good.", "label": 4},
        {"doc_id": "9_3", "passage": "Fair.", "label": 3},
    ],
    "why so?": [{"doc_id": "8_1", "passage": "Off.", "label": 1}],
}


def test_passages_are_references_best_first(tmp_path):
    dataset = load_dataset("antique", write_json(tmp_path / "ANTIQUE.json.gz", QUESTIONS))
    how, why = dataset.examples
    assert how.references == (Reference("Good.", 4), Reference("Fair.", 3), Reference("Poor.", 2))
    assert how.passage_ids == ("antique-7_0", "antique-9_3")
    assert how.passage_texts == tuple(reference.text for reference in how.references[:2])
    assert (why.question, why.passage_ids) == ("why so?", ())
    again = load_dataset("antique", tmp_path, passage_prefix="")
    assert again.examples[0].passage_ids == ("7_0", "9_3")
    assert [e.id for e in again.examples] == [how.id, why.id]


def test_rows_that_do_not_fit_are_named(tmp_path):
    def said(value) -> str:
        return refusal("antique", write_json(tmp_path / "antique.json", value))

    place = f"{tmp_path}/antique.json, question 'why?'"
    no_label = {"doc_id": "1", "passage": "Text."}
    assert said({"why?": [{**no_label, "label": 1}, no_label]}).startswith(f"{place}, [1] cannot be used: label: ")
    assert said({"why?": [{**no_label, "label": "4"}]}).startswith(f"{place}, [0] cannot be used: label: ")
    assert said({"why?": [{"passage": "Text.", "label": 1}]}).startswith(f"{place}, [0] cannot be used: doc_id: ")
    assert said({"why?": {}}).startswith(f"{place} cannot be used: it is no list")
    assert said({"why?": []}).startswith(f"{place} cannot be used: it has no question or no passage")
    assert said([]).startswith(f"{tmp_path}/antique.json cannot be used: it is no JSON object of questions")
    assert "holds no file of subset 'antique'. It should be called ANTIQUE.json or antique.json" in refusal(
        "antique", (tmp_path / "antique.json").rename(tmp_path / "other.json").parent
    )


def test_the_authors_file_and_the_corpus_fit_together(shared_data):
    dataset = load_dataset("antique", shared_data / "linkage")
    assert len(dataset.examples) == 300
    assert sum(len(e.references) for e in dataset.examples) == 6232
    with gzip.open(shared_data / "corpora" / "antique.jsonl.gz", "rt", encoding="utf-8") as lines:
        corpus = {row["id"]: row["text"] for row in map(json.loads, lines)}
    for example in dataset.examples:
        good = [" ".join(r.text.split()) for r in example.references if r.label >= 3]
        assert [corpus[i] for i in example.passage_ids] == good
        assert good
