import csv
import gzip
from itertools import islice

import pytest

from benchmarks import scale
from typedrag.retrieval import build_index, read_passages


@pytest.fixture(autouse=True)
def fewer_words(monkeypatch):
    monkeypatch.setattr(scale, "RARE_WORDS", 2_000)


def test_passages_have_the_shape_of_dpr(tmp_path):
    file = tmp_path / "passages.tsv.gz"
    scale.write_passages(file, 30)
    with gzip.open(file, "rt", encoding="utf-8", newline="") as text:
        header, *rows = csv.reader(text, delimiter="\t")
    assert header == ["id", "text", "title"]
    assert [row[0] for row in rows] == [str(number) for number in range(1, 31)]
    assert {len(row[1].split()) for row in rows} == {100}
    assert len({row[2] for row in rows}) == 5, "six passages of each article"
    assert list(read_passages([file])) == list(scale.generated_passages(30))


def test_small_files_are_the_beginnings_of_large_ones():
    small = list(scale.generated_passages(10))
    assert list(islice(scale.generated_passages(20_000), 10)) == small
    assert len({passage.text for passage in small}) == 10


def test_passages_and_ids_are_counted(tmp_path):
    build_index(scale.generated_passages(25), tmp_path / "index", sources=["generated"])
    assert scale.counted(tmp_path / "index") == {"passages": 25, "ids": 25}
