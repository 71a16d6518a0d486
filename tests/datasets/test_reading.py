import re

import pytest

from tests.datasets.files import write, write_jsonl
from typedrag.core.errors import InputError
from typedrag.datasets.reading import Entry, Id, Layout, Text, find_files, members, parse, read_json, read_rows

FILES = {"nq": ("nq.jsonl", "nq/test.jsonl"), "squad": ("squad.jsonl",)}


class Row(Layout):
    id: Id
    question: Text
    labels: list[int] = []  # noqa: RUF012 - pydantic copies it


def refused(action) -> str:
    with pytest.raises(InputError) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.jsonl", '\n{"id": "1", "question": "é?"}\n\n{"id": "2", "question": "b?"}\n'),
        ("rows.jsonl.gz", '\n{"id": "1", "question": "é?"}\n\n{"id": "2", "question": "b?"}\n'),
        ("rows.csv", '\nid,question\n\n1,"é?"\n2,b?\n'),
        ("rows.tsv", "\ufeffid\tquestion\n1\té?\n\n2\tb?\n"),
    ],
)
def test_rows_are_read_with_their_lines(tmp_path, name, text):
    file = write(tmp_path / name, text)
    rows = list(read_rows(file, "nq"))
    assert [row.value for row in rows] == [{"id": "1", "question": "é?"}, {"id": "2", "question": "b?"}]
    assert {row.subset for row in rows} == {"nq"}
    source = text.splitlines()
    for row in rows:
        line = int(re.fullmatch(rf"{re.escape(str(file))}, line (\d+)", row.place)[1])
        assert row.value["question"] in source[line - 1]


def test_a_quoted_cell_may_go_over_lines(tmp_path):
    file = write(tmp_path / "rows.csv", 'id,question\n1,"a\nb?"\n2,c?\n')
    assert [(r.value["question"], r.place) for r in read_rows(file)] == [
        ("a\nb?", f"{file}, line 2"),
        ("c?", f"{file}, line 4"),
    ]


def test_the_members_of_json_lists_say_where_they_are(tmp_path):
    file = write(tmp_path / "rows.json", '{"data": [{"qas": [1, 2]}, {"qas": [3]}]}')
    found = [q for d in members(Entry(read_json(file), str(file), "dev"), "data") for q in members(d, "qas")]
    assert found[2] == Entry(3, f"{file}, data[1].qas[0]", "dev")
    [only] = read_rows(write(tmp_path / "list.json", "[7]"))
    assert only == Entry(7, f"{tmp_path}/list.json, [0]")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"id": 1}\n{broken\n', "line 2 cannot be used: it is not JSON"),
        ("a.jsonl", '{"id": 1}\n' + "[" * 200_000, "line 2 cannot be used: it is nested too deeply"),
        (
            "a.jsonl",
            '{"id": 1}\n{"id": ' + "9" * 6_000 + "}",
            "line 2 cannot be used: it holds a number with more digits",
        ),
        ("a.csv", 'id,question\n1,a\n2,"never closed\n3,b\n', "line 3 cannot be used"),
        ("a.csv", "id,question\n1,a,b\n", "line 2 cannot be used: it has 3 columns, the header 2"),
        ("a.tsv", 'question\tid\n"Why?\t1\nHow"\t2\n', "line 2 cannot be used: its quote is closed only in line 3"),
        ("a.tsv", "id\tquestion\n1\n", "line 2 cannot be used: it has 1 columns, the header 2"),
        ("a.csv", "id,id\n1,2\n", "line 1 cannot be used: two columns have the same name"),
        ("a.json", '[{"id": 1},\n}', "line 2 cannot be used: it is not JSON"),
        ("a.json", "{}", "it is no list"),
        ("a.txt", "text", "is of no kind that can be read. Readable: .jsonl, .csv"),
        ("a.jsonl", "caf\u00e9".encode("latin-1"), "cannot be read: 'utf-8' codec"),
        ("a.jsonl.gz", b"no gzip", "cannot be read: Not a gzipped file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, text, message):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    said = refused(lambda: list(read_rows(file)))
    assert said.startswith(str(file))
    assert message in said


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"id": "1"}, "question: Field required"),
        ({"id": "1", "question": " "}, "question: Value error, it is blank"),
        ({"id": "1", "question": 5}, "question: Input should be a valid string"),
        ({"id": "1", "question": "\ud800?"}, "half of a surrogate pair"),
        ({"id": "9" * 40_000, "question": "a?"}, "id: Value error, it has 40,000 characters, where 1,000 are allowed"),
        ({"id": "", "question": "a?"}, "id: Value error, it is blank"),
        ({"id": True, "question": "a?"}, "id: Input should be a valid string"),
        ({"id": None, "question": "a?"}, "id: Input should be a valid string"),
        ({"id": "1", "question": "a?", "labels": [1, "2"]}, "labels.1: Input should be a valid integer"),
        ({"id": "1", "question": "a?", "labels": [1, 2.5]}, "labels.1: Input should be a valid integer"),
        ([], "row: Input should be a valid dictionary"),
    ],
)
def test_a_row_that_does_not_fit_is_named_with_its_field(value, message):
    said = refused(lambda: parse(Row, Entry(value, "q.jsonl, line 3")))
    assert said.startswith("q.jsonl, line 3 cannot be used: ")
    assert message in said


def test_a_number_is_an_id_and_other_fields_are_ignored():
    row = parse(Row, Entry({"id": 7, "question": "a?", "else": []}, "x"))
    assert (row.id, row.question) == ("7", "a?")


def test_a_folder_is_asked_for_its_subsets(tmp_path):
    nq = write_jsonl(tmp_path / "nq" / "test.jsonl")
    squad = write_jsonl(tmp_path / "squad.jsonl.gz")
    assert find_files(tmp_path, FILES) == [("nq", nq), ("squad", squad)]
    assert find_files(tmp_path, FILES, "squad, nq") == [("squad", squad), ("nq", nq)]
    assert find_files(nq, FILES) == [("nq", nq)]
    assert find_files(squad, FILES, "squad") == [("squad", squad)]
    other = write_jsonl(tmp_path / "other.jsonl")
    assert find_files(other, FILES, "squad") == [("squad", other)]
    assert find_files(other, {"one": ("one.jsonl",)}) == [("one", other)]


def test_missing_files_and_subsets_are_named(tmp_path):
    assert "no subset is called 'x'. Subsets: nq, squad" in refused(lambda: find_files(tmp_path, FILES, "x"))
    assert "holds no file of subset 'nq'" in refused(lambda: find_files(tmp_path, FILES))
    nq = write_jsonl(tmp_path / "nq.jsonl")
    missing = refused(lambda: find_files(tmp_path, FILES, "nq,squad"))
    assert missing.endswith("holds no file of subset 'squad'. It should be called squad.jsonl")
    assert "holds subset 'nq', not 'squad'" in refused(lambda: find_files(nq, FILES, "squad"))
    assert "does not exist" in refused(lambda: find_files(tmp_path / "none", FILES))
    other = write_jsonl(tmp_path / "other.jsonl")
    assert "does not say by its name which subset it is" in refused(lambda: find_files(other, FILES))
