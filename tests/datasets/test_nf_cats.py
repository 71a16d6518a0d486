from collections import Counter

from tests.datasets.files import refusal, write
from typedrag.core.question_types import QuestionType
from typedrag.datasets import load_dataset

HEADER = "annotated_by,category,question\n"
TRAIN = HEADER + 'authors,COMPARISON,"Crows, or ravens?"\nmturk,NOT-A-QUESTION,Hello\n'
VALID = HEADER + "unsupervised,REASON,Why is it so?\nunsupervised,NOT-A-QUESTION,Hello\n"


def test_questions_have_types_and_the_authors_split(tmp_path):
    write(tmp_path / "train.csv", TRAIN)
    write(tmp_path / "valid.csv", VALID)
    dataset = load_dataset("nf-cats", tmp_path)
    first = dataset.examples[0]
    assert (first.question, first.question_type) == ("Crows, or ravens?", QuestionType.COMPARISON)
    assert (first.subset, first.annotated_by) == ("train", "authors")
    assert Counter(e.subset for e in dataset.examples) == {"train": 2, "valid": 2}
    valid = load_dataset("nf-cats", tmp_path, subset="valid").examples
    assert [e.question_type for e in valid] == [QuestionType.REASON, QuestionType.NOT_A_QUESTION]
    assert [e.id for e in valid] == [e.id for e in dataset.examples[2:]]


def test_rows_that_do_not_fit_are_named(tmp_path):
    file = write(tmp_path / "train.csv", TRAIN + "mturk,POETRY,Roses are red\n")
    said = refusal("nf-cats", file)
    assert said.startswith(f"{file}, line 4 cannot be used: category: ")
    assert "'comparison', 'experience'" in said
    file = write(tmp_path / "train.csv", TRAIN + "mturk,DEBATE,\n")
    assert refusal("nf-cats", file).startswith(f"{file}, line 4 cannot be used: question: ")
    file = write(tmp_path / "train.csv", TRAIN + "mturk,REASON,Hello\n")
    assert refusal("nf-cats", file).startswith(f"{file}, line 4 cannot be used: its id '")
    file = write(tmp_path / "train.csv", "category\nDEBATE\n")
    assert refusal("nf-cats", file).startswith(f"{file}, line 2 cannot be used: question: Field required")


def test_the_authors_files(shared_data):
    dataset = load_dataset("nf-cats", shared_data / "nf_cats")
    assert Counter(e.subset for e in dataset.examples) == {"train": 7669, "valid": 1918}
    assert dataset.skipped == ()
    valid = Counter(e.question_type for e in dataset.examples if e.subset == "valid")
    assert (valid[QuestionType.FACTOID], valid[QuestionType.COMPARISON]) == (617, 14)
    assert Counter(e.question_type for e in dataset.split("test")) == valid  # the authors' own


def test_a_row_that_is_there_twice_is_listed(tmp_path):
    file = write(tmp_path / "train.csv", TRAIN + "mturk,NOT-A-QUESTION,Hello\n")
    dataset = load_dataset("nf-cats", file)
    assert (len(dataset.examples), dataset.skipped) == (2, (f"{file}, line 4: it repeats {file}, line 3",))
