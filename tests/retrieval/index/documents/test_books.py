"""Word documents, slides and EPUB books: those of the benchmark of readers."""

import pytest

from benchmarks.documents import write_documents
from tests.retrieval.index.test_sources import refusal, write
from typedrag.retrieval import read_passages


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    write_documents(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "title", "lines"),
    [
        ("word.docx", "Why bread rises", "Why bread rises|Yeast eats sugar.|Flour\tWater|500 g\t350 g"),
        ("book.epub", "On Bread", "One|Yeast.|Two|Gas."),
        (
            "slides.pptx",
            "Why bread rises",
            "Why bread rises|Yeast eats sugar.|Flour\tWater|500 g\t350 g|Say it slowly.|"
            "\tLoaves sold|Rye\t12.0|Wheat\t30.0",
        ),
    ],
)
def test_a_document_is_read_in_order_with_its_headings_tables_charts_and_notes(folder, name, title, lines):
    [passage] = read_passages([folder / name])
    assert (passage.id, passage.title) == (f"{name}#1", title)
    assert passage.text.split("\n") == lines.split("|")


def test_a_broken_one_is_named(tmp_path):
    for name in ("a.docx", "b.pptx", "c.epub"):
        assert f"{name} cannot be read" in refusal(write(tmp_path / name, b"PK no zip"))
