import json

import pytest

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.datasets.richrag import Pool, read_pools, write_pools

ROW = {
    "id": "q1",
    "question": "What is bread?",
    "sub_aspects": ["dough", "oven"],
    "passages": [
        {
            "id": "a",
            "text": "Dough rises.",
            "title": "Bread",
            "score": 2.5,
            "sub_aspects": [0, 1],
            "coverage": [1, 0.5],
        },
        {"id": "b", "text": "Ovens are hot.", "label": 2, "sub_aspects": [], "coverage": [0, 0]},
    ],
}


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_pools_are_read_as_they_were_written(tmp_path):
    [pool] = read_pools(write(tmp_path / "pools.jsonl", ROW))
    assert pool.passages[0].passage == Passage("a", "Dough rises.", "Bread", 2.5)
    assert pool.passage_aspects(pool.passages[0]) == ("dough", "oven") and pool.passage_aspects(pool.passages[1]) == ()
    assert write_pools(tmp_path / "deep" / "again.jsonl", [pool]) == 1
    assert read_pools(tmp_path / "deep" / "again.jsonl") == [pool]
    assert (
        Pool.model_validate({**ROW, "sub_aspects": ["x"], "passages": [{"id": 7, "text": "t"}]}).passages[0].id == "7"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"passages": []}, "at least 1 item"),
        ({"question": " "}, "blank"),
        ({"sub_aspects": ["dough"]}, "a sub-aspect that the pool has not"),
        ({"passages": [ROW["passages"][0]] * 2}, "twice"),
        ({"passages": [{**ROW["passages"][0], "coverage": [1]}, ROW["passages"][1]]}, "differ in what"),
        ({"passages": [{"id": "a", "text": "t", "coverage": []}]}, "differ in what"),
        ({"passages": [{"id": "a", "text": "t", "label": -1}]}, "greater than or equal to 0"),
        ({"passages": [{"id": "a", "text": "t", "coverage": [1.5]}]}, "less than or equal to 1"),
        ({"passages": [{"id": "a", "text": "t", "label": "2"}]}, "valid integer"),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path, change, reason):
    with pytest.raises(InputError, match=rf"pools\.jsonl, line 2 cannot be used: .*{reason}"):
        read_pools(write(tmp_path / "pools.jsonl", {**ROW, "id": "q0"}, {**ROW, **change}))


def test_ids_are_unique_and_there_is_a_pool(tmp_path):
    with pytest.raises(InputError, match="the id 'q1' twice"):
        read_pools(write(tmp_path / "pools.jsonl", ROW, ROW))
    with pytest.raises(InputError, match="holds no pool"):
        read_pools(write(tmp_path / "empty.jsonl"))
