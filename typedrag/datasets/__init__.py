"""Named datasets, as `dspy.Example`s with splits, a fingerprint and a licence note."""

from typedrag.datasets.dataset import SPLITS, Dataset, Source, load_dataset, sample, source, sources
from typedrag.datasets.sample import SampleQuestion, sample_questions

__all__ = [
    "SPLITS",
    "Dataset",
    "SampleQuestion",
    "Source",
    "load_dataset",
    "sample",
    "sample_questions",
    "source",
    "sources",
]
