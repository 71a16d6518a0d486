import pytest

from tests.datasets.files import refusal, write_jsonl
from typedrag.core.records import Reference
from typedrag.datasets import load_dataset

QUESTION = "How is bread made?"
ROW = {
    "question": QUESTION,
    "answers": ["By hand.", "Or not."],
    "subqs": ["tools", "time"],
    "subas": ["Bowls.", "Hours."],
}


def test_rows_have_sub_aspects_without_the_question_before_them(tmp_path):
    joined = {
        **ROW,
        "subqs": [f"{QUESTION} tools", f"{QUESTION}: time", QUESTION],
        "subas": ["Bowls.", "Hours.", "All."],
    }
    file = write_jsonl(
        tmp_path / "wikipassageqa_2source.decomposed.qcatsubqqa_test.sft.ranker.jsonl",
        ROW,
        {**joined, "answers": ["Yes."]},
    )
    first, second = load_dataset("richrag", file).examples
    assert (first.question, first.subset) == (QUESTION, "test")
    assert first.references == (Reference("By hand.\nOr not.", 1),)
    assert (first.aspects, first.sub_answers) == (("tools", "time"), ("Bowls.", "Hours."))
    assert second.aspects == ("tools", "time", QUESTION)


@pytest.mark.parametrize("answer", ["By hand.", ["By hand."], [{"answer": "By hand."}]])
def test_an_answer_may_be_written_in_three_ways(tmp_path, answer):
    row = {name: value for name, value in ROW.items() if name != "answers"} | {"answer": answer}
    [example] = load_dataset("richrag", write_jsonl(tmp_path / "x_dev.jsonl", row)).examples
    assert example.references == (Reference("By hand.", 1),)


def test_a_part_is_a_word_of_a_file_name(tmp_path):
    for name in ("latest", "constraints", "devices", "x_test"):
        write_jsonl(tmp_path / f"{name}.jsonl", {**ROW, "question": f"What of {name}?"})
    assert [e.question for e in load_dataset("richrag", tmp_path).examples] == ["What of x_test?"]


def test_a_folder_holds_a_file_for_each_part(tmp_path):
    for part in ("train", "dev", "test"):
        write_jsonl(tmp_path / f"wikiasp_merge.{part}.jsonl", {**ROW, "question": f"What of {part}?"})
    dataset = load_dataset("richrag", tmp_path)
    splits = {part: [e.question for e in dataset.split(part)] for part in ("train", "validation", "test")}
    assert splits == {"train": ["What of train?"], "validation": ["What of dev?"], "test": ["What of test?"]}
    assert [e.subset for e in load_dataset("richrag", tmp_path, subset="dev").examples] == ["dev"]
    write_jsonl(tmp_path / "wikipassageqa.test.jsonl", ROW)
    assert f"{tmp_path} holds 2 files of part 'test', such as wikiasp_merge.test" in refusal("richrag", tmp_path)


def test_rows_that_do_not_fit_are_named(tmp_path):
    for change, said in (
        ({"subas": ["Bowls."]}, "it has 2 sub-aspects and 1 sub-answers"),
        ({"answers": None}, "it has no answer"),
        ({"subqs": "tools"}, "subqs: "),
    ):
        file = write_jsonl(tmp_path / "test.jsonl", {**ROW, **change})
        assert f"{file}, line 1 cannot be used: {said}" in refusal("richrag", file)
    assert "holds no question of dataset 'richrag'" in refusal("richrag", write_jsonl(tmp_path / "other.jsonl", ROW))
    assert "Fetch them from https://huggingface.co" in refusal("richrag")
