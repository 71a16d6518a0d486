import json
import re
from pathlib import Path

import pytest

from tests.datasets.files import refusal, write, write_json, write_jsonl
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType, SubQuestionType
from typedrag.core.records import Nugget, Reference, SubQuestion
from typedrag.datasets import Row, check_file, field_mapping, load_dataset

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "your-own-dataset.md").read_text("utf-8")

FULL = {
    "id": 7,
    "question": "Why is it so?",
    "question_type": "Reason",
    "subset": "physics",
    "references": [{"text": "Poor.", "label": 1}, {"text": "Good.", "label": 3}],
    "answers": ["so", "thus"],
    "passage_ids": ["p1", 2],
    "sub_questions": [{"text": "What is it?", "type": "core"}],
    "nuggets": [{"text": "It is by this.", "vital": False}, {"text": "And by that."}],
    "aspects": ["causes", "effects"],
    "sub_answers": ["By this.", "To that."],
}


def test_fields_are_read_by_their_names(tmp_path):
    [example] = load_dataset("file", write_jsonl(tmp_path / "mine.jsonl", FULL)).examples
    assert (example.id, example.question, example.subset) == ("7", "Why is it so?", "physics")
    assert example.question_type is QuestionType.REASON
    assert example.references == (Reference("Good.", 3), Reference("Poor.", 1))
    assert (example.answers, example.passage_ids) == (("so", "thus"), ("p1", "2"))
    assert example.sub_questions == (SubQuestion("What is it?", SubQuestionType.CORE),)
    assert example.nuggets == (Nugget("It is by this.", vital=False), Nugget("And by that."))
    assert (example.aspects, example.sub_answers) == (("causes", "effects"), ("By this.", "To that."))


def test_fields_are_mapped(tmp_path):
    file = write_json(tmp_path / "mine.json", [{"qid": "a", "query": "How?", "gold": ["best", "fair"], "id": "other"}])
    dataset = load_dataset("file", file, fields={"id": "qid", "question": "query", "references": "gold"})
    [example] = dataset.examples
    assert (example.id, example.question) == ("a", "How?")
    assert example.references == (Reference("best", 1), Reference("fair", 0))
    assert "answers" not in example
    assert (dataset.name, dataset.source) == ("file", str(file))


@pytest.mark.parametrize(("name", "comma"), [("mine.csv", ","), ("mine.tsv.gz", "\t")])
def test_cells_hold_json_or_one_member(tmp_path, name, comma):
    cells = json.dumps(["x", "y"], separators=(",", ":")).replace('"', '""')
    text = f'question,answers,passage_ids,subset\nWhy?,"{cells}",p1,\nHow?,z,,b\n'
    rows = text.splitlines()
    if comma == "\t":
        rows = ["question\tanswers\tpassage_ids\tsubset", f'Why?\t"{cells}"\tp1\t', "How?\tz\t\tb"]
    why, how = load_dataset("file", write(tmp_path / name, "\n".join(rows) + "\n")).examples
    assert (why.answers, why.passage_ids, why.get("subset")) == (("x", "y"), ("p1",), None)
    assert (how.answers, how.get("passage_ids"), how.subset) == (("z",), None, "b")
    assert why.id != how.id


def test_cells_hold_lists_as_python_writes_them(tmp_path):
    cells = "question,answers\nWhy?,\"['so', 'it is']\"\n"
    assert load_dataset("file", write(tmp_path / "mine.csv", cells)).examples[0].answers == ("so", "it is")


def test_a_subset_is_chosen(tmp_path):
    file = write(tmp_path / "mine.csv", "question,subset\nWhy?,a\nHow?,b\nWho?,c\nWhat?,\n")
    assert [e.question for e in load_dataset("file", file, subset="c,a").examples] == ["Why?", "Who?"]
    assert refusal("file", file, subset="d") == "no subset is called 'd'. Subsets: a, b, c"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"question": ""}, "question: Field required"),
        ({"question_type": "poem"}, "question_type: "),
        ({"references": [{"text": "x"}]}, "references"),
        ({"references": [1]}, "references"),
        ({"answers": {"a": 1}}, "answers: "),
        ({"answers": '["x"'}, "answers: "),
        ({"sub_questions": [{"text": "x", "type": "main"}]}, "sub_questions.0.type: "),
        ({"id": 1.5}, "id: "),
        ({"aspects": ["causes"]}, "it has 1 aspects and 2 sub_answers, which are to be in pairs"),
        ({"aspects": [" ", "effects"]}, "aspects.0: "),
    ],
)
def test_rows_that_do_not_fit_are_named(tmp_path, change, said):
    file = write_jsonl(tmp_path / "mine.jsonl", {**FULL, "id": 1}, {**FULL, **change})
    message = refusal("file", file)
    assert message.startswith(f"{file}, line 2 cannot be used: ")
    assert said in message


def test_mappings_that_do_not_fit_are_named(tmp_path):
    file = write_jsonl(tmp_path / "mine.jsonl", {"question": "Why?", "gold": "x"})
    assert "line 1 cannot be used: it has no field 'best' (fields: question, gold)" in refusal(
        "file", file, fields={"references": "best"}
    )
    assert refusal("file", file, fields={"refs": "gold"}).startswith("no field is called 'refs'. Fields: question, id")
    assert refusal("file") == "dataset 'file' is read from a file. Name it: --path"
    assert "line 1 cannot be used: it is no object with fields" in refusal(
        "file", write_jsonl(tmp_path / "a.jsonl", [1])
    )
    for pair in ("question", "=x", "question="):
        with pytest.raises(InputError, match=f"'{pair}' maps no field"):
            field_mapping([pair])


