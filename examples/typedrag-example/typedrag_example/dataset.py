"""A dataset of one's own."""

from pathlib import Path

from typedrag.datasets import Dataset, source
from typedrag.datasets.dataset import Entry, build_dataset, example

QUESTIONS = ("Why does bread rise?", "How do I sharpen a kitchen knife?", "What is kneading good for?")


@source("kitchen", about="three questions on cooking", licence="Apache-2.0", home="typedrag-example")
def load_kitchen(path: Path | None = None) -> Dataset:
    """The questions, which are part of the package."""
    entries = (Entry({"id": str(n), "question": question}, str(n)) for n, question in enumerate(QUESTIONS))
    return build_dataset("kitchen", entries, lambda entry: example(**entry.value), source="the package")
