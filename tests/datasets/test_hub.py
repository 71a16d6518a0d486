import pytest

from tests.datasets.files import write
from typedrag.core.errors import InputError, TypedRAGError
from typedrag.datasets import load_dataset
from typedrag.datasets.reading import Entry, cache_folder, download, hub_rows

SPLITS = {"train": "train", "dev": "validation"}


def test_rows_of_the_hub_say_where_they_stand(hub):
    rows = [{"id": "1", "text": "a", "more": [1]}, {"id": "2", "text": "b", "more": [2]}]
    hub("me/mine", "small", train=rows, validation=rows[:1])
    found = list(hub_rows("me/mine", SPLITS, config="small", columns=("id", "text")))
    assert found == [
        Entry({"id": "1", "text": "a"}, "me/mine (train), row 1", "train"),
        Entry({"id": "2", "text": "b"}, "me/mine (train), row 2", "train"),
        Entry({"id": "1", "text": "a"}, "me/mine (validation), row 1", "dev"),
    ]
    [only] = hub_rows("me/mine", SPLITS, subset="dev")
    assert only.value["more"] == [1]
    assert list(cache_folder().rglob("*.arrow"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"config": "large"}, "large"), ({"columns": ("id", "none")}, "none"), ({"subset": "test"}, "test")],
)
def test_what_the_hub_does_not_have_is_one_line(hub, settings, said):
    hub("me/mine", "small", train=[{"id": "1"}])
    with pytest.raises(TypedRAGError) as caught:
        list(hub_rows("me/mine", {"train": "train", "test": "test"}, **{"subset": "train", **settings}))
    assert str(caught.value).startswith("dataset me/mine of the Hugging Face hub cannot be fetched: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["wiki-nfqa", "researchy-questions", "squad", "2wikimultihopqa"])
def test_without_a_connection_a_copy_is_asked_for(hub, name):
    with pytest.raises(TypedRAGError) as caught:
        load_dataset(name)
    assert not isinstance(caught.value, InputError)
    assert "cannot be fetched" in str(caught.value)
    assert str(caught.value).endswith("Check the connection, or name a copy: --path")
    assert "\n" not in str(caught.value)


def test_a_subset_is_checked_before_anything_is_fetched(hub):
    with pytest.raises(InputError, match=r"no subset is called 'dev'. Subsets: train, validation"):
        load_dataset("squad", subset="dev")


def test_a_file_that_cannot_be_downloaded_is_named(hub, tmp_path):
    here = write(tmp_path / "here.csv", "a\n1\n")
    assert download(str(here)).read_text() == "a\n1\n"
    with pytest.raises(TypedRAGError, match=r"^https://invalid\.example/x\.csv cannot be fetched.* --path$"):
        download("https://invalid.example/x.csv")