@pytest.mark.parametrize(
    ("header", "column", "meant"),
    [
        ("question,answer", "answer", "answers"),
        ("question, answers", " answers", "answers"),
        ("Question,answers", "Question", "question"),
        ("question,Passage ID", "Passage ID", "passage_ids"),
    ],
)
def test_a_column_that_is_nearly_called_so_is_not_passed_by(tmp_path, header, column, meant):
    file = write(tmp_path / "mine.csv", f"{header}\nWhy?,x\n")
    columns = ", ".join(map(repr, header.split(",")))
    said = refusal("file", file)
    assert said.startswith(f"{file}, line 2: its field '{column}' would not be read (its fields: {columns}; those that")
    assert said.endswith(f"--field '{meant}={column}'")
    [made] = load_dataset("file", file, fields={meant: column}).examples
    assert "x" in (made.get("answers") or made.passage_ids)


def test_a_column_that_is_not_read_is_named(tmp_path, caplog):
    file = write(tmp_path / "mine.csv", "question,truth\nWhy?,x\n")
    load_dataset("file", file)
    [said] = caplog.messages
    assert said.startswith(f"{file}: not read: 'truth'. If one is a field of another name, say so: --field NAME=COLUMN")
    caplog.clear()
    load_dataset("file", file, fields={"answers": "truth"})
    assert not caplog.messages


def test_other_columns_are_passed_by_and_named(tmp_path):
    file = write(tmp_path / "mine.csv", "question,gold,answers,answer\nWhy?,x,y,z\n")
    dataset = load_dataset("file", file)
    assert dataset.examples[0].answers == ("y",)
    assert dataset.columns.startswith(
        "the file has 'question', 'gold', 'answers', 'answer'; what can be read is question"
    )


def test_questions_that_repeat_with_other_answers_are_refused(tmp_path):
    file = write(tmp_path / "mine.csv", "question,answers\nWhy?,a\nWhy?,b\n")
    assert f"{file}, line 3 cannot be used: its id " in refusal("file", file)


def test_the_page_shows_a_row_with_every_field_in_the_words_of_the_errors(tmp_path):
    row = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    assert list(row) == list(Row.model_fields)
    [example] = load_dataset("file", write_jsonl(tmp_path / "mine.jsonl", row)).examples
    assert set(row) == set(example.keys())
    for name, field in Row.model_fields.items():
        assert f"| `{name}` | {field.description} |" in PAGE
    cells = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)[1]
    [example] = load_dataset("file", write(tmp_path / "mine.csv", cells)).examples
    assert len(example.answers) == 2
    assert [r.label for r in example.references] == [3, 0]


def test_the_schema_admits_the_row_of_the_page_and_no_other_shape():
    from jsonschema import Draft202012Validator

    valid = Draft202012Validator(Row.model_json_schema()).is_valid
    row = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    assert valid(row) and valid({**row, "id": 7})
    assert not valid({**row, "references": [{"text": "x"}]})
    assert not valid({**row, "sub_questions": ["x"]})


def test_all_faults_of_a_file_are_found_at_once(tmp_path):
    rows = ["{", {**FULL, "references": [{"text": "x"}]}, FULL, {"id": 8}, {"id": 9}, {**FULL, "subset": "b"}]
    file = write(tmp_path / "mine.jsonl", "".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    dataset, faults = check_file(file)
    assert [e.id for e in dataset.examples] == ["7"]
    said = [
        "line 1 cannot be used: it is not JSON",
        "line 2 cannot be used: references.0.label: Field required; references.0: Input should be a valid string. "
        "Correct or remove it: 'references' holds answers with whole numbers as labels",
        "line 4 and 1 more cannot be used: question: Field required",
        "line 6 cannot be used: its id '7' is that of",
    ]
    assert all(fault.startswith(f"{file}, {start}") for fault, start in zip(faults, said, strict=True))


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("question,answers\nWhy?,a,b\nHow?,x\n", ["line 2 cannot be used: it has 3 columns, the header 2"]),
        ("question,answer\nWhy?,a\nHow?,x\n", ["line 2 and 1 more: its field 'answer' would not be read"]),
        ('question\nWhy?\n"Ho"w?\nWho?\n', ["line 3 cannot be used: "]),
        ("question\n", [" holds no question of dataset 'file'"]),
    ],
)
def test_all_faults_of_a_table_are_found_at_once(tmp_path, text, faults):
    file = write(tmp_path / "mine.csv", text)
    assert [f"{said}" in fault for fault, said in zip(check_file(file)[1], faults, strict=True)] == [True] * len(faults)


def test_no_row_is_a_fault_of_its_own_where_the_mapping_is_wrong(tmp_path):
    file = write_jsonl(tmp_path / "mine.jsonl", {"question": "Why?"}, {"question": "How?"})
    assert len(check_file(file, {"refs": "gold"})[1]) == 1
