import pytest

from tests.builders.native import build_rows, publish
from tests.programs.passages import Numbered
from typedrag.datasets import load_dataset
from typedrag.files.text_files import write_json_lines
from typedrag.programs import HANRAG


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A file with rows for all roles."""
    folder = tmp_path_factory.mktemp("revelator-data")
    files = publish(folder)
    sources = {
        "straightforward": files["commonsense"],
        "single_step": (files["dpr"],),
        **{name: files[name] for name in ("musique", "two_wiki", "compound")},
    }
    built = build_rows(**sources, validation_share=0.3, test_share=0.2)
    write_json_lines(folder / "made.jsonl", built.rows)
    return folder / "made.jsonl"


@pytest.fixture(scope="session")
def dataset(data):
    return load_dataset("revelator", data)


@pytest.fixture
def program():
    return HANRAG(Numbered())


@pytest.fixture(scope="session")
def base(tmp_path_factory, dataset):
    """A tiny LM with random weights."""
    pytest.importorskip("peft", reason="needs the extra 'training'")
    from tests.optimizers.revelator.tiny_lm import make_tiny_lm
    from typedrag.optimizers.revelator import format_chat

    hanrag = HANRAG(Numbered())
    texts = [message["content"] for e in dataset.examples for message in format_chat(e, hanrag)]
    return make_tiny_lm(tmp_path_factory.mktemp("tiny-lm"), texts)
